package agent

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
)

// A sample that shows another setting has the container read again at the next tick;
// the first one, and use, do not.
func TestSampleTellsOfAForeignSetting(t *testing.T) {
	at := func(quotaUs int64, weight, used uint64) *probes.Cgroup {
		return &probes.Cgroup{CPUUsageNs: used, CPUWeight: weight, MemoryLimit: -1,
			Throttling: []probes.Throttling{{QuotaUs: quotaUs, PeriodUs: 100_000, Periods: used}}}
	}
	x := &tracked{}
	for i, step := range []struct {
		g     *probes.Cgroup
		stale bool
	}{
		{at(-1, 1024, 1), false}, {at(-1, 1024, 2), false}, {nil, false}, {at(50_000, 1024, 3), true}, {at(50_000, 1024, 4), false}, {at(50_000, 512, 5), true},
	} {
		x.stale = false
		if x.noteSetting(step.g); x.stale != step.stale {
			t.Errorf("sample %d: to be read again: %v, want %v", i, x.stale, step.stale)
		}
	}
}

// What is tuned, and what trimtab still holds, is read back as often as before.
func TestAtStake(t *testing.T) {
	tuned, watched, held := &tracked{watched: true}, &tracked{watched: true}, &tracked{}
	tuned.enrolment.Mode, watched.enrolment.Mode = policies.ModeTune, policies.ModeObserve
	held.standing.Original = runtime.Values{runtime.KnobCPUWeight: "1024"}
	for x, want := range map[*tracked]bool{tuned: true, watched: false, held: true} {
		if got := x.atStake(); got != want {
			t.Errorf("%+v: at stake %v, want %v", x.enrolment, got, want)
		}
	}
}
