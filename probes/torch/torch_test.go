package torch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/probes/uprobe/uprobetest"
)

func TestMain(m *testing.M) {
	symbols.ChildMain()
	goleak.VerifyTestMain(m)
}

const engineSymbol = symbolPrefix + "RKSt6vectorINS0_4EdgeESaIS3_EE"

func TestMatch(t *testing.T) {
	for symbol, want := range map[string]bool{
		engineSymbol: true,
		"_ZN5torch8autograd6Engine24execute_with_graph_taskE": false,
		"x" + symbolPrefix: false,
	} {
		if _, got := match(symbol); got != want {
			t.Errorf("%s: %v", symbol, got)
		}
	}
}

func newProbe(t *testing.T) *Probe {
	t.Helper()
	uprobetest.NeedsRoot(t)
	f := uprobe.NewFinder()
	p, err := New(f)
	if err != nil {
		t.Fatal(errors.Join(err, f.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func ticks(t *testing.T, p *Probe, keys ...string) map[string][]probes.Ticks {
	t.Helper()
	into := map[string]*probes.Sample{}
	for _, key := range keys {
		into[key] = &probes.Sample{Container: key, Kernel: &probes.Kernel{}}
	}
	if err := p.Read(context.Background(), into); err != nil {
		t.Fatal(err)
	}
	out := map[string][]probes.Ticks{}
	for key, sample := range into {
		out[key] = sample.Kernel.Ticks
	}
	return out
}

// Two containers share a library, and each process counts its own passes.
func TestTicksAreCounted(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	program := uprobetest.Build(t, dir, "job", "job")
	lib := uprobetest.BuildCode(t, dir, "libtorch_cpu.so", "int "+engineSymbol+"(void) { return 7; }", "-shared", "-fPIC")
	jobs := map[string]*uprobetest.Job{}
	for _, name := range []string{"torch-a", "torch-b"} {
		target := uprobetest.Cgroup(t, name)
		if err := p.Watch(target); err != nil {
			t.Fatal(err)
		}
		jobs[name] = uprobetest.Start(t, target, program)
		jobs[name].Do("load %s", lib)
	}
	a, b := jobs["torch-a"], jobs["torch-b"]
	for range 200 {
		ticks(t, p)
		if p.client.Has(a.PID, engineSymbol) && p.client.Has(b.PID, engineSymbol) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	a.Do("call %s 20", engineSymbol)
	b.Do("call %s 10", engineSymbol)
	got := ticks(t, p, "torch-a", "torch-b")
	for key, want := range map[string]probes.Ticks{
		"torch-a": {Source: Source, TGID: a.PID, Count: 20}, "torch-b": {Source: Source, TGID: b.PID, Count: 10},
	} {
		if len(got[key]) != 1 || got[key][0].LastNs == 0 {
			t.Fatalf("container %s: %+v", key, got[key])
		}
		want.LastNs = got[key][0].LastNs
		if diff := cmp.Diff(want, got[key][0]); diff != "" {
			t.Errorf("container %s: %s", key, diff)
		}
	}
	p.Unwatch("torch-a")
	a.Do("call %s 20", engineSymbol)
	b.Do("call %s 10", engineSymbol)
	if got := ticks(t, p, "torch-b")["torch-b"]; len(got) != 1 || got[0].Count != 20 {
		t.Errorf("after the other left: %+v", got)
	}
	if spent := p.Spending(); len(spent) != 1 || spent[0].Hits != 20 || spent[0].Container != "torch-b" {
		t.Errorf("spending %+v", spent)
	}
}
