package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

// TestATitleCostsNoRank: a process that gives itself a title, as setproctitle does for Ray's workers
// and others, writes it over its arguments and its environment. Its launcher named its rank all the
// same. Another program that takes its place has the rank that its own environment names.
func TestATitleCostsNoRank(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "7", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "7"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("stat", "7 (x) S 1 1 1 0 -1"+strings.Repeat(" 0", 16))
	p := New(root)
	if err := p.Watch(probes.Target{Key: "box"}); err != nil {
		t.Fatal(err)
	}
	var args uint64
	for _, c := range []struct {
		comm, cmdline, environ string
		rank                   int32
	}{
		{"python3", "python3\x00train.py\x00", "HOME=/\x00RANK=2\x00", 2},
		{"trainer: epoch", "trainer: epoch 1, step 12\x00", strings.Repeat("\x00", 16), 2},
		{"numactl", "numactl\x00", "RANK=5\x00", 5},
	} {
		write("cmdline", c.cmdline)
		write("environ", c.environ)
		var got []probes.Process
		for deadline := time.Now().Add(10 * time.Second); len(got) == 0 || got[0].Args == args; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not read: %+v", c.comm, got)
			}
			into := map[string]*probes.Sample{"box": {Kernel: &probes.Kernel{Threads: []probes.Thread{{TID: 7, TGID: 7, Comm: c.comm}}}}}
			if err := p.Read(t.Context(), into); err != nil {
				t.Fatal(err)
			}
			got = into["box"].Processes
		}
		if args = got[0].Args; !got[0].Ranked || got[0].Rank != c.rank {
			t.Errorf("%s: %+v, want rank %d", c.comm, got[0], c.rank)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
