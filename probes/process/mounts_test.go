package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/test/fusetest"
)

func TestMain(m *testing.M) {
	fusetest.Main()
	os.Exit(m.Run())
}

// TestARealNetworkMount: what this kernel shows of a process that has mounts of its own.
func TestARealNetworkMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	layer, other := fusetest.Mount(t), t.TempDir()
	p := &Probe{procRoot: "/proc"}
	start := func(script string) int32 {
		t.Helper()
		cmd := exec.Command("sh", "-c", script+" && echo mounted && exec sleep 3600", "sh", layer.Dir, other)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		from, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skipf("needs mount namespaces: %v", err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		if n, err := from.Read(make([]byte, 16)); err != nil || n == 0 {
			t.Fatalf("it mounted nothing: %v", err)
		}
		return int32(cmd.Process.Pid)
	}
	for script, want := range map[string]string{
		"true":                            layer.Dir,
		`mount --bind "$1" "$2"`:          "", // two
		`mount -t tmpfs none "$1"`:        "", // hidden
		`mount --bind / / && umount "$1"`: "", // none
		`mount --bind "$1" "$2" && mount -t tmpfs none "$1"`: other,
	} {
		got, ok := p.read(start(script))
		if !ok {
			t.Fatalf("%s: not read", script)
		}
		if got.NetworkMount != want {
			t.Errorf("%s: %q, want %q", script, got.NetworkMount, want)
		}
	}
}
