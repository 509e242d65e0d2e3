package main

import (
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	owners = runtime.Value("20000 100000")
	lent   = runtime.Value("90000 100000")
	theirs = runtime.Value("33000 100000")
)

func TestJudgeKnob(t *testing.T) {
	for _, c := range []struct {
		name          string
		owner, stands runtime.Value
		recorded      *originals.Knob
		want          string // the law; "": none
	}{
		{"untouched", owners, owners, nil, ""},
		{"lent and recorded", owners, lent, &originals.Knob{Original: owners, Written: lent}, ""},
		{"being written, already in the kernel", owners, lent, &originals.Knob{Original: owners, Writing: lent}, ""},
		{"being written, not yet in the kernel", owners, owners, &originals.Knob{Original: owners, Writing: lent}, ""},
		{"half of a write with another period", owners, "20000 50000", &originals.Knob{Original: owners, Writing: "45000 50000"}, ""},
		{"the owner wrote since, and trimtab has not looked", theirs, theirs, &originals.Knob{Original: owners, Written: lent}, ""},
		{"the owner's write is overwritten and its old value recorded", theirs, lent, &originals.Knob{Original: owners, Written: lent}, lawOriginals},
		{"the owner wrote what trimtab had written, and the old value would come back", lent, lent, &originals.Knob{Original: owners, Written: lent}, lawOriginals},
		{"lent and not recorded", owners, lent, nil, lawLimits},
		{"another value than the recorded", owners, theirs, &originals.Knob{Original: owners, Written: lent}, lawLimits},
		{"a wrong original", owners, lent, &originals.Knob{Original: theirs, Written: lent}, lawOriginals},
	} {
		b, broken := judgeKnob("job", runtime.KnobCPUQuota, c.owner, c.stands, c.recorded)
		if broken != (c.want != "") || b.law != c.want {
			t.Errorf("%s: %v, want %q", c.name, b, c.want)
		}
	}
}

func TestJudgeValues(t *testing.T) {
	owner := runtime.Values{runtime.KnobCPUQuota: owners, runtime.KnobCPUWeight: "512", runtime.KnobMemoryLimit: "1048576"}
	stands := runtime.Values{runtime.KnobCPUQuota: lent, runtime.KnobCPUWeight: "2"} // no memory controller any more
	file := &originals.File{Knobs: map[runtime.Knob]originals.Knob{runtime.KnobCPUQuota: {Original: owners, Written: lent}}}
	if got := judgeValues("job", owner, stands, file); len(got) != 1 || got[0].subject != "job cpu.weight" || got[0].law != lawLimits {
		t.Errorf("%v", got)
	}
	if got := judgeValues("job", owner, stands, nil); len(got) != 2 {
		t.Errorf("without a file: %v", got)
	}
	if got := judgeRestored("job", owner, stands); len(got) != 2 || got[0].law != lawRestored {
		t.Errorf("at the end: %v", got)
	}
	if got := judgeRestored("job", owner, owner); got != nil {
		t.Errorf("restored: %v", got)
	}
}

