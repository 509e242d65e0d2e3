package ticks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
)

func TestMain(m *testing.M) {
	symbols.ChildMain()
	goleak.VerifyTestMain(m)
}

// Names as libraries export them, of Debian's libtorch 1.13 with their arguments.
const (
	engineSymbol = "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EE"
	sgdSymbol    = "_ZN5torch5optim3SGD4stepESt8functionIFN2at6TensorEvEE"
)

func TestMatch(t *testing.T) {
	var p Probe
	spec := p.table(probes.CountedEvents())
	for symbol, want := range map[string]string{
		engineSymbol: "torch.backward",
		"_ZN5torch8autograd6Engine24execute_with_graph_taskE": "",
		"x" + engineSymbol:                        "",
		sgdSymbol:                                 "torch.optim",
		"_ZN5torch5optim11LRScheduler4stepEv":     "",
		"_ZN4c10d7Reducer19prepare_for_forwardEv": "",
		"XGBoosterUpdateOneIter":                  "xgboost.update",
		"XGBoosterEvalOneIter":                    "",
		"LGBM_BoosterUpdateOneIterCustom":         "lightgbm.update",
		"LGBM_BoosterUpdateOneIterCustomAndSoOn":  "",
		"_ZN5caffe9SGDSolverIfE11ApplyUpdateEv":   "caffe.update",
		"TF_SessionRun":                           "tensorflow.run",
		"fann_train_epoch":                        "fann.epoch",
		"fann_train_epoch_irpropm":                "",
	} {
		got := ""
		for _, h := range spec.Hooks {
			if _, ok := h.Match(symbol); ok {
				got += h.Name
			}
		}
		if got != want {
			t.Errorf("%s: counted as %q, want %q", symbol, got, want)
		}
	}
}

// TestTableFits: each function has a place of its own in the map's value, and each name is looked for.
func TestTableFits(t *testing.T) {
	var p Probe
	spec := p.table(probes.CountedEvents())
	places, sources := map[uint32]bool{}, map[string]bool{}
	for i, e := range probes.CountedEvents() {
		if sources[e.Source] || e.What == "" || e.Library == "" || e.Source != spec.Hooks[i].Name {
			t.Errorf("row %d: %+v", i, e)
		}
		sources[e.Source] = true
		for _, group := range p.rows[i].groups {
			for _, at := range group {
				if places[at] {
					t.Errorf("%s shares place %d", e.Source, at)
				}
				places[at] = true
			}
		}
		for name, point := range spec.Hooks[i].Functions {
			if !places[point.Code] {
				t.Errorf("%s has no place", name)
			}
		}
	}
	if n, room := len(places), len(entryTicks{}.Count[0]); n > room {
		t.Errorf("%d functions, room for %d", n, room)
	}
}

