package agent

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/state"
)

// told are receivers that keep what they are offered.
type told struct {
	mu      sync.Mutex
	records []state.Record
}

func (r *told) Offer(records []state.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, records...)
}

func (r *told) Receivers() []state.Receiver {
	return []state.Receiver{{Part: state.Part{Name: "webhook"}}}
}

// Receivers are told what history has, no more and no less, up to what the end restores; and all
// of it where the disk refuses.
func TestReceiversAreToldWhatIsRecorded(t *testing.T) {
	for _, full := range []bool{false, true} {
		bubble(t, func(t *testing.T, n *node) {
			if full {
				n.history.err = errors.New("no space left")
			}
			r := new(told)
			n.job("train")
			d := n.start(func(o *Options) { o.Receivers = r })
			d.until("train", "a settled loan", isSettled)
			if shown := d.Snapshot().Daemon.Receivers; len(shown) != 1 || shown[0].Name != "webhook" {
				t.Errorf("shown: %+v", shown)
			}
			d.stop(false)
			if !full {
				if diff := cmp.Diff(n.history.records, r.records); diff != "" {
					t.Error(diff)
				}
			}
			for _, kind := range []state.RecordKind{state.RecordLoan, state.RecordRestore} {
				if !slices.ContainsFunc(r.records, func(r state.Record) bool { return r.Kind == kind }) {
					t.Errorf("disk full: %v: nobody was told of a %s", full, kind)
				}
			}
		})
	}
}
