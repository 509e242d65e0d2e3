package main

import (
	"context"
	"debug/elf"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/built"
	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
	"github.com/trimtab/trimtab/test/workload"
)

func TestMain(m *testing.M) {
	fusetest.Main()
	asChild(os.Args)
	os.Exit(m.Run())
}

// needPrograms skips the test where there are not the programs, and rights, for an engine of its own.
func needPrograms(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs Docker and root, to run an engine of its own")
	}
	for _, name := range append(ctrd.Programs(), "docker", "dockerd") {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs Docker: %v", err)
		}
	}
}

// needWorld makes one with a job, or skips the test.
func needWorld(t *testing.T) (*world, *job, *strings.Builder) {
	t.Helper()
	needPrograms(t)
	if self, err := elf.Open("/proc/self/exe"); err != nil || slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("needs CGO_ENABLED=0: the jobs are this program, in an image without libraries")
	}
	binary, err := built.Trimtab(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	w, err := newWorld(t.Context(), options{binary: binary, storage: "overlay2", seed: 1}, out)
	t.Cleanup(func() {
		if err := w.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(out)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	j, err := w.startJob(t.Context(), jobSpec{name: "steps", mode: "tune", config: hostConfig{quota: 12000, period: 100_000, shares: 512, memory: 256 << 20},
		args: []string{"/chaos", childStep, "10", "40"}, processes: 1 + workers})
	if err != nil {
		t.Fatal(err)
	}
	return w, j, out
}

// breaker breaks laws in a world in which nobody else changes anything.
type breaker struct {
	*testing.T
	w *world
	j *job
}

// want holds which laws were told broken since the last time.
func (b breaker) want(when string, laws ...string) {
	b.Helper()
	var got []string
	for _, v := range b.w.violations {
		got = append(got, v.law)
	}
	b.w.violations = nil
	if !slices.Equal(got, laws) {
		b.Errorf("%s: %q, want %q", when, got, laws)
	}
}

// put writes a quota into the control group's file.
func (b breaker) put(quota string) {
	b.Helper()
	file := filepath.Join(b.j.cgroup.Dir("cpu"), "cpu.cfs_quota_us")
	if b.j.cgroup.V1["cpu"] == "" {
		file, quota = filepath.Join(b.j.cgroup.Unified, "cpu.max"), quota+" 100000"
	}
	if err := os.WriteFile(file, []byte(quota), 0); err != nil {
		b.Fatal(err)
	}
}

// TestBrokenLawsAreTold: what is broken on purpose is found, each by its law and nothing
// else; and nothing is found before and after.
func TestBrokenLawsAreTold(t *testing.T) {
	w, j, _ := needWorld(t)
	b := breaker{t, w, j}
	if err := w.killed(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.offline(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.look(1)
	w.wantRestored(1, "the beginning")
	b.want("nothing is broken")
	b.limits()
	b.owners()
	victim := j.were[len(j.were)-1]
	if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for slices.Contains(j.processes(), victim) { // the signal is on its way
		_ = workload.Sleep(t.Context(), betweenReadings)
	}
	w.look(1)
	b.want("a killed process", lawProcesses)
}

func (b breaker) limits() {
	b.put("9999")
	b.w.look(1)
	b.want("a value that nobody recorded", lawLimits)
	b.w.look(1)
	b.want("the same, told already")
	b.w.wantRestored(1, "a restore that left it")
	b.want("a restore that left it", lawRestored)
	if err := b.w.forge(b.j); err != nil {
		b.Fatal(err)
	}
	b.w.look(1)
	b.want("a wrong original", lawOriginals)
	if err := b.w.note(b.Context(), &job{id: b.j.id, record: b.j.record}, 1); !errors.Is(err, errSoon) {
		b.Errorf("a job that trimtab has changed already is noted: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(b.w.below, "originals")); err != nil {
		b.Fatal(err)
	}
	b.put("12000")
	b.w.look(1)
	b.want("all is well again")
}

func (b breaker) owners() {
	own := func(says runtime.Value, quota string) {
		b.Helper()
		lost, err := b.w.own(b.j, written{runtime.KnobCPUQuota, says}, func() error { b.put(quota); return nil })
		if lost != 0 || err != nil {
			b.Fatal(lost, err)
		}
		b.w.look(1)
	}
	own("13000 100000", "13000")
	b.want("an owner's own write")
	own("14000 100000", "9999")
	b.want("an owner's write that did not last", lawLimits)
	b.put("13000")
	b.w.look(1)
	b.want("the owner's value is back")
}

// TestAStoppedDaemonIsTold: the watch finds that a daemon stands still.
func TestAStoppedDaemonIsTold(t *testing.T) {
	w, _, _ := needWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); (&watch{w: w}).run(ctx) }()
	defer func() { stop(); <-ended }()
	if err := w.daemon.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	told := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.violations, func(b breach) bool { return b.law == lawTicks })
	}
	for end := time.Now().Add(time.Minute); !told() && time.Now().Before(end); {
		_ = workload.Sleep(t.Context(), ticksEvery)
	}
	if err := w.daemon.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !told() {
		t.Error("a daemon that stands still was not told of")
	}
}

func TestDrawReachesEveryFault(t *testing.T) {
	seen := map[string]bool{}
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		seen[draw(faults(), r).name] = true
	}
	if len(seen) != len(faults()) {
		t.Errorf("%d of %d faults are drawn", len(seen), len(faults()))
	}
}

// TestEachFaultComesFirst: with -each no fault is left to chance, and a seed has one order.
func TestEachFaultComesFirst(t *testing.T) {
	order := func(seed uint64, each bool) (out []string) {
		w := &world{o: options{each: each}, random: rand.New(rand.NewPCG(seed, 0))}
		for _, f := range w.first(w.chosen()) {
			out = append(out, f.name)
		}
		return out
	}
	w := &world{o: options{only: "disk f,kill shim"}}
	var some []string
	for _, f := range w.chosen() {
		some = append(some, f.name)
	}
	if want := []string{"kill shim", "disk full", "disk fails to sync"}; !slices.Equal(some, want) {
		t.Errorf("of several names %q are taken, want %q", some, want)
	}
	first := order(125, true)
	if !slices.Equal(first, order(125, true)) || slices.Equal(first, order(126, true)) {
		t.Error("the order is not the seed's")
	}
	if none := order(125, false); none != nil {
		t.Errorf("without -each: %q", none)
	}
	slices.Sort(first)
	if n := len(slices.Compact(first)); n != len(faults())-1 { // the clock is set with -clock only
		t.Errorf("%d of %d faults come", n, len(faults())-1)
	}
}
