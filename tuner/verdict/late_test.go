package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// on is a rank of a communicator of so many, on a device that spins for so much of the time.
func on(tgid int32, uuid string, spins float64, of int) rankDevice {
	return rankDevice{tgid: tgid, name: fmt.Sprintf("process %d", tgid), uuid: uuid, spins: spins, of: of}
}

// TestLateRank: who is late, by constructed devices. The share that one spins is an H100's (docs/gpu.md).
func TestLateRank(t *testing.T) {
	type L = policies.Late
	for name, tt := range map[string]struct {
		ranks []rankDevice
		want  *L
	}{
		"nobody is seen":                     {nil, nil},
		"one rank":                           {[]rankDevice{on(1, "a", 0, 2)}, nil},
		"one of two":                         {[]rankDevice{on(1, "a", 0.85, 2), on(2, "b", 0, 2)}, &L{TGIDs: []int32{2}, Name: "process 2", Spinning: 1}},
		"one of four":                        {[]rankDevice{on(1, "a", 0.85, 4), on(2, "b", 0.85, 4), on(3, "c", 0, 4), on(4, "d", 0.6, 4)}, &L{TGIDs: []int32{3}, Name: "process 3", Spinning: 3}},
		"nobody's device spins":              {[]rankDevice{on(1, "a", 0, 2), on(2, "b", 0, 2)}, nil},
		"all devices spin, for one far away": {[]rankDevice{on(1, "a", 0.85, 3), on(2, "b", 0.85, 3)}, nil},
		"two do not spin":                    {[]rankDevice{on(1, "a", 0.85, 3), on(2, "b", 0, 3), on(3, "c", 0, 3)}, nil},
		"one spins in part":                  {[]rankDevice{on(1, "a", 0.85, 3), on(2, "b", 0, 3), on(3, "c", 0.3, 3)}, nil},
		"the last one spins in part":         {[]rankDevice{on(1, "a", 0.85, 2), on(2, "b", 0.3, 2)}, nil},
		"no device tells":                    {[]rankDevice{on(1, "", 0, 2), on(2, "", 0, 2)}, nil},
		"one device does not tell":           {[]rankDevice{on(1, "a", 0.85, 3), on(2, "b", 0, 3), on(3, "", 0, 3)}, &L{TGIDs: []int32{2}, Name: "process 2", Spinning: 1, Partly: true}},
		"that of the late one does not tell": {[]rankDevice{on(1, "a", 0.85, 2), on(2, "", 0, 2)}, nil},
		"others are on another host":         {[]rankDevice{on(1, "a", 0.85, 8), on(2, "b", 0, 8)}, &L{TGIDs: []int32{2}, Name: "process 2", Spinning: 1, Partly: true}},
		"how many there are is not told":     {[]rankDevice{on(1, "a", 0.85, 0), on(2, "b", 0, 0)}, &L{TGIDs: []int32{2}, Name: "process 2", Spinning: 1, Partly: true}},
		"more than a communicator holds":     {[]rankDevice{on(1, "a", 0.85, 2), on(2, "b", 0, 2), on(3, "c", 0.85, 2)}, nil},
		"two late ones share a device":       {[]rankDevice{on(1, "a", 0.85, 3), on(3, "b", 0, 3), on(2, "b", 0, 3)}, &L{TGIDs: []int32{2, 3}, Name: "process 2 or process 3", Spinning: 1}},
		"two that wait share a device":       {[]rankDevice{on(1, "a", 0.85, 3), on(2, "a", 0.85, 3), on(3, "b", 0, 3)}, &L{TGIDs: []int32{3}, Name: "process 3", Spinning: 1}},
		"all share one device":               {[]rankDevice{on(1, "a", 0.85, 2), on(2, "a", 0.85, 2)}, nil},
		"readings of one device differ":      {[]rankDevice{on(1, "a", 0.85, 3), on(2, "b", 0, 3), on(3, "b", 0.85, 3)}, nil},
		"a reading that is no number":        {[]rankDevice{on(1, "a", 0.85, 2), on(2, "b", math.NaN(), 2)}, nil},
	} {
		if diff := cmp.Diff(tt.want, lateRank(policies.DefaultConstants(), tt.ranks)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestLateRankLaws: the order of ranks changes nothing, and neither does one more rank on a device
// but that its name is told. Who is named is on one device, which spins less than all others.
func TestLateRankLaws(t *testing.T) {
	for name, ranks := range map[string][]rankDevice{ // in each of them one is named
		"one of two":                   {on(1, "a", 0.85, 2), on(2, "b", 0, 2)},
		"one of four":                  {on(1, "a", 0.85, 4), on(2, "b", 0.85, 4), on(3, "c", 0, 4), on(4, "d", 0.6, 4)},
		"two late ones share a device": {on(1, "a", 0.85, 3), on(3, "b", 0, 3), on(2, "b", 0, 3)},
		"one device does not tell":     {on(1, "a", 0.85, 0), on(2, "b", 0, 0), on(3, "", 0, 0)},
		"room for more":                {on(1, "a", 0.85, 9), on(2, "b", 0, 9), on(3, "c", 0.6, 9)},
	} {
		other := slices.Clone(ranks)
		for range ranks { // each of them comes first once
			other = append(other[1:], other[0])
			if !lateRankLaws(t, ranks, other) {
				t.Fatalf("%s: nobody is named", name)
			}
		}
		slices.Reverse(other)
		lateRankLaws(t, ranks, other)
	}
	rapid.Check(t, func(t *rapid.T) {
		spins := map[string]float64{"": 0}
		var ranks []rankDevice
		of := rapid.IntRange(0, 9).Draw(t, "of")
		if rapid.Bool().Draw(t, "one is late") { // else hardly ever is one named
			spins["a"], spins["b"], spins["c"], of = 0.85, 0, 0.6, rapid.SampledFrom([]int{0, 9}).Draw(t, "of them")
			ranks = []rankDevice{on(90, "a", 0.85, of), on(91, "b", 0, of)}
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "ranks") {
			uuid := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "device")
			if _, ok := spins[uuid]; !ok {
				spins[uuid] = rapid.SampledFrom([]float64{0, 0.05, 0.3, 0.6, 0.85}).Draw(t, "spins")
			}
			ranks = append(ranks, on(int32(i+1), uuid, spins[uuid], of))
		}
		lateRankLaws(t, ranks, rapid.Permutation(ranks).Draw(t, "order"))
	})
}

// lateRankLaws holds ranks, and the same in another order, to the laws; false: nobody is named.
func lateRankLaws(t rapid.TB, ranks, other []rankDevice) bool {
	k := policies.DefaultConstants()
	before := slices.Clone(ranks)
	got := lateRank(k, ranks)
	if diff := cmp.Diff(got, lateRank(k, other)); diff != "" {
		t.Fatalf("in another order (-one +other):\n%s", diff)
	}
	if !slices.Equal(before, ranks) {
		t.Fatalf("it changed what it was given: %v", ranks)
	}
	if got == nil {
		return false
	}
	i := slices.IndexFunc(ranks, func(r rankDevice) bool { return r.tgid == got.TGIDs[0] })
	for _, r := range ranks {
		if mine := slices.Contains(got.TGIDs, r.tgid); mine != (r.uuid == ranks[i].uuid) || !mine && r.uuid != "" && r.spins <= ranks[i].spins {
			t.Fatalf("of %+v it named %+v", ranks, got)
		}
	}
	for _, r := range ranks { // one more on a device that is known already
		more := lateRank(k, append(slices.Clone(ranks), on(99, r.uuid, r.spins, 0)))
		if over := r.of > 0 && len(ranks)+1 > r.of; (more == nil) != over || more != nil && (more.Spinning != got.Spinning || more.TGIDs[0] != got.TGIDs[0]) {
			t.Fatalf("with one more on %q: %+v, before %+v", r.uuid, more, got)
		}
	}
	return true
}

// rank is a reading of a container's only rank, whose device is at such a duty with such a part of its SMs.
func rank(tgid int32, uuid string, duty, sms float64, holders ...string) observe.Reading {
	r := reading(func(r *observe.Reading, _ func(policies.Part, float64)) {
		r.Root, r.Exchanges, r.Collectives, r.SyncNs = tgid, true, 30, 15e8
		r.Peers = []observe.Peer{{Root: tgid, Own: 0.2, Exchanges: true}}
		r.Window.Network.Ns = 2e9
		r.Window.Processes = []observe.Process{{TGID: tgid, Calls: 30, Ranks: 2}}
		r.Window.Devices = []observe.Device{{UUID: uuid, Index: int(tgid), Samples: 10, Duty: duty, Activities: 2, SM: sms, PIDs: []int32{tgid}, Holders: holders}}
	})
	r.Expose(r.Window.Spinning(policies.DefaultConstants(), tgid))
	return r
}

// TestLateByDevice: what is told of two ranks in two containers of a job, by their devices.
func TestLateByDevice(t *testing.T) {
	k := policies.DefaultConstants()
	for name, tt := range map[string]struct {
		a, b observe.Reading
		edit func(a, b *observe.Reading)
		late string  // in the verdict of a
		sure float64 // of it, relative to what it would be with all seen
	}{
		"b works while a spins": {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.98, 0.95), nil, "b, process 2", 1},
		"b's device idles":      {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.01, 0.01), nil, "b, process 2", 1},
		"there are eight ranks": {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.98, 0.95), func(a, _ *observe.Reading) { a.Window.Processes[0].Ranks = 8 }, "b, process 2", 0.6},
		"b worked before a spun": {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.98, 0.95), func(_, b *observe.Reading) {
			b.Window.StartNs, b.Window.EndNs = b.Window.StartNs-15e8, b.Window.EndNs-15e8
		}, "", 1},
		"both spin":                  {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.98, 0.13), nil, "", 1},
		"a is the late one":          {rank(1, "a", 0.98, 0.95), rank(2, "b", 0.98, 0.13), nil, "", 1},
		"b has no duty, as on MIG":   {rank(1, "a", 0.98, 0.13), rank(2, "b", 0, 0.9), func(_, b *observe.Reading) { b.Window.Devices[0].Samples = 0 }, "", 1},
		"b's SMs are not told":       {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.98, 0), func(_, b *observe.Reading) { b.Window.Devices[0].Activities = 0 }, "", 1},
		"b exchanges with nobody":    {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.98, 0.95), func(_, b *observe.Reading) { b.Window.Processes[0].Ranks = 1 }, "", 1},
		"a stranger is on b's":       {rank(1, "a", 0.98, 0.13), rank(2, "b", 0.98, 0.95, "stranger"), nil, "", 1},
		"both are on one that spins": {rank(1, "a", 0.98, 0.13, "b"), rank(2, "a", 0.98, 0.13, "a"), nil, "", 1},
	} {
		if tt.edit != nil {
			tt.edit(&tt.a, &tt.b)
		}
		Among(k, &tt.a, "a", []Peer{{Key: "b", Name: "b", Reading: tt.b}})
		v := Judge(k, tt.a)
		told := strings.Contains(v.Why, "late rank")
		if told != (tt.late != "") || told && (v.Cause != policies.CauseStraggler || !strings.Contains(v.Why, tt.late) || !strings.HasSuffix(v.Relief, tt.late)) {
			t.Errorf("%s: %s/%s, %s; because %s", name, v.Class, v.Cause, v.Relief, v.Why)
		}
		if want := tt.sure * confidence(k, tt.a); math.Abs(v.Confidence-want) > 1e-9 {
			t.Errorf("%s: a confidence of %.2f, want %.2f", name, v.Confidence, want)
		}
		for _, e := range v.Evidence {
			if e.Name == "device active" && e.Value != tt.a.Window.Devices[0].Duty {
				t.Errorf("%s: %+v is told of its own device", name, e)
			}
		}
	}
}

