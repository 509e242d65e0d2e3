package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// Spec is what the owner of a container asked for; zero means nothing.
type Spec struct {
	CPUs                   float64 // as --cpus, which Docker stores as NanoCPUs
	QuotaUs, PeriodUs      int64   // as --cpu-quota and --cpu-period
	MemoryBytes, SwapBytes int64   // swap counts memory and swap, as --memory-swap
	HoldBytes              int64   // so much memory is in use from the start on, and cannot be reclaimed
	CacheBytes             int64   // so much page cache is
	NVIDIA                 bool    // the device rule "c 195:* rwm"
	PIDs                   int64   // as --pids-limit
	Parent                 string  // a control group of that name above it, as --cgroup-parent; with systemd's driver a slice
}

// Command is what the container runs: nothing, or busybox holding memory without using
// the CPU.
func (s Spec) Command() []string {
	switch {
	case s.HoldBytes > 0: // dd fills its buffer, then waits for a reader that never comes
		return []string{"sh", "-c", fmt.Sprintf("dd if=/dev/zero bs=%d | sleep 1000000", s.HoldBytes)}
	case s.CacheBytes > 0:
		return []string{"sh", "-c", fmt.Sprintf("dd if=/dev/zero of=/cached bs=%d count=%d && sync && exec sleep 1000000", mib, s.CacheBytes/mib)}
	}
	return []string{"sleep", "1000000"}
}

// Subject is an engine under test, by one of its write paths.
type Subject struct {
	Engine runtime.Engine
	// WritePath and Versions name this run in the table of `make test-runtimes`.
	WritePath, Versions string
	// Start runs a container that the engine knows, and removes it after the test.
	Start func(t *testing.T, spec Spec) runtime.Container
	// Foreign sets values as a person at the engine's own tool would.
	Foreign func(t *testing.T, c runtime.Container, set runtime.Values)
	// ForeignPIDs sets the limit of processes likewise, which is no knob of ours.
	ForeignPIDs func(t *testing.T, c runtime.Container, n int64)
	// Preflight says whether the container's GPU access outlives whatever is written, and why not.
	Preflight func(t *testing.T, c runtime.Container) (green bool, why string)
	// Pause, Unpause, Stop and Restart act on the container; Restart returns its new life.
	Pause, Unpause, Stop func(t *testing.T, c runtime.Container)
	Restart              func(t *testing.T, c runtime.Container) runtime.Container
	// Remove removes the record of a stopped container; nil: stopping did.
	Remove func(t *testing.T, c runtime.Container)
	// Lister is another engine over the same runtime, whose Run is free.
	Lister runtime.Engine
	// InMemory: there is no kernel below it, so what stands in control groups is not asked.
	InMemory bool
	// Refuses tells what this write path cannot express; the suite then wants ErrRefused
	// and unchanged values. nil: it can do all.
	Refuses func(spec Spec, set runtime.Values) bool
}

const mib = 1 << 20

// callLimit bounds each call of the suite: engines must not hang.
const callLimit = 60 * time.Second

// Conformance checks what runtime.Engine promises about Read and Apply.
// newSubject is called for each part.
func Conformance(t *testing.T, newSubject func(t *testing.T) Subject) {
	parts := []part{
		{"fields", testFields},
		{"conflicts", testConflicts},
		{"bad values", testBadValues},
		{"memory in use", testMemoryInUse},
		{"page cache", testPageCache},
		{"paused", testPaused},
		{"stopped", testStopped},
		{"restarted", testRestarted},
		{"restarted meanwhile", testRestartedMeanwhile},
		{"foreign writes", testForeign},
		{"concurrent writes", testConcurrent},
		{"cancelled", testCancelled},
	}
	var counted tally
	var last Subject
	run := func(parts ...part) {
		for _, part := range parts {
			t.Run(part.name, func(t *testing.T) {
				last = newSubject(t)
				part.run(t, suite{last, &counted})
			})
		}
	}
	run(parts...)
	if !last.InMemory {
		run(part{"device rules", testDeviceRules}, part{"set by hand meanwhile", testMeanwhile}, part{"pids limit", testPIDs}, part{"a parent's quota", testParentQuota},
			part{"systemd writes anew", testSystemdWritesAnew})
	}
	counted.report(t, last)
}

