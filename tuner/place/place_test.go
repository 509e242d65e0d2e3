package place

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

const gib = 1 << 30

func gpu(index int, model string, memory uint64, holders ...string) Device {
	d := Device{Device: state.Device{Index: index, UUID: fmt.Sprintf("GPU-%04d-aa", index), Name: model, MemTotal: memory}, Minor: 9 - index}
	for _, h := range holders {
		d.Holders = append(d.Holders, state.Holder{Key: h, Name: h})
	}
	return d
}

func slice(of Device, slot int) Device {
	return Device{Device: state.Device{Index: of.Index, UUID: fmt.Sprintf("MIG-%04d-%d", of.Index, slot), Parent: of.UUID, Name: of.Name + " MIG 1g", MemTotal: of.MemTotal / 7}, Minor: of.Minor, Slot: slot}
}

func labels(all []state.PlaceChoice) (out []string) {
	for _, c := range all {
		out = append(out, c.Label)
	}
	return out
}

func byModel(by map[string]float64) map[string]state.PlaceRate {
	out := map[string]state.PlaceRate{}
	for model, v := range by {
		out[model] = state.PlaceRate{How: state.RateMeasured, PerSecond: v}
	}
	return out
}

func TestRank(t *testing.T) {
	mig := gpu(4, "H", 70*gib)
	mig.Sliced = true
	held := map[string]*state.Hold{"GPU-0001-aa": {For: "other"}}
	lost := gpu(5, "fast", 80*gib)
	lost.Lost = "fell off the bus"
	for _, c := range []struct {
		name   string
		h      Host
		w      Want
		order  []string
		chosen string
	}{
		{"nothing known: free first, then memory", Host{Devices: []Device{gpu(0, "a", 8*gib), gpu(1, "b", 80*gib, "train"), gpu(2, "c", 16*gib)}}, Want{}, []string{"2", "0", "1"}, "GPU-0002-aa"},
		{"nothing known: the data sheet before memory", Host{Devices: []Device{gpu(0, "Tesla K80", 80*gib), gpu(1, "Tesla T4", 16*gib)}}, Want{}, []string{"1", "0"}, "GPU-0001-aa"},
		{"the faster free one", Host{Devices: []Device{gpu(0, "slow", 80*gib), gpu(1, "fast", 16*gib)}}, Want{Rates: byModel(map[string]float64{"slow": 5, "fast": 9})}, []string{"1", "0"}, "GPU-0001-aa"},
		{"one that is free before a faster one in use", Host{Devices: []Device{gpu(0, "slow", 80*gib), gpu(1, "fast", 16*gib, "train")}}, Want{Rates: byModel(map[string]float64{"slow": 5, "fast": 9})}, []string{"0", "1"}, "GPU-0000-aa"},
		{"as fast: the smaller, and the larger is left to others", Host{Devices: []Device{gpu(0, "large", 80*gib), gpu(1, "small", 16*gib)}}, Want{Rates: byModel(map[string]float64{"large": 5, "small": 4.9})}, []string{"1", "0"}, "GPU-0001-aa"},
		{"one that is held for another", Host{Devices: []Device{gpu(0, "a", 8*gib), gpu(1, "a", 8*gib)}, Holds: held}, Want{}, []string{"0", "1"}, "GPU-0000-aa"},
		{"too little memory is last", Host{Devices: []Device{gpu(0, "small", 8*gib), gpu(1, "large", 80*gib, "train")}}, Want{MemoryBytes: 20 * gib}, []string{"1", "0"}, ""},
		{"lost is last", Host{Devices: []Device{lost, gpu(0, "slow", 8*gib)}}, Want{}, []string{"0", "5"}, "GPU-0000-aa"},
		{"slices in place of their GPU", Host{Devices: []Device{mig, slice(mig, 0), slice(mig, 1)}, Grants: []Grant{{Name: "x", GPUs: []string{"4:0"}}}}, Want{}, []string{"4/0004-1", "4/0004-0"}, "MIG-0004-1"},
		{"given to a container that does nothing yet", Host{Devices: []Device{gpu(0, "a", 8*gib), gpu(1, "a", 8*gib)}, Grants: []Grant{{Name: "x", GPUs: []string{"GPU-0000"}}}}, Want{}, []string{"1", "0"}, "GPU-0001-aa"},
		{"given as a node", Host{Devices: []Device{gpu(0, "a", 8*gib), gpu(1, "a", 8*gib)}, Grants: []Grant{{Name: "x", GPUs: []string{"9"}, ByNode: true}}}, Want{}, []string{"1", "0"}, "GPU-0001-aa"},
		{"all given to one container: still free", Host{Devices: []Device{gpu(0, "a", 8*gib), gpu(1, "b", 8*gib)}, Grants: []Grant{{Name: "x", GPUs: []string{"all"}}}}, Want{}, []string{"0", "1"}, "GPU-0000-aa"},
		{"a UUID that a shell would act on", Host{Devices: []Device{{Device: state.Device{UUID: "GPU-$(reboot)"}}}}, Want{}, []string{"0"}, ""},
		{"no devices", Host{}, Want{}, nil, ""},
	} {
		got := Rank(c.h, c.w)
		if !slices.Equal(labels(got), c.order) {
			t.Errorf("%s: %v, want %v", c.name, labels(got), c.order)
		}
		chosen, why := Choose(got, 1, false)
		if strings.Join(chosen, ",") != c.chosen || (why == "") != (c.chosen != "") {
			t.Errorf("%s: chose %v (%q), want %q", c.name, chosen, why, c.chosen)
		}
	}
}

