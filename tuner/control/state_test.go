package control

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

// machine reads the table of the states as people see it: a row a state, a column an event.
func machine(t *testing.T) (events []string, rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Fields(strings.ReplaceAll(line, "|", " "))
		switch {
		case strings.HasPrefix(line, "| in |"):
			events = cells[1:]
		case strings.HasPrefix(line, "|---"):
		case len(events) > 0 && len(cells) == len(events)+1:
			rows = append(rows, cells)
		case len(rows) > 0:
			return events, rows
		}
	}
	return events, rows
}

// TestMachine holds each cell.
func TestMachine(t *testing.T) {
	events, rows := machine(t)
	if len(rows) != len(allStates()) || len(events) != len(allEvents()) {
		t.Fatalf("%d states and %d events are written out, and there are %d and %d", len(rows), len(events), len(allStates()), len(allEvents()))
	}
	for _, cells := range rows {
		from := State(cells[0])
		for i, e := range events {
			want := State(cells[i+1])
			if want == "." {
				want = from
			}
			if got := from.Next(Event(e)); got != want {
				t.Errorf("%s in %s: %s, want %s", e, from, got, want)
			}
		}
		if may := from.mayTry(); may != (cells[5] == "trial") {
			t.Errorf("%s: a trial may open %v", from, may)
		}
	}
}

// TestEveryStateIsReachedAndLeft: from the first, and on to the end.
func TestEveryStateIsReachedAndLeft(t *testing.T) {
	reached := map[State]bool{StateWatched: true}
	for range allStates() {
		for from := range reached {
			for _, e := range allEvents() {
				reached[from.Next(e)] = true
			}
		}
	}
	for _, s := range allStates() {
		if !reached[s] {
			t.Errorf("%s is never reached", s)
		}
		if s != StateEnded && s.Next(EventEnded) != StateEnded {
			t.Errorf("%s outlives its container", s)
		}
	}
}

// TestStatesOfARealLife: what a job goes through that starves, is helped, yields and is resumed.
func TestStatesOfARealLife(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := started()
	var states []State
	held := false
	run(c, n, 120, func(i int, _ Decision) {
		if s := c.containers[j.c.Key()].state; len(states) == 0 || states[len(states)-1] != s {
			states = append(states, s)
		}
		switch i {
		case 40: // `trimtab restore`, and 20 s later `trimtab resume`
			j.c.Now, j.c.Original, held = runtime.Values{runtime.KnobCPUWeight: "1024", runtime.KnobCPUQuota: "40000 100000"}, nil, true
			n.results = append(n.results, Result{Kind: ResultEnded, Key: j.c.Key(), OK: true, Text: "restored by hand"})
		case 60:
			held = false
		}
		j.c.Held = held
	})
	// Of a job that was read before, watched lasts less than a tick once it is released.
	want := []State{StateWatched, StateMeasured, StateLent, StateSettled, StateYielded, StateMeasured, StateLent, StateSettled}
	if !slices.Equal(states, want) {
		t.Errorf("%v, want %v", states, want)
	}
}

// allStates lists them in the order of the picture.
func allStates() []State {
	return []State{StateWatched, StateMeasured, StateLent, StateSettled, StateTrial, StateReturned, StateYielded, StateEnded}
}

// allEvents lists them.
func allEvents() []Event {
	return []Event{EventRead, EventLent, EventEnough, EventReturned, EventOpened, EventJudged, EventYielded, EventReleased, EventEnded}
}