// part is a part of the suite.
type part struct {
	name string
	run  func(*testing.T, suite)
}

type suite struct {
	Subject
	tally *tally
}

// start is Start, noting layout and driver for the table.
func (s suite) start(t *testing.T, spec Spec) runtime.Container {
	t.Helper()
	c := s.Start(t, spec)
	s.tally.mu.Lock()
	s.tally.mode, s.tally.driver = c.Cgroup.Mode, "cgroupfs"
	if strings.HasSuffix(c.Cgroup.Dir("cpu"), ".scope") {
		s.tally.driver = "systemd"
	}
	s.tally.mu.Unlock()
	return c
}

// read returns all values that stand.
func (s suite) read(t *testing.T, c runtime.Container) runtime.Values {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	values, err := s.Engine.Read(ctx, c)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return values
}

func (s suite) try(t *testing.T, c runtime.Container, set runtime.Values) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	return s.Engine.Apply(ctx, c, set)
}

// apply applies and checks: what was set stands, all else is as it was. want
// replaces the values that read back otherwise than asked.
func (s suite) apply(t *testing.T, c runtime.Container, set, want runtime.Values) {
	t.Helper()
	before := s.read(t, c)
	if err := s.try(t, c, set); err != nil {
		t.Fatalf("Apply %v: %v", set, err)
	}
	expect := before.Clone()
	for _, values := range []runtime.Values{set, want} {
		for knob, value := range values {
			expect[knob] = value
		}
	}
	if expect[runtime.KnobCpuset] == "" && before[runtime.KnobCpuset] != "" { // no write path takes one back: it gets what unset means
		expect[runtime.KnobCpuset] = parentCPUs(t, c)
	}
	s.stands(t, c, expect)
}

func parentCPUs(t *testing.T, c runtime.Container) runtime.Value {
	t.Helper()
	list, err := cgroup.ParentCPUs(c.Cgroup)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// stands checks values that stand, given the knobs' roundings.
func (s suite) stands(t *testing.T, c runtime.Container, want runtime.Values) {
	t.Helper()
	got := s.read(t, c)
	for knob, value := range want {
		if !knob.Same(value, got[knob]) {
			t.Errorf("%s stands at %q, want %q", knob, got[knob], value)
		}
	}
}

// refused checks that a set is refused and changes nothing.
func (s suite) refused(t *testing.T, c runtime.Container, set runtime.Values) {
	t.Helper()
	before := s.read(t, c)
	if err := s.try(t, c, set); !errors.Is(err, runtime.ErrRefused) {
		t.Errorf("Apply %v: %v, want ErrRefused", set, err)
	}
	s.stands(t, c, before)
}

// without returns a set less the knobs that this host lacks.
func without(set, has runtime.Values) runtime.Values {
	out := make(runtime.Values)
	for knob, value := range set {
		if _, ok := has[knob]; ok {
			out[knob] = value
		}
	}
	return out
}

func memory(limit, swap int64) runtime.Values {
	return runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(limit), runtime.KnobMemorySwap: runtime.IntValue(swap)}
}

func one(knob runtime.Knob, value runtime.Value) runtime.Values { return runtime.Values{knob: value} }

