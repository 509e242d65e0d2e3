package kernel

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/trimtab/trimtab/probes/bpf"
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

// specs are the programs and this kernel's types; the test skips where nothing loads.
func specs(t *testing.T) (*ebpf.CollectionSpec, *btf.Spec) {
	t.Helper()
	newProbe(t, Options{})
	programs, err := bpf.Spec(_CountersBytes)
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	return programs, types
}

// TestLoadsOnOlderKernels: those before 6.10 lack the calls by which a program holds its CPU.
func TestLoadsOnOlderKernels(t *testing.T) {
	spec, types := specs(t)
	for _, name := range []string{"bpf_preempt_disable", "bpf_preempt_enable"} {
		var call *btf.Func
		if err := spec.Types.TypeByName(name, &call); err != nil {
			t.Fatal(err)
		}
		call.Name += "_of_newer_kernels"
	}
	coll, missing, err := loadCollection(spec, types)
	if err != nil {
		t.Fatal(err)
	}
	defer coll.Close()
	if len(missing) > 0 {
		t.Errorf("missing %q", missing)
	}
	for _, name := range []string{"on_fork", "on_exit", "on_attach"} {
		info, err := coll.Programs[name].Info()
		if err != nil {
			t.Fatal(err)
		}
		insns, err := info.Instructions()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(insns, func(ins asm.Instruction) bool { return ins.IsKfuncCall() }) {
			t.Errorf("%s calls what is not there", name)
		}
	}
}

// A program that the kernel refuses is named with its loss; the rest loads.
func TestRefusedProgramIsMissing(t *testing.T) {
	spec, types := specs(t)
	spec.Programs["on_block_issue"].AttachTo = "no_such_tracepoint"
	coll, missing, err := loadCollection(spec, types)
	if err != nil {
		t.Fatal(err)
	}
	defer coll.Close()
	if len(missing) != 1 || !strings.HasPrefix(missing[0], "on_block_issue: lost: block I/O") {
		t.Errorf("missing %q", missing)
	}
	if len(coll.Programs) != len(spec.Programs) || coll.Programs["on_switch"] == nil {
		t.Errorf("%d programs of %d loaded", len(coll.Programs), len(spec.Programs))
	}
	spec.Programs["on_switch"].AttachTo = "no_such_tracepoint"
	if coll, _, err := loadCollection(spec, types); err == nil {
		coll.Close()
		t.Error("loads without the program that it cannot do without")
	}
}

// A host without a v2 tree: the container is its cgroup in v1's cpu hierarchy.
func TestContainersByV1(t *testing.T) {
	p := newProbe(t, Options{TasksByV1CPU: true})
	b := newBox(t, nil, "trimtab-v1")
	if b.v2 {
		t.Skip("needs v1's cpu hierarchy")
	}
	target := b.target("box")
	var st syscall.Stat_t
	if err := syscall.Stat(b.cpu, &st); err != nil {
		t.Fatal(err)
	}
	target.CgroupID = st.Ino
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	j := b.start(sleepTime)
	j.line()
	threadOf(t, read(t, p, "box"), j.pid())
}

func TestLoadsWhole(t *testing.T) {
	p := newProbe(t, Options{})
	if missing := p.Missing(); len(missing) > 0 {
		t.Errorf("programs refused: %q", missing)
	}
}
