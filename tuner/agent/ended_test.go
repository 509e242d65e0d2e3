package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/originals"
	"github.com/trimtab/trimtab/tuner/state"
)

// storing keeps what it is told beyond a container's life, as Docker does.
type storing struct {
	*runtimetest.Fake
	mu     sync.Mutex
	record runtime.Values
}

func (s *storing) Stores(context.Context, runtime.Container) bool { return true }

func (s *storing) Stored(context.Context, runtime.Container) (runtime.Values, *runtime.Container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Clone(), nil, nil
}

func (s *storing) Store(_ context.Context, _ runtime.Container, set runtime.Values) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.record, set)
	return nil
}

func (s *storing) Apply(ctx context.Context, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error {
	return errors.Join(s.Fake.Apply(ctx, c, set, inFlight...), s.Store(ctx, c, set))
}

// TestRecordOfAnEndedContainerHasItsTeam: what its engine had stored goes back after its end, and the record of that is
// its team's. Nothing is kept of it then.
func TestRecordOfAnEndedContainerHasItsTeam(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		values := runtimetest.DefaultValues()
		values[runtime.KnobCPUQuota] = starvedQuota
		c := n.engine.Add(runtime.Container{Name: "train", Labels: map[string]string{"trimtab.mode": "tune", "trimtab.team": "vision"}}, values)
		engine := &storing{Fake: n.engine, record: values.Clone()}
		d := n.start(func(o *Options) {
			o.Actuator = actuator.New(actuator.Options{Engines: map[string]actuator.Engine{n.engine.Name(): engine},
				Store: originals.New(originals.Options{Dir: n.dir}), Logger: slog.New(slog.DiscardHandler)})
		})
		d.until("train", "a loan", isChanged)
		n.engine.Remove(c.ID.Container)
		time.Sleep(5 * time.Second)
		all, err := n.history.Query(t.Context(), history.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		back := 0
		for _, r := range all {
			if r.Kind == state.RecordRestore {
				back++
			}
			if r.Key == c.Key() && r.Team != "vision" {
				t.Errorf("of no team: %+v", r)
			}
		}
		if back == 0 {
			t.Errorf("nothing went back: %+v", all)
		}
		d.stop(false)
		if len(d.endedTeams) != 0 {
			t.Errorf("kept of containers that ended: %v", d.endedTeams)
		}
	})
}