// testFields takes each field up, down, to unlimited and back to unset, from each
// kind of start.
func testFields(t *testing.T, s suite) {
	unlimited := runtime.Values{runtime.KnobMemoryLimit: runtime.ValueMax, runtime.KnobMemorySwap: runtime.ValueMax}
	quotas := []runtime.Values{
		one(runtime.KnobCPUQuota, "50000 100000"), one(runtime.KnobCPUQuota, "150000 100000"),
		one(runtime.KnobCPUQuota, "80000 200000"), one(runtime.KnobCPUQuota, "30000 100000"),
		one(runtime.KnobCPUQuota, "max 100000"), one(runtime.KnobCPUQuota, "1000 100000"), one(runtime.KnobCPUQuota, "60000 100000"),
	}
	memories := []runtime.Values{
		memory(64*mib, 128*mib), memory(256*mib, 512*mib), memory(32*mib, 32*mib), unlimited, memory(48*mib, 96*mib),
	}
	cases := []struct {
		name  string
		spec  Spec
		steps []runtime.Values
	}{
		{"weight", Spec{}, []runtime.Values{one(runtime.KnobCPUWeight, "2048"), one(runtime.KnobCPUWeight, "300"), one(runtime.KnobCPUWeight, "2"),
			one(runtime.KnobCPUWeight, "10000"), one(runtime.KnobCPUWeight, "1024")}},
		{"quota from none", Spec{}, quotas},
		{"quota from quota", Spec{QuotaUs: 40_000, PeriodUs: 50_000}, quotas},
		{"quota from cpus", Spec{CPUs: 0.5}, quotas},
		{"cpuset", Spec{}, []runtime.Values{one(runtime.KnobCpuset, "0"), one(runtime.KnobCpuset, "")}},
		{"memory from none", Spec{}, memories},
		{"memory from memory", Spec{MemoryBytes: 64 * mib}, memories},
		{"memory from memory and swap", Spec{MemoryBytes: 64 * mib, SwapBytes: 80 * mib}, memories},
		{"swap", Spec{MemoryBytes: 64 * mib, SwapBytes: 80 * mib}, []runtime.Values{
			one(runtime.KnobMemorySwap, runtime.IntValue(128*mib)), one(runtime.KnobMemorySwap, runtime.IntValue(72*mib)), one(runtime.KnobMemorySwap, runtime.ValueMax)}},
		{"several at once", Spec{CPUs: 1}, []runtime.Values{
			{runtime.KnobCPUWeight: "700", runtime.KnobCPUQuota: "120000 100000", runtime.KnobCpuset: "0", runtime.KnobMemoryLimit: "67108864", runtime.KnobMemorySwap: "67108864"},
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s.tally.count(t)
			c := s.start(t, tc.spec)
			start := s.read(t, c)
			for _, step := range tc.steps {
				if step = without(step, start); len(step) == 0 {
					t.Skipf("needs a host with %s", tc.name)
				}
				s.step(t, c, tc.spec, step, start)
			}
			back := make(runtime.Values) // to the owner's values, all together
			for _, step := range tc.steps {
				for knob := range without(step, start) {
					back[knob] = start[knob]
				}
			}
			if s.Refuses == nil || !s.Refuses(tc.spec, back) {
				s.apply(t, c, back, nil)
			}
		})
	}
}

func (s suite) step(t *testing.T, c runtime.Container, spec Spec, set, start runtime.Values) {
	t.Helper()
	if s.Refuses != nil && s.Refuses(spec, set) {
		s.refused(t, c, set)
		return
	}
	want := runtime.Values{}
	if cpus, ok := set[runtime.KnobCpuset]; ok && cpus == "" {
		want[runtime.KnobCpuset] = start[runtime.KnobCpuset]
	}
	s.apply(t, c, set, want)
}

// testConflicts: values that contradict each other are refused as a whole; those
// that only differ in kind from the owner's are not.
func testConflicts(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{CPUs: 0.5, MemoryBytes: 64 * mib, SwapBytes: 96 * mib})
	s.apply(t, c, one(runtime.KnobCPUQuota, "45000 50000"), nil)
	if c.Cgroup.Mode == runtime.CgroupV2 {
		return // swap is counted alone there, so it contradicts nothing
	}
	if _, ok := s.read(t, c)[runtime.KnobMemorySwap]; !ok {
		return
	}
	s.refused(t, c, one(runtime.KnobMemoryLimit, runtime.IntValue(128*mib)))
	s.refused(t, c, one(runtime.KnobMemorySwap, runtime.IntValue(32*mib)))
	s.refused(t, c, memory(80*mib, 72*mib))
	s.apply(t, c, one(runtime.KnobMemoryLimit, runtime.IntValue(48*mib)), nil)
	s.apply(t, c, one(runtime.KnobMemorySwap, runtime.IntValue(48*mib)), nil)
	s.apply(t, c, memory(128*mib, 160*mib), nil)
}