func TestChooseSeveral(t *testing.T) {
	h := Host{Devices: []Device{gpu(0, "a", gib), gpu(1, "b", gib), gpu(2, "b", gib), gpu(3, "a", gib, "train")}}
	ranked := Rank(h, Want{})
	for _, c := range []struct {
		n     int
		share bool
		want  string
		why   string
	}{{2, false, "GPU-0001-aa,GPU-0002-aa", ""}, {3, false, "", "no 3 devices of one model are free"}, {3, true, "", "no 3 devices of one model are free"}, {1, true, "GPU-0000-aa", ""}} {
		got, why := Choose(ranked, c.n, c.share)
		if strings.Join(got, ",") != c.want || why != c.why {
			t.Errorf("%d, share %v: %v %q", c.n, c.share, got, why)
		}
	}
	full := Rank(Host{Devices: []Device{gpu(0, "a", gib, "x", "y"), gpu(1, "a", gib, "x")}}, Want{})
	if got, _ := Choose(full, 1, true); len(got) != 1 || got[0] != "GPU-0001-aa" {
		t.Errorf("shared with the fewest: %v", got)
	}
	if got, why := Choose(full, 1, false); len(got) != 0 || why != "no device is free" {
		t.Errorf("%v %q", got, why)
	}
}

// TestNoDeviceTwice: whatever is asked for, released and ends, no device that is held is chosen
// for another, and none is withheld while a free one is left.
func TestNoDeviceTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "devices")
		var devices []Device
		for i := range n {
			devices = append(devices, gpu(i, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "model"), gib))
		}
		holds, now := Holds{}, time.Unix(1e9, 0)
		until := map[string]time.Time{}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds")) * time.Second)
				continue
			case 1:
				d := devices[rapid.IntRange(0, n-1).Draw(t, "started")]
				holds.Started(Grant{GPUs: []string{d.UUID}}, devices)
				delete(until, d.UUID)
				continue
			}
			held := map[string]*state.Hold{}
			for _, d := range devices {
				held[d.UUID] = holds.Of(d.UUID, now)
			}
			ranked := Rank(Host{Devices: devices, Holds: held}, Want{})
			got, _ := Choose(ranked, 1, rapid.Bool().Draw(t, "share"))
			free := 0
			for _, d := range devices {
				if !now.Before(until[d.UUID]) {
					free++
				}
			}
			if len(got) != min(free, 1) {
				t.Fatalf("%v chosen of %d free", got, free)
			}
			for _, u := range got {
				if now.Before(until[u]) {
					t.Fatalf("%s is held until %s, and it is %s", u, until[u], now)
				}
				until[u] = holds.Take(got, fmt.Sprint(i), now)
			}
		}
	})
}

