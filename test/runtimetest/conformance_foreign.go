package runtimetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// foreignSet is one knob, or two that go together, with two values that somebody sets.
type foreignSet struct {
	name         string
	first, later runtime.Values
}

// testForeign: for each pair of knobs, a foreign write of one leaves our value of
// the other, and our next write leaves the foreign value.
func testForeign(t *testing.T, s suite) {
	sets := usualSets()
	for _, theirs := range sets {
		for _, ours := range sets {
			if theirs.name == ours.name {
				continue
			}
			t.Run(fmt.Sprintf("their %s, our %s", theirs.name, ours.name), func(t *testing.T) {
				s.tally.count(t)
				c := s.start(t, Spec{CPUs: 0.5})
				has := s.read(t, c)
				needTwoCPUs(t, c, has)
				if s.Refuses != nil && s.Refuses(Spec{CPUs: 0.5}, ours.first) {
					t.Skip("needs a write path that can set it")
				}
				s.apply(t, c, without(ours.first, has), nil)
				first := s.foreign(t, c, without(theirs.first, has))
				s.stands(t, c, without(ours.first, has))
				s.stands(t, c, first)
				s.apply(t, c, without(ours.later, has), nil)
				s.stands(t, c, first)
				later := s.foreign(t, c, without(theirs.later, has))
				s.stands(t, c, without(ours.later, has))
				s.stands(t, c, later)
			})
		}
	}
}

func needTwoCPUs(t *testing.T, c runtime.Container, has runtime.Values) {
	t.Helper()
	list := has[runtime.KnobCpuset]
	if list == "" { // unset, on v2
		list = parentCPUs(t, c)
	}
	if cpus, _ := runtime.ParseCPUList(string(list)); len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
}

// usualSets are the knobs, which every engine's own tool can set.
func usualSets() []foreignSet {
	return []foreignSet{
		{"weight", one(runtime.KnobCPUWeight, "700"), one(runtime.KnobCPUWeight, "900")},
		{"quota", one(runtime.KnobCPUQuota, "70000 100000"), one(runtime.KnobCPUQuota, "90000 100000")},
		{"cpuset", one(runtime.KnobCpuset, "0"), one(runtime.KnobCpuset, "0-1")},
		{"memory", memory(70*mib, 140*mib), memory(90*mib, 180*mib)},
	}
}

// foreign sets values by the engine's own tool and returns those that are to stand: what was
// set, but for a weight on v2, where tools take shares and runtimes convert them in ways of
// their own; there it is what came of it, which must be another one than before.
func (s suite) foreign(t *testing.T, c runtime.Container, set runtime.Values) runtime.Values {
	t.Helper()
	before := s.read(t, c)[runtime.KnobCPUWeight]
	s.Foreign(t, c, set)
	if _, ok := set[runtime.KnobCPUWeight]; !ok || c.Cgroup.Mode != runtime.CgroupV2 {
		return set
	}
	set = set.Clone()
	if set[runtime.KnobCPUWeight] = s.read(t, c)[runtime.KnobCPUWeight]; set[runtime.KnobCPUWeight] == before {
		t.Errorf("%s stands at %q after a foreign write of another", runtime.KnobCPUWeight, before)
	}
	return set
}

// testMeanwhile: what somebody sets by hand while we write another knob stands, though our write
// carries all values that it read before. What stands for a moment alone before ours comes over
// it is lost, one of 480; without looking it was nine of ten.
func testMeanwhile(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{CPUs: 0.5, MemoryBytes: 64 * mib})
	has := s.read(t, c)
	lost, meanwhile := 0, 0
	for round := range int64(60) {
		ours, theirs := without(memory((70+round)*mib, (140+round)*mib), has), runtime.Quota(60000+2000*(round%20), runtime.DefaultPeriodUs)
		var wait sync.WaitGroup
		var done atomic.Bool
		wait.Go(func() {
			if err := s.try(t, c, ours); err != nil {
				t.Errorf("Apply %v: %v", ours, err)
			}
			done.Store(true)
		})
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		ByHand(t, c, runtime.KnobCPUQuota, theirs)
		if !done.Load() {
			meanwhile++
		}
		wait.Wait()
		s.stands(t, c, ours)
		if now := s.read(t, c)[runtime.KnobCPUQuota]; now != theirs {
			t.Logf("%s stands, %s was set", now, theirs)
			lost++
		}
	}
	t.Logf("%d of 60 quotas were set while we wrote, of which %d are lost", meanwhile, lost)
	if lost > max(2, meanwhile/8) {
		t.Errorf("%d of %d quotas set by hand while we wrote are lost", lost, meanwhile)
	}
}

// ByHand sets a value as an administrator would who has no tool of the engine's: by
// the property where systemd keeps the control group and has one, else in its file.
func ByHand(t *testing.T, c runtime.Container, knob runtime.Knob, value runtime.Value) {
	t.Helper()
	file, property := "", ""
	text := string(value)
	switch knob {
	case runtime.KnobCPUQuota:
		file, property = "cpu.max", "CPUQuota"
		if c.Cgroup.Mode != runtime.CgroupV2 {
			file = "cpu.cfs_quota_us"
			text, _, _ = strings.Cut(text, " ")
		}
	default:
		t.Fatalf("nobody sets %s by hand here", knob)
	}
	controller, _, _ := strings.Cut(file, ".")
	dir := c.Cgroup.Dir(controller)
	if unit := filepath.Base(dir); property != "" && strings.HasSuffix(unit, ".scope") {
		if cpus, ok := value.CPUs(); ok && knob == runtime.KnobCPUQuota {
			text = fmt.Sprintf("%.0f%%", 100*cpus)
		}
		set := exec.Command("systemctl", "set-property", "--runtime", unit, property+"="+text)
		if out, err := set.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", set.Args, err, out)
		}
		return
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// testPIDs: the limit of processes, which is no knob of ours, is its owner's, then whoever's
// who set it last: runc replaces what it remembers of it at each update that does not name it.
func testPIDs(t *testing.T, s suite) {
	s.tally.count(t)
	spec := Spec{CPUs: 0.5, PIDs: 100}
	c := s.start(t, spec)
	needTwoCPUs(t, c, s.read(t, c))
	stands := func(want int64, after string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(c.Cgroup.Dir("pids"), "pids.max"))
		if got := strings.TrimSpace(string(text)); err != nil || got != strconv.FormatInt(want, 10) {
			t.Errorf("pids.max is %q after %s (%v), want %d", got, after, err, want)
		}
	}
	stands(spec.PIDs, "its start")
	for i, limit := range []int64{spec.PIDs, 200, 50} {
		if i > 0 {
			s.ForeignPIDs(t, c, limit)
			stands(limit, "a foreign write of it")
		}
		for _, set := range usualSets() {
			ours := without([]runtime.Values{set.first, set.later, set.first}[i], s.read(t, c))
			if s.Refuses == nil || !s.Refuses(spec, ours) {
				s.apply(t, c, ours, nil)
				stands(limit, "our write of "+set.name)
			}
		}
		s.foreign(t, c, one(runtime.KnobCPUWeight, runtime.IntValue(int64(510+100*i))))
		stands(limit, "a foreign write of another knob")
	}
}