func TestJudgeProcesses(t *testing.T) {
	were := []process{{1, 10}, {2, 20}}
	for _, c := range []struct {
		name  string
		are   []process
		kills uint64
		want  int
	}{
		{"all there, and a new one", []process{{3, 30}, {2, 20}, {1, 10}}, 0, 0},
		{"one gone", []process{{1, 10}}, 0, 1},
		{"its PID used again", []process{{1, 10}, {2, 99}}, 0, 1},
		{"killed for memory", were, 1, 1},
	} {
		if got := judgeProcesses("job", were, c.are, c.kills); len(got) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestPersistAsksAgain(t *testing.T) {
	one, two := breach{"a", "x", "1"}, breach{"b", "y", "1"}
	for _, c := range []struct {
		name     string
		readings [][]breach
		want     []breach
		pauses   int
	}{
		{"nothing", [][]breach{nil}, nil, 0},
		{"gone at the second look", [][]breach{{one}, nil}, nil, 1},
		{"another one each time", [][]breach{{one}, {two}}, nil, 1},
		{"it stays, with newer evidence", [][]breach{{one, two}, {{"a", "x", "2"}}, {{"a", "x", "3"}, two}}, []breach{{"a", "x", "3"}}, 2},
	} {
		i, pauses := 0, 0
		got := persist(3, func() []breach { i++; return c.readings[i-1] }, func() { pauses++ })
		if !slices.Equal(got, c.want) || pauses != c.pauses {
			t.Errorf("%s: %v after %d pauses", c.name, got, pauses)
		}
	}
}

func TestFresh(t *testing.T) {
	one, two := breach{"a", "x", "1"}, breach{"b", "y", "1"}
	if got := fresh([]breach{{"a", "x", "2"}, two}, []breach{one}); !slices.Equal(got, []breach{two}) {
		t.Errorf("%v", got)
	}
	if got := fresh([]breach{one}, nil); !slices.Equal(got, []breach{one}) { // told, gone, and here again
		t.Errorf("%v", got)
	}
}

func TestTickReading(t *testing.T) {
	for _, c := range []struct {
		name string
		r    tickReading
		want bool
	}{
		{"ticks", tickReading{time.Minute, time.Second, 0, time.Hour, 0}, false},
		{"just started", tickReading{5 * time.Second, 4 * time.Second, 0, time.Hour, 0}, false},
		{"stands still", tickReading{time.Minute, 2100 * time.Millisecond, 100 * time.Millisecond, time.Hour, 0}, true},
		{"waited for a CPU", tickReading{time.Minute, 4 * time.Second, 100 * time.Millisecond, time.Hour, 2100 * time.Millisecond}, false},
		{"waited for a CPU, and stood still besides", tickReading{time.Minute, 4 * time.Second, 100 * time.Millisecond, time.Hour, 1900 * time.Millisecond}, true},
		{"the machine stood still", tickReading{time.Minute, 4 * time.Second, time.Second, time.Hour, 0}, false},
		{"the clock was set forward just now", tickReading{time.Minute, 30 * time.Hour, 0, time.Second, 0}, false},
		{"stands still since the clock was set forward", tickReading{time.Minute, 30 * time.Hour, 0, 3 * time.Second, 0}, true},
		{"stands still since the clock was set back", tickReading{time.Minute, -30 * time.Hour, 0, 3 * time.Second, 0}, true},
		{"ticks by the new clock", tickReading{time.Minute, time.Second, 0, 3 * time.Second, 0}, false},
	} {
		if got := c.r.broken(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// node is a reading of a second on two CPUs: a neighbour that always wants its 0.2, and a
// borrower that owns as much.
func node(neighbour, borrower, idle float64) rightsReading {
	return rightsReading{length: time.Second, cpus: 2, idle: idle, shares: []share{
		{"neighbour", 0.2, neighbour, true}, {"borrower", 0.2, borrower, false}}}
}

func TestRights(t *testing.T) {
	for _, c := range []struct {
		name           string
		readings       []rightsReading
		want           int
		judged, unsure time.Duration
	}{
		{"has its own", slices.Repeat([]rightsReading{node(0.2, 1.7, 0.1)}, 10), 0, 10 * time.Second, 0},
		{"a loan takes of it", slices.Repeat([]rightsReading{node(0.15, 1.8, 0.05)}, 10), 1, 10 * time.Second, 0},
		{"for five seconds only", slices.Repeat([]rightsReading{node(0.15, 1.8, 0.05)}, 5), 0, 5 * time.Second, 0},
		{"with a second in which it had its own", append(slices.Repeat([]rightsReading{node(0.15, 1.8, 0.05)}, 5),
			append([]rightsReading{node(0.2, 1.75, 0.05)}, slices.Repeat([]rightsReading{node(0.15, 1.8, 0.05)}, 5)...)...), 0, 11 * time.Second, 0},
		{"others' work takes of it", slices.Repeat([]rightsReading{node(0.15, 0.5, 0.05)}, 10), 0, 0, 10 * time.Second},
		{"nothing is lent", slices.Repeat([]rightsReading{node(0.15, 0.2, 1.6)}, 10), 0, 10 * time.Second, 0},
		{"a loan uses less than it lacks", slices.Repeat([]rightsReading{node(0.05, 0.25, 1.65)}, 10), 0, 10 * time.Second, 0},
	} {
		var r rights
		var got []breach
		for _, x := range c.readings {
			got = append(got, r.next(x)...)
		}
		if len(got) != c.want || r.judged != c.judged || r.unsure != c.unsure {
			t.Errorf("%s: %v, judged %s, unsure %s", c.name, got, r.judged, r.unsure)
		}
	}
}

func TestJudgeRecords(t *testing.T) {
	old, late := state.Record{UnixNs: 1e9, Kind: state.RecordLoan, Name: "a", Text: "lent"}, state.Record{UnixNs: 2e9, Kind: state.RecordRestore, Name: "a", Text: "back"}
	next := state.Record{UnixNs: 3e9, Kind: state.RecordLoan, Name: "a", Text: "lent again"}
	for _, c := range []struct {
		name          string
		before, after []state.Record
		want          int
	}{
		{"nothing yet", nil, nil, 0},
		{"all are there", []state.Record{old, late}, []state.Record{old, late, next}, 0},
		{"newest first", []state.Record{late, old}, []state.Record{next, late, old}, 0},
		{"the oldest went for its size", []state.Record{old, late}, []state.Record{late, next}, 0},
		{"all were too old by the clock", []state.Record{old, late}, []state.Record{next}, 1},
		{"all went", []state.Record{old, late}, nil, 1},
	} {
		if got := judgeRecords(-40*24*time.Hour, c.before, c.after); len(got) != c.want || c.want > 0 && got[0].law != lawClock {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestTheClockIsLeftAlone: what sets the machine's clock is drawn only where that was asked for.
func TestTheClockIsLeftAlone(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		w := &world{o: options{clock: allowed}}
		if got := slices.ContainsFunc(w.chosen(), func(f fault) bool { return f.name == clockName }); got != allowed {
			t.Errorf("allowed %v: drawn %v", allowed, got)
		}
	}
}