// TestSharedDeviceWaitsForAll: two containers of the job are on one device, which spins for a third.
// The device waits, so both wait for the same one.
func TestSharedDeviceWaitsForAll(t *testing.T) {
	k := policies.DefaultConstants()
	a, b, c := rank(1, "x", 0.98, 0.13, "b"), rank(2, "x", 0.98, 0.13, "a"), rank(3, "y", 0.98, 0.95)
	for _, r := range []*observe.Reading{&a, &b, &c} {
		r.Window.Processes[0].Ranks = 3
	}
	if got := a.Breakdown.Share(policies.PartCommunication); got != 0 {
		t.Errorf("a spin that may be another's counts as its own: %.2f", got)
	}
	third := Peer{Key: "c", Name: "c", Reading: c}
	one, other := a, b
	Among(k, &one, "a", []Peer{{Key: "b", Name: "b", Reading: b}, third})
	Among(k, &other, "b", []Peer{{Key: "a", Name: "a", Reading: a}, third})
	x, y := Judge(k, one), Judge(k, other)
	if x.Why != y.Why || x.Relief != y.Relief || !strings.HasSuffix(x.Relief, "c, process 3") || one.Late.Spinning != 1 || one.Late.Partly {
		t.Errorf("%s (%s), and %s (%s); %+v", x.Why, x.Relief, y.Why, y.Relief, one.Late)
	}
}

