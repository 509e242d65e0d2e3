package uprobe

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/uprobetest"
)

const capsEnv = "TRIMTAB_TEST_CAPS" // DIR:PID

// The least capabilities that packaging/trimtab.service must leave: with them a
// process of more capabilities is probed; without CAP_SYS_PTRACE that is refused,
// and said.
func TestLeastCapabilities(t *testing.T) {
	uprobetest.NeedsRoot(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv: drops capabilities")
	}
	if !newAttacher().multi {
		t.Skip("needs Linux 6.10: before, attaching takes CAP_SYS_ADMIN")
	}
	target := uprobetest.Cgroup(t, "caps")
	dir := t.TempDir()
	j := job(t, target, dir)
	j.Do("load %s", uprobetest.BuildCode(t, dir, "libcaps.so", probedCode, "-shared", "-fPIC"))
	for caps, want := range map[string]string{
		"-all,+bpf,+perfmon,+sys_ptrace": "probed",
		"-all,+bpf,+perfmon":             "needs CAP_SYS_PTRACE",
	} {
		cmd := exec.Command(setpriv, "--bounding-set="+caps, "--no-new-privs", os.Args[0], "-test.run=TestUnderCapabilities", "-test.v")
		cmd.Env = append(os.Environ(), capsEnv+"="+target.Unified+":"+strconv.Itoa(int(j.PID)))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s; want %q", caps, err, out, want)
		}
	}
}

// TestUnderCapabilities runs in a child of the test above.
func TestUnderCapabilities(t *testing.T) {
	dir, pid, ok := strings.Cut(os.Getenv(capsEnv), ":")
	if !ok {
		t.Skip("needs to be started by TestLeastCapabilities")
	}
	n, err := strconv.ParseInt(pid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	c := newCounter(t)
	c.watch(probes.Target{Key: "caps", Unified: dir})
	for range 100 {
		// Its error is what Missing shows.
		_ = c.client.Scan(context.Background())
		if c.client.Has(int32(n), "probed") {
			t.Log("probed")
			return
		}
		if missing := c.client.Missing("caps"); len(missing) > 0 {
			t.Log(missing)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("neither probed nor refused")
}
