package profiles

import (
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
)

// readings gives a run seconds of a rate, and counts how often it is told slower.
func readings(r *Run, from, seconds int, rate float64) (told int) {
	for i := from; i < from+seconds; i++ {
		if r.Rate("loop", observe.RateSample{StartNs: int64(i) * 1e9, EndNs: int64(i+1) * 1e9, Rate: rate}, func() End { return End{} }) != nil {
			told++
		}
	}
	return told
}

// paced is a store in which a job ran eight times, at 20 steps per second, 50 blocks long.
func paced(s Start) *Store {
	b := NewStore()
	for i := range 8 {
		e := endOf(s, string(rune('a'+i)), 0)
		e.Pace = Pace{Source: "loop", Rate: 20, Spread: 0.01, Blocks: 50, Slowest: 19.8}
		b.End(0, s, "train", e)
	}
	return b
}

// A run is told slower once, whatever it does later; it counts as slower until it is not.
func TestSlowerIsToldOnce(t *testing.T) {
	s := startOf("train.py")
	var r Run
	r.Begin(paced(s), &s, "key", "", 0)
	told := readings(&r, 0, 20, 17)
	if told != 1 || r.Show().Slower < 0.1 {
		t.Fatalf("told %d times, %+v", told, r.Show())
	}
	for i := range 4 { // to and fro
		told += readings(&r, 20+10*i, 5, 18.3) + readings(&r, 25+10*i, 5, 17)
		if r.Show().Slower == 0 {
			t.Errorf("no longer slower: %+v", r.Show())
		}
	}
	r.Written(runtime.KnobCPUQuota, 3)
	told += readings(&r, 60, 20, 17)
	if readings(&r, 80, 10, 20); told != 1 || r.Show().Slower != 0 {
		t.Errorf("told %d times, %+v", told, r.Show())
	}
}

// Nobody knows what comes later in a run than any before it came to.
func TestNotJudgedBeyondWhatRan(t *testing.T) {
	s := startOf("train.py")
	var r Run
	r.Begin(paced(s), &s, "key", "", 0)
	if readings(&r, 0, 110, 20); readings(&r, 110, 60, 10) != 0 {
		t.Errorf("told: %+v", r.Show())
	}
	var again Run // a raise is another pace, and yet as late in the run
	again.Begin(paced(s), &s, "key", "", 0)
	readings(&again, 0, 110, 20)
	again.Written(runtime.KnobCPUQuota, 3)
	if readings(&again, 110, 60, 10) != 0 {
		t.Errorf("told: %+v", again.Show())
	}
}