// TestAnotherRanksDevice: what the device of another rank does is not told of the one that was read.
func TestAnotherRanksDevice(t *testing.T) {
	theirs := observe.Device{UUID: "b", Index: 1, Samples: 10, Duty: 0.99, Readings: 4, Slowed: 4, SlowedClock: 0.6, SlowedBy: "thermal", PIDs: []int32{200}}
	mine := observe.Device{UUID: "a", Samples: 10, Duty: 0.95, Readings: 4, PIDs: []int32{100}}
	for name, tt := range map[string]struct {
		devices []observe.Device
		cause   policies.Cause
	}{
		"its own is not hot":       {[]observe.Device{mine, theirs}, policies.CauseDevice},
		"its own is not told":      {[]observe.Device{theirs}, policies.CauseDevice},
		"nobody's process is told": {[]observe.Device{{Index: 1, Samples: 10, Duty: 0.99, Readings: 4, Slowed: 4, SlowedClock: 0.6, SlowedBy: "thermal"}}, policies.CauseClocks},
	} {
		v := Judge(policies.DefaultConstants(), reading(func(r *observe.Reading, _ func(policies.Part, float64)) {
			r.SyncNs, r.Window.Devices = 12e8, tt.devices
			r.Peers = []observe.Peer{{Root: 100}, {Root: 200}}
		}))
		hot := slices.ContainsFunc(v.Evidence, func(e policies.Evidence) bool { return e.Name == "GPU 1 clock" })
		if v.Cause != tt.cause || hot != (tt.cause == policies.CauseClocks) {
			t.Errorf("%s: %s/%s, %s; %+v", name, v.Class, v.Cause, v.Why, v.Evidence)
		}
	}
}
