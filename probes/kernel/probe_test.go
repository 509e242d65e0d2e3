package kernel

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

func newProbe(t testing.TB, opts Options) *Probe {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("needs BTF: /sys/kernel/btf/vmlinux is absent")
	}
	p, err := New(opts)
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%+v", fmt.Sprintf("%+v", verifier)[max(0, len(fmt.Sprintf("%+v", verifier))-6000):])
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func TestLoadsWhole(t *testing.T) {
	p := newProbe(t, Options{})
	if missing := p.Missing(); len(missing) > 0 {
		t.Errorf("programs refused: %q", missing)
	}
}
