package core

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/recording"
)

// spareMiB is what the host has free beyond what two growing jobs may have anyway.
const spareMiB = 200

// TestRecordedGrowthIsDealtAmongTwo: what a real job did that grew into its limit, lived by
// two containers at once on a host with little left: each is given half of it.
func TestRecordedGrowthIsDealtAmongTwo(t *testing.T) {
	f, err := os.Open("../../cmd/trimtab/testdata/recordings/growth.trimtab")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := recording.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	for {
		kind, raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("nobody was protected")
		}
		if err != nil {
			t.Fatal(err)
		}
		if kind != "tick" {
			continue
		}
		var in Input
		if err := json.Unmarshal(raw, &in); err != nil {
			t.Fatal(err)
		}
		limit := twice(t, c.cfg, &in)
		d := c.Step(in)
		if len(d.Apply) == 0 {
			continue
		}
		if len(d.Apply) != 2 {
			t.Fatalf("%d plans, want one for each: %+v", len(d.Apply), d.Apply)
		}
		for _, o := range d.Apply {
			to, err := bytesOf(o.Changes[0].To)
			if err != nil || math.Abs((to-limit)/mib-spareMiB/2) > 1 {
				t.Errorf("%+v, want %d MiB above %.0f", o.Changes[0], spareMiB/2, limit/mib)
			}
		}
		return
	}
}

// twice puts a second container like the recorded one into an input, allows both to be
// given memory, and leaves the host spareMiB to give; it returns their limit.
func twice(t *testing.T, cfg Config, in *Input) (limit float64) {
	t.Helper()
	i := slices.IndexFunc(in.Containers, func(c Container) bool { return strings.Contains(c.Name, "growth") })
	if i < 0 {
		return 0 // it has not started
	}
	in.Containers[i].Enrolment = allowMemory()
	one := in.Containers[i]
	other := one
	other.ID.Container, other.Name = "too"+one.ID.Container, one.Name+"-too"
	in.Containers = append(in.Containers, other)
	slices.SortFunc(in.Containers, func(a, b Container) int { return strings.Compare(a.Key(), b.Key()) })
	limit, err := bytesOf(one.Now[runtime.KnobMemoryLimit])
	if err != nil {
		t.Fatal(err)
	}
	k := slices.IndexFunc(in.Samples, func(s probes.Sample) bool { return s.Container == one.Key() })
	if k < 0 || in.Samples[k].Cgroup == nil {
		return limit
	}
	room := limit - float64(in.Samples[k].Cgroup.MemoryBytes)
	in.Host.MemAvail = uint64(cfg.ReserveMemory + cfg.ReserveMemoryShare*float64(in.Host.MemTotal) + 2*room + spareMiB*mib)
	like := in.Samples[k]
	like.Container = other.Key()
	in.Samples = append(in.Samples, like)
	slices.SortFunc(in.Samples, func(a, b probes.Sample) int { return strings.Compare(a.Container, b.Container) })
	return limit
}