func newProbe(t *testing.T) *Probe {
	t.Helper()
	uprobetest.NeedsRoot(t)
	f := uprobe.NewFinder()
	f.HashLibraries(func(text string) string { return text })
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

func read(t *testing.T, p *Probe, keys ...string) map[string][]probes.Ticks {
	t.Helper()
	into := map[string]*probes.Sample{}
	for _, key := range keys {
		into[key] = &probes.Sample{Container: key, Kernel: &probes.Kernel{}}
	}
	uprobetest.Read(t, p, into)
	out := map[string][]probes.Ticks{}
	for key, sample := range into {
		for i := range sample.Kernel.Ticks {
			if sample.Kernel.Ticks[i].LastNs == 0 {
				t.Errorf("container %s: %+v", key, sample.Kernel.Ticks[i])
			}
			sample.Kernel.Ticks[i].LastNs = 0
		}
		out[key] = sample.Kernel.Ticks
	}
	return out
}

func until(t *testing.T, p *Probe, what string, ok func() bool) {
	t.Helper()
	uprobetest.Until(t, what, func() bool { read(t, p); return ok() })
}

// library exports functions under the names of a framework's.
func library(t *testing.T, dir, file string, code string, names ...string) string {
	t.Helper()
	var source strings.Builder
	for _, n := range names {
		fmt.Fprintf(&source, "int %s(void) { return 7; }\n", n)
	}
	return uprobetest.BuildCode(t, dir, file, source.String()+code, "-shared", "-fPIC")
}

// Two containers share a library, and each process counts its own passes.
func TestTicksAreCounted(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	program := uprobetest.Build(t, dir, "job", "job")
	lib := library(t, dir, "libtorch_cpu.so", "", engineSymbol)
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
	until(t, p, "found", func() bool { return p.Has(a.PID, engineSymbol) && p.Has(b.PID, engineSymbol) })
	a.Do("call %s 20", engineSymbol)
	b.Do("call %s 10", engineSymbol)
	want := map[string][]probes.Ticks{
		"torch-a": {{Source: "torch.backward", TGID: a.PID, Count: 20}}, "torch-b": {{Source: "torch.backward", TGID: b.PID, Count: 10}},
	}
	if diff := cmp.Diff(want, read(t, p, "torch-a", "torch-b")); diff != "" {
		t.Error(diff)
	}
	sample := &probes.Sample{Kernel: &probes.Kernel{}, Processes: []probes.Process{{TGID: a.PID}, {TGID: -1}}}
	if err := p.Read(context.Background(), map[string]*probes.Sample{"torch-a": sample}); err != nil || sample.Processes[0].Libraries == "" || sample.Processes[1].Libraries != "" {
		t.Errorf("%v, libraries of %+v", err, sample.Processes)
	}
	p.Unwatch("torch-a")
	a.Do("call %s 20", engineSymbol)
	b.Do("call %s 10", engineSymbol)
	if got := read(t, p, "torch-b")["torch-b"]; len(got) != 1 || got[0].Count != 20 {
		t.Errorf("after the other left: %+v", got)
	}
	if spent := p.Spending(); len(spent) != 1 || spent[0].Hits != 20 || spent[0].Container != "torch-b" {
		t.Errorf("spending %+v", spent)
	}
}

// One process may use several frameworks, and a function that calls another of its kind.
func TestTicksOfSeveralLibraries(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	target := uprobetest.Cgroup(t, "several")
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	j := uprobetest.Start(t, target, uprobetest.Build(t, dir, "job", "job"))
	j.Do("load %s", library(t, dir, "libtorch_cpu.so", "", engineSymbol, sgdSymbol))
	j.Do("load %s", library(t, dir, "libxgboost.so", "int XGBoosterBoostOneIter(void) { return XGBoosterTrainOneIter(); }\n", "XGBoosterTrainOneIter", "XGBoosterUpdateOneIter"))
	j.Do("load %s", library(t, dir, "lib_lightgbm.so", "", "LGBM_BoosterUpdateOneIter"))
	until(t, p, "found", func() bool {
		return p.Has(j.PID, sgdSymbol) && p.Has(j.PID, "XGBoosterBoostOneIter") && p.Has(j.PID, "LGBM_BoosterUpdateOneIter")
	})
	for symbol, n := range map[string]int{engineSymbol: 8, sgdSymbol: 4, "XGBoosterBoostOneIter": 5, "XGBoosterUpdateOneIter": 2, "LGBM_BoosterUpdateOneIter": 3} {
		j.Do("call %s %d", symbol, n)
	}
	want := []probes.Ticks{
		{Source: "lightgbm.update", TGID: j.PID, Count: 3}, {Source: "torch.backward", TGID: j.PID, Count: 8},
		{Source: "torch.optim", TGID: j.PID, Count: 4}, {Source: "xgboost.update", TGID: j.PID, Count: 7},
	}
	if diff := cmp.Diff(want, read(t, p, "several")["several"]); diff != "" {
		t.Error(diff)
	}
}

// TestTicksOfRealLibraries: the functions are those of the real libraries, and each call of a real training is one tick.
func TestTicksOfRealLibraries(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	code, err := os.ReadFile("testdata/train.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ library, file, symbol, source string }{
		{"xgboost", "libxgboost.so.0", "XGBoosterUpdateOneIter", "xgboost.update"},
		{"fann", "libfann.so.2", "fann_train_epoch", "fann.epoch"},
	} {
		t.Run(tt.library, func(t *testing.T) {
			if found, err := filepath.Glob("/usr/lib/*/" + tt.file); err != nil || len(found) == 0 {
				t.Skipf("needs %s: scripts/setup-host.sh --dev installs it", tt.file)
			}
			target := uprobetest.Cgroup(t, "real-"+tt.library)
			if err := p.Watch(target); err != nil {
				t.Fatal(err)
			}
			defer p.Unwatch(target.Key)
			j := uprobetest.Start(t, target, uprobetest.BuildCode(t, dir, tt.library, string(code)))
			j.Do("%s 1", tt.library)
			until(t, p, "found", func() bool { return p.Has(j.PID, tt.symbol) })
			before := uint64(0)
			for _, tick := range read(t, p, target.Key)[target.Key] {
				before = tick.Count
			}
			j.Do("%s 25", tt.library)
			want := []probes.Ticks{{Source: tt.source, TGID: j.PID, Count: before + 25}}
			if diff := cmp.Diff(want, read(t, p, target.Key)[target.Key]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTicksOfRealTorch: a program in C++ that trains with Debian's libtorch makes a backward pass and a
// step of the optimizer for each step.
func TestTicksOfRealTorch(t *testing.T) {
	p := newProbe(t)
	compiler, err := exec.LookPath("g++")
	if found, _ := filepath.Glob("/usr/lib/*/libtorch.so"); err != nil || len(found) == 0 {
		t.Skip("needs g++ and libtorch-dev: scripts/setup-host.sh --dev installs them")
	}
	program := filepath.Join(t.TempDir(), "sgd")
	if out, err := exec.Command(compiler, "-O0", "-w", "-std=c++17", "-I/usr/include/torch/csrc/api/include", "-o", program, "testdata/sgd.cpp", "-ltorch", "-ltorch_cpu", "-lc10").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	target := uprobetest.Cgroup(t, "real-torch")
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	j := uprobetest.Start(t, target, program)
	until(t, p, "found", func() bool { return p.Has(j.PID, sgdSymbol) }) // and the engine, which is in the same library
	j.Do("25")
	want := []probes.Ticks{{Source: "torch.backward", TGID: j.PID, Count: 25}, {Source: "torch.optim", TGID: j.PID, Count: 25}}
	if diff := cmp.Diff(want, read(t, p, target.Key)[target.Key]); diff != "" {
		t.Error(diff)
	}
}

// TestWhatIsNotCounted: neither a local function of a stripped library is, nor one that is called
// too often. That is no error, and the second is said.
func TestWhatIsNotCounted(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	target := uprobetest.Cgroup(t, "uncounted")
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	j := uprobetest.Start(t, target, uprobetest.Build(t, dir, "job", "job"))
	hidden := uprobetest.BuildCode(t, dir, "libxgboost.so", "static int __attribute__((noinline)) XGBoosterUpdateOneIter(void) { return 7; }\nint other(void) { return XGBoosterUpdateOneIter(); }\n", "-shared", "-fPIC", "-s")
	j.Do("load %s", hidden)
	j.Do("load %s", library(t, dir, "libtorch_cpu.so", "", engineSymbol))
	until(t, p, "found", func() bool { return p.Has(j.PID, engineSymbol) })
	j.Do("call other 5")
	if got := read(t, p, "uncounted")["uncounted"]; len(got) > 0 {
		t.Errorf("ticks %+v of a function without a name", got)
	}
	until(t, p, "left alone", func() bool {
		j.Do("call %s 30000", engineSymbol)
		return slices.ContainsFunc(p.Missing("uncounted"), func(m string) bool {
			return strings.HasPrefix(m, "backward passes: more than")
		})
	})
}

// TestTwoVersionsInOneProcess: both are mapped, and both are called. What is counted is what one of
// them does, never the sum; and a process that goes over from one to the other is counted on.
func TestTwoVersionsInOneProcess(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	target := uprobetest.Cgroup(t, "versions")
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	j := uprobetest.Start(t, target, uprobetest.Build(t, dir, "job", "job"))
	for i := range 2 { // each has a function of its own that calls its own one
		code := fmt.Sprintf("int XGBoosterUpdateOneIter(void) { return %d; }\nint round%d(void) { return XGBoosterUpdateOneIter(); }\n", i, i)
		j.Do("load %s", uprobetest.BuildCode(t, dir, fmt.Sprintf("libxgboost.so.%d", i), code, "-shared", "-fPIC", "-Wl,-Bsymbolic"))
	}
	counted := func(calls ...string) uint64 {
		t.Helper()
		for _, c := range calls {
			j.Do("call %s", c)
		}
		ticks := read(t, p, "versions")["versions"]
		if len(ticks) != 1 || ticks[0].Source != "xgboost.update" {
			t.Fatalf("%+v", ticks)
		}
		return ticks[0].Count
	}
	until(t, p, "both are attached to", func() bool {
		j.Do("call round0")
		j.Do("call round1")
		read(t, p)
		return p.seen[j.PID] != nil && p.seen[j.PID][0].of[0] > 0 && p.seen[j.PID][0].of[1] > 0
	})
	was := counted()
	for _, c := range []struct {
		calls []string
		want  uint64
	}{
		{[]string{"round0 30", "round1 20"}, 30},
		{[]string{"round1 50"}, 50},
		{[]string{"round1 5", "round0 7"}, 7},
		{nil, 0},
	} {
		is := counted(c.calls...)
		if is-was != c.want {
			t.Errorf("%v: %d rounds counted, want %d", c.calls, is-was, c.want)
		}
		was = is
	}
	if spent := p.Spending(); len(spent) != 1 || spent[0].Hits < 112 {
		t.Errorf("spending %+v: of the budget each hit is one", spent)
	}
}

// TestStaticallyLinked: a framework that is built into a program is counted by the program's full symbol
// table. Where that is stripped, and also where the function was inlined, nothing is counted, and that
// is no error: docs/rate.md says what serves then. Verdicts need no count: zoo-go and zoo-openmp in
// cmd/trimtab/testdata are recordings of programs that are linked statically.
func TestStaticallyLinked(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	const code = `#include <stdio.h>
int __attribute__((noinline)) XGBoosterUpdateOneIter(void) { __asm__ volatile(""); return 7; }
int main(void)
{
	char line[64];
	int n;
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		for (sscanf(line, "%d", &n); n > 0; n--) XGBoosterUpdateOneIter();
		puts("done");
	}
	return 0;
}
`
	for name, c := range map[string]struct {
		flags []string
		want  uint64
	}{
		"with its symbols": {[]string{"-static"}, 25},
		"stripped":         {[]string{"-static", "-s"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			target := uprobetest.Cgroup(t, "static")
			if err := p.Watch(target); err != nil {
				t.Fatal(err)
			}
			defer p.Unwatch(target.Key)
			j := uprobetest.Start(t, target, uprobetest.BuildCode(t, dir, "trains"+fmt.Sprint(c.want), code, c.flags...))
			looked := func() bool {
				return p.Libraries(j.PID) != "" && p.Libraries(j.PID) != "0" && (c.want == 0 || p.Has(j.PID, "XGBoosterUpdateOneIter"))
			}
			until(t, p, "looked into", looked)
			j.Do("25")
			got := uint64(0)
			for _, tick := range read(t, p, target.Key)[target.Key] {
				got += tick.Count
			}
			if missing := p.Missing(target.Key); got != c.want || len(missing) > 0 {
				t.Errorf("%d rounds, want %d; missing %q", got, c.want, missing)
			}
		})
	}
}

// TestEachRowIsCounted: on libraries of ours that export the names of the table.
func TestEachRowIsCounted(t *testing.T) {
	p := newProbe(t)
	dir := t.TempDir()
	target := uprobetest.Cgroup(t, "rows")
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	j := uprobetest.Start(t, target, uprobetest.Build(t, dir, "job", "job"))
	var want []probes.Ticks
	calls := map[string]int{}
	for i, e := range probes.CountedEvents() {
		var names []string
		total := 0
		for _, group := range e.Functions {
			for _, name := range group {
				name = strings.Replace(name, "*", "v", 1)
				names, calls[name] = append(names, name), i+1
			}
			total += i + 1 // of a group the most
		}
		j.Do("load %s", library(t, dir, fmt.Sprintf("lib%s%d.so", e.Library, i), "", names...))
		want = append(want, probes.Ticks{Source: e.Source, TGID: j.PID, Count: uint64(total)})
	}
	until(t, p, "found", func() bool {
		for name := range calls {
			if !p.Has(j.PID, name) {
				return false
			}
		}
		return true
	})
	for name, n := range calls {
		j.Do("call %s %d", name, n)
	}
	slices.SortFunc(want, compareTicks)
	if diff := cmp.Diff(want, read(t, p, "rows")["rows"]); diff != "" {
		t.Error(diff)
	}
}