func TestHoldsEnd(t *testing.T) {
	h, now, devices := Holds{}, time.Unix(1e9, 0), []Device{gpu(0, "a", gib), gpu(1, "a", gib)}
	h.Take([]string{devices[0].UUID, devices[1].UUID, "GPU-gone"}, "job", now)
	h.Started(Grant{GPUs: []string{"all"}}, devices)
	if got := h.Of(devices[0].UUID, now); got == nil || got.For != "job" || got.UntilUnixNs != now.Add(time.Minute).UnixNano() {
		t.Errorf("a container that was given all ended a hold: %+v", got)
	}
	h.Started(Grant{GPUs: []string{"0"}}, devices)
	if h.Of(devices[0].UUID, now) != nil || h.Of(devices[1].UUID, now.Add(59*time.Second)) == nil || h.Of(devices[1].UUID, now.Add(time.Minute)) != nil {
		t.Error("a hold ends with the start on its device, and after a minute")
	}
	if h.Keep(devices); len(h) != 0 {
		t.Errorf("of a device that is gone: %v", h)
	}
}

func known(id uint64, image string, last int64, devices map[string]policies.Cost) profiles.Known {
	k := profiles.Known{ID: id, Name: fmt.Sprint("job", id), Jobs: 1, LastUnixNs: last, Print: profiles.Print{Unit: "torch.backward", Image: image}.With(profiles.VRAM, 10*gib)}
	k.Learned.Devices = profiles.CostsOf(devices)
	k.Learned.Cost = policies.Cost{TrainerCPU: 0.02, LoaderCPU: 0.08, Device: 0.03}
	return k
}

func TestJobByWhatIsKnown(t *testing.T) {
	book := []profiles.Known{
		known(1, "train:v1", 5, map[string]policies.Cost{"slow": {TrainerCPU: 0.02, Device: 0.08}, "fast": {TrainerCPU: 0.02, Device: 0.03}, "away": {TrainerCPU: 0.02, Device: 0.02}}),
		known(2, "docker.io/library/train:v1", 9, map[string]policies.Cost{"slow": {TrainerCPU: 0.02, Device: 0.18}}),
		known(3, "other", 7, map[string]policies.Cost{"slow": {TrainerCPU: 1}}),
	}
	for i := range book {
		book[i].Identities = []identity.Identity{hashed(book[i].Print.Image, nil)}
	}
	h := Host{Devices: []Device{gpu(0, "slow", 80*gib), gpu(1, "fast", 40*gib), gpu(2, "new", 80*gib), gpu(3, "tiny", gib)}}
	got := Job(h, book, hashed, state.PlaceJob{Image: "train:v1"}, false)
	if !slices.Equal(labels(got.Choices), []string{"1", "0", "2", "3"}) || got.Choices[0].Rate.PerSecond != 20 || got.Choices[1].Rate.PerSecond != 5 {
		t.Errorf("%+v", got.Choices)
	}
	if len(got.Evidence) != 2 || got.Evidence[0].ID != 2 || got.CPUs != 2 || got.Choices[3].Unfit == "" {
		t.Errorf("%+v", got)
	}
	if len(got.Elsewhere) != 1 || got.Elsewhere[0].Model != "away" || got.Elsewhere[0].Rate.PerSecond != 25 {
		t.Errorf("%+v", got.Elsewhere)
	}
	if none := Job(h, book, hashed, state.PlaceJob{Image: "never-seen"}, false); len(none.Evidence) != 0 || none.CPUs != 0 || none.Choices[0].Rate.How != state.RateUnknown || len(none.Chosen) != 1 {
		t.Errorf("of an unknown job: %+v", none)
	}
}
