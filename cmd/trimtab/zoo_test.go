package main

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/recording"
	"github.com/trimtab/trimtab/tuner/recording/play"
	"github.com/trimtab/trimtab/tuner/state"
)

// steadyTicks is how long a program must have been under its owner's quota for its class to be judged, seconds.
// `make zoo` waits for 14; in one recording here the loan came after 6.
const steadyTicks = 6

// TestZooOnRecordings judges recordings of `make zoo` as that judges programs: what stops each is its quota, and
// nothing else is to be told, nor twice of one stretch. It is what CI runs of the zoo: programs themselves
// take fifteen minutes for a third.
//
// The trap: a pool that is forked passes for loaders (docs/limits.md), and older recordings of two programs do
// not tell who was forked. So zoo-fork, zoo-go and zoo-openmp are not judged.
func TestZooOnRecordings(t *testing.T) {
	truth := map[string]policies.Class{"vision": policies.ClassInput}
	for _, name := range strings.Fields("brain exec forest go-facts grid lammps mpich openmp-facts pool shell torchrun weka words xgboost") {
		truth[name] = policies.ClassCompute
	}
	judged, wrong := 0, 0
	for name, want := range truth {
		stretches, err := starvedStretches(opened(t, filepath.Join("testdata/recordings", "zoo-"+name+".trimtab")))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(stretches) == 0 {
			t.Errorf("%s: its quota stops it for less than %d ticks", name, steadyTicks)
		}
		for _, s := range stretches {
			if judged++; s.verdict.Class != want {
				wrong++
				t.Errorf("%s: %s: %s, want %s: %s", name, s.verdict.Class, s.verdict.Cause, want, s.verdict.Why)
			}
			if s.told > 1 {
				t.Errorf("%s: %d verdicts are told while nothing changes", name, s.told)
			}
		}
	}
	t.Logf("zoo, of recordings: programs %d stretches %d wrong-class %d", len(truth), judged, wrong)
}

// stretch is a time in which a program had its owner's quota and nothing changed.
type stretch struct {
	ticks, told int
	verdict     policies.Verdict // that was shown last
}

// starvedStretches replays a recording and returns those that are long enough.
func starvedStretches(r *recording.Reader) (out []stretch, err error) {
	c, err := play.New(r, builtin)
	if err != nil {
		return nil, err
	}
	var open stretch
	var quota runtime.Value
	end := func() {
		if open.ticks >= steadyTicks {
			out = append(out, open)
		}
		open = stretch{}
	}
	for {
		kind, raw, err := c.Next()
		switch {
		case errors.Is(err, io.EOF):
			end()
			return out, nil
		case err != nil:
			return nil, err
		case kind != "tick":
			continue
		}
		t, err := c.Replay(raw)
		if err != nil {
			return nil, err
		}
		var s state.Snapshot
		c.Show(&s)
		i := slices.IndexFunc(s.Containers, func(v state.Container) bool { return v.Watched && strings.HasPrefix(v.Name, "zoo-") })
		if i < 0 { // not started yet, or ended
			end()
			continue
		}
		v := s.Containers[i]
		if is := v.Now[runtime.KnobCPUQuota]; is != quota {
			end()
			quota = is
		}
		if cpus, limited := quota.CPUs(); !limited || cpus > 0.6 || len(v.Changed) > 0 {
			end()
			continue
		}
		open.ticks++
		open.verdict = v.Verdict
		for _, d := range t.Decision.Records {
			if d.Kind == state.RecordVerdict && d.Name == v.Name {
				open.told++
			}
		}
	}
}