func testBadValues(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{})
	for _, set := range []runtime.Values{
		one(runtime.KnobCPUWeight, "heavy"), one(runtime.KnobCPUWeight, ""), one(runtime.KnobCPUQuota, "50000"),
		one(runtime.KnobCPUQuota, "0 100000"), one(runtime.KnobCpuset, "1-0"), one(runtime.KnobMemoryLimit, "64M"),
		one(runtime.KnobCPUQuota, "10 100000"), one(runtime.KnobCpuset, "4000"), one("cpu.magic", "1"), {runtime.KnobCPUWeight: "512", runtime.KnobCPUQuota: "many 100000"},
	} {
		s.refused(t, c, set)
	}
}

func testStopped(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{})
	s.Stop(t, c)
	s.isGone(t, c)
	if s.Remove != nil {
		s.Remove(t, c)
		s.isGone(t, c)
	}
}

// testRestarted: the old life is gone, and what was set ended with it or was
// stored by the engine; either way the new life can be read and set.
func testRestarted(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{CPUs: 0.5})
	s.apply(t, c, one(runtime.KnobCPUQuota, "70000 100000"), nil)
	again := s.Restart(t, c)
	if again.Key() == c.Key() {
		t.Errorf("a restart kept the identity %s", c.Key())
	}
	s.isGone(t, c)
	s.apply(t, again, one(runtime.KnobCPUQuota, "80000 100000"), nil)
}

// testRestartedMeanwhile: writers to a life that ends under them are told so, and
// nothing else.
func testRestartedMeanwhile(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{CPUs: 0.5})
	ended := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			err := s.try(t, c, one(runtime.KnobCPUQuota, runtime.Quota(int64(50_000+i%10*1000), runtime.DefaultPeriodUs)))
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	again := s.Restart(t, c)
	if err := <-ended; !errors.Is(err, runtime.ErrGone) {
		t.Errorf("a write to a life that ended: %v, want ErrGone", err)
	}
	s.isGone(t, c)
	s.apply(t, again, one(runtime.KnobCPUQuota, "80000 100000"), nil)
}

func (s suite) isGone(t *testing.T, c runtime.Container) {
	t.Helper()
	if _, err := s.Engine.Read(t.Context(), c); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("Read of a container that is gone: %v, want ErrGone", err)
	}
	if err := s.try(t, c, one(runtime.KnobCPUWeight, "512")); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("Apply to a container that is gone: %v, want ErrGone", err)
	}
}

// testConcurrent: writers of different knobs of one container do not undo each other.
func testConcurrent(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{CPUs: 0.5})
	sets := []runtime.Values{one(runtime.KnobCPUWeight, "600"), one(runtime.KnobCPUQuota, "60000 100000"), one(runtime.KnobCpuset, "0")}
	sets = slices.DeleteFunc(sets, func(set runtime.Values) bool { return s.Refuses != nil && s.Refuses(Spec{CPUs: 0.5}, set) })
	var wg sync.WaitGroup
	for _, set := range sets {
		wg.Go(func() {
			if err := s.try(t, c, set); err != nil {
				t.Errorf("Apply %v: %v", set, err)
			}
		})
	}
	wg.Wait()
	for _, set := range sets {
		s.stands(t, c, set)
	}
}

func testCancelled(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := s.read(t, c)
	if err := s.Engine.Apply(ctx, c, one(runtime.KnobCPUWeight, "512")); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply with a cancelled context: %v", err)
	}
	s.stands(t, c, before)
}
