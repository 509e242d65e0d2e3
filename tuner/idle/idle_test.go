package idle

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
)

// scene is a node whose devices are read once a second.
type scene struct {
	t       *Tracker
	cfg     Config
	host    probes.Host
	samples map[string]*probes.CUDA
	owners  []Owner
	last    []Holding
}

func newScene(devices ...string) *scene {
	s := &scene{t: New(), cfg: Defaults(), host: probes.Host{AtNs: 1000 * second}, samples: map[string]*probes.CUDA{},
		owners: []Owner{{Key: "a", Name: "train", Team: "vision"}, {Key: "b", Name: "notebook", Team: "nlp"}}}
	for i, uuid := range devices {
		s.host.Devices = append(s.host.Devices, probes.Device{UUID: uuid, Index: i, AtNs: s.host.AtNs, MemUsed: 5 << 30})
	}
	return s
}

// hold puts a process of a container on a device.
func (s *scene) hold(device int, key string, pid int32) {
	d := &s.host.Devices[device]
	d.Processes = append(d.Processes, probes.DeviceProcess{PID: pid, Container: key, MemBytes: 1 << 30})
}

// duty gives each device six new samples of this share; below 0: none.
func (s *scene) duty(shares ...float64) {
	for i, share := range shares {
		d := &s.host.Devices[i]
		d.Duty = nil
		for k := int64(1); k <= 6 && share >= 0; k++ {
			d.Duty = append(d.Duty, probes.DutySample{AtNs: s.host.AtNs - second + k*167e6, Share: share})
		}
	}
}

// launch lets a process launch so many kernels, all of its time counted.
func (s *scene) launch(key string, tgid int32, kernels uint64) {
	c := s.samples[key]
	if c == nil {
		c = &probes.CUDA{}
		s.samples[key] = c
	}
	i := slices.IndexFunc(c.Processes, func(p probes.CUDAProcess) bool { return p.TGID == tgid })
	if i < 0 {
		i = len(c.Processes)
		c.Processes = append(c.Processes, probes.CUDAProcess{TGID: tgid})
	}
	p := &c.Processes[i]
	p.Launches += kernels
	p.LaunchNs += uint64(second)
	if kernels > 0 {
		p.LastNs = s.host.AtNs
	}
}

func (s *scene) step() []Holding {
	var samples []probes.Sample
	for _, o := range s.owners {
		if c := s.samples[o.Key]; c != nil {
			samples = append(samples, probes.Sample{Container: o.Key, CUDA: &probes.CUDA{Processes: slices.Clone(c.Processes)}})
		}
	}
	s.t.Step(s.cfg, s.host, samples, s.owners)
	s.last = s.t.Holdings()
	return s.last
}

// run passes so many seconds, each with what before sets up.
func (s *scene) run(seconds int, before func()) []Holding {
	for range seconds {
		s.host.AtNs += second
		for i := range s.host.Devices {
			s.host.Devices[i].AtNs = s.host.AtNs
		}
		before()
		s.step()
	}
	return s.last
}

// told is what a test compares of a holding.
type told struct {
	key                 string
	held, quiet, idle   int64 // s
	isIdle, atFirstSeen bool
	evidence            Evidence
}

func toldOf(hs []Holding) []told {
	var out []told
	for _, h := range hs {
		out = append(out, told{h.Key, h.HeldNs / second, h.QuietForNs() / second, h.IdleNs / second, h.Idle, h.FirstSight, h.Evidence})
	}
	return out
}

func TestHolders(t *testing.T) {
	sm := func(v float64) *float64 { return &v }
	for name, c := range map[string]struct {
		devices []string
		play    func(*scene)
		want    []told
	}{
		"a device on which nobody runs": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(101, func() { s.duty(0) })
		}, []told{{"a", 100, 100, 70, true, true, ByDevice}}},
		"a busy device of one": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(101, func() { s.duty(0.5) })
		}, []told{{"a", 100, 0, 0, false, false, ""}}},
		"processes of the host": {[]string{"g"}, func(s *scene) {
			s.hold(0, "", 1)
			s.run(101, func() { s.duty(0) })
		}, []told{{"", 100, 100, 70, true, true, ByDevice}}},
		"one of two that share it": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "b", 2)
			s.run(101, func() { s.duty(0.5); s.launch("a", 1, 10); s.launch("b", 2, 0) })
		}, []told{{"a", 100, 0, 0, false, false, ""}, {"b", 100, 100, 70, true, true, ByLaunches}}},
		"shared, and nothing is told": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "b", 2)
			s.run(101, func() { s.duty(0.5) })
		}, []told{{"a", 100, 0, 0, false, true, Shared}, {"b", 100, 0, 0, false, true, Shared}}},
		"shared, with the driver's shares": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "b", 2)
			s.host.Devices[0].Processes[0].SM = sm(0.4)
			s.host.Devices[0].Processes[1].SM = sm(0)
			s.run(101, func() { s.duty(0.5) })
		}, []told{{"a", 100, 0, 0, false, false, ""}, {"b", 100, 100, 70, true, true, ByShare}}},
		"one process without launches counted says nothing for its container": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "a", 3)
			s.hold(0, "b", 2)
			s.run(101, func() { s.duty(0.5); s.launch("a", 1, 0); s.launch("b", 2, 1) })
		}, []told{{"a", 100, 0, 0, false, true, Shared}, {"b", 100, 0, 0, false, false, ""}}},
		"a slice without utilisation": {[]string{"g", "m"}, func(s *scene) {
			s.host.Devices[1].Parent = "g"
			s.hold(0, "a", 1) // the GPU lists its slices' processes too
			s.hold(1, "a", 1)
			s.run(101, func() { s.duty(-1, -1) })
		}, []told{{"a", 100, 0, 0, false, true, Untold}}},
		"a slice by its launches": {[]string{"g", "m"}, func(s *scene) {
			s.host.Devices[1].Parent = "g"
			s.hold(1, "a", 1)
			s.run(101, func() { s.launch("a", 1, 0) })
		}, []told{{"a", 100, 100, 70, true, true, ByLaunches}}},
		"kernels too short for the device's figure": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(101, func() { s.duty(0); s.launch("a", 1, 1) })
		}, []told{{"a", 100, 0, 0, false, false, ""}}},
		"a process with a context on a second device": {[]string{"g", "h"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(1, "a", 1)
			s.run(101, func() { s.duty(0.9, 0); s.launch("a", 1, 50) })
		}, []told{{"a", 100, 0, 0, false, false, ""}, {"a", 100, 100, 70, true, true, ByDevice}}},
		"graphs that nobody counts": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "b", 2)
			s.run(101, func() {
				s.duty(0.5)
				s.launch("a", 1, 0)
				s.samples["a"].Processes[0].Thinned = true
				s.launch("b", 2, 1)
			})
		}, []told{{"a", 100, 0, 0, false, true, Shared}, {"b", 100, 0, 0, false, false, ""}}},
		"launches counted in turns": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "b", 2)
			n := 0
			s.run(101, func() {
				s.duty(0.5)
				if n++; n%5 == 0 {
					s.launch("a", 1, 0)
				}
				s.launch("b", 2, 1)
			})
		}, []told{{"a", 100, 99, 69, true, true, ByLaunches}, {"b", 100, 0, 0, false, false, ""}}},
		"a pause, then work": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(61, func() { s.duty(0) })
			s.run(40, func() { s.duty(1) })
		}, []told{{"a", 100, 0, 30, false, false, ""}}},
		"the device falls off for a moment": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(51, func() { s.duty(0) })
			s.host.Devices[0].Lost = "no answer in 2 s"
			s.run(5, func() {})
			s.host.Devices[0].Lost = ""
			s.run(45, func() { s.duty(0) })
		}, []told{{"a", 100, 100, 70, true, true, ByDevice}}},
		"the driver restarts": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(51, func() { s.duty(0) })
			devices := s.host.Devices
			s.host.Devices = nil
			s.run(60, func() {})
			s.host.Devices = devices
			s.run(41, func() { s.duty(0) })
		}, []told{{"a", 90, 40, 30, true, true, ByDevice}}},
		"the device tells nothing for a while": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(51, func() { s.duty(0) })
			s.run(20, func() { s.duty(-1) })
			s.run(30, func() { s.duty(0) })
		}, []told{{"a", 100, 29, 20, false, true, ByDevice}}},
		"the same reading twice": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(41, func() { s.duty(0) })
			for range 50 {
				s.step()
			}
		}, []told{{"a", 40, 40, 10, true, true, ByDevice}}},
		"a process that vanished": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(41, func() { s.duty(0) })
			s.host.Devices[0].Processes = nil
			s.run(2, func() { s.duty(0) })
		}, nil},
		"worked, then stopped": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "b", 2)
			s.run(51, func() { s.duty(0.5); s.launch("a", 1, 3); s.launch("b", 2, 1) })
			s.run(50, func() { s.duty(0.5); s.launch("a", 1, 0); s.launch("b", 2, 1) })
		}, []told{{"a", 100, 50, 20, true, false, ByLaunches}, {"b", 100, 0, 0, false, false, ""}}},
		"a process of two devices, one of which tells nothing": {[]string{"g", "h"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(1, "a", 1)
			s.run(101, func() { s.duty(0.9, -1); s.launch("a", 1, 50) })
		}, []told{{"a", 100, 0, 0, false, false, ""}, {"a", 100, 0, 0, false, false, ""}}},
		"nothing was read for a minute": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(51, func() { s.duty(0) })
			s.host.AtNs += 60 * second
			s.run(41, func() { s.duty(0) })
		}, []told{{"a", 90, 40, 30, true, true, ByDevice}}},
		"samples that come again": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			old := probes.DutySample{AtNs: s.host.AtNs, Share: 1}
			s.run(101, func() {
				s.duty(0)
				s.host.Devices[0].Duty = append([]probes.DutySample{old}, s.host.Devices[0].Duty...)
			})
		}, []told{{"a", 100, 100, 70, true, false, ByDevice}}},
		"a reading older than the last": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(51, func() { s.duty(0) })
			s.run(1, func() { s.duty(0); s.host.Devices[0].AtNs -= 20 * second })
		}, []told{{"a", 50, 50, 20, true, true, ByDevice}}},
		"another process under the same number": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.hold(0, "b", 2)
			s.run(11, func() { s.duty(0.5); s.launch("a", 1, 1000); s.launch("b", 2, 1) })
			s.samples["a"] = nil
			s.run(90, func() { s.duty(0.5); s.launch("a", 1, 1); s.launch("b", 2, 1) })
		}, []told{{"a", 100, 0, 0, false, false, ""}, {"b", 100, 0, 0, false, false, ""}}},
		"shares that are no numbers": {[]string{"g"}, func(s *scene) {
			s.hold(0, "a", 1)
			s.run(101, func() {
				s.duty(math.NaN())
				s.host.Devices[0].Duty = append(s.host.Devices[0].Duty, probes.DutySample{AtNs: s.host.AtNs, Share: math.NaN()})
			})
		}, []told{{"a", 100, 0, 0, false, false, ""}}},
		"a desktop is no holder": {[]string{"g"}, func(s *scene) {
			s.hold(0, "", 1)
			s.host.Devices[0].Processes[0].Graphics = true
			s.run(41, func() { s.duty(0) })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(c.devices...)
			c.play(s)
			if diff := cmp.Diff(c.want, toldOf(s.last), cmp.AllowUnexported(told{})); diff != "" {
				t.Errorf("holdings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTotalsOutliveHoldings(t *testing.T) {
	s := newScene("g")
	s.hold(0, "a", 1)
	s.run(101, func() { s.duty(0) })
	holders := s.host.Devices[0].Processes
	s.host.Devices[0].Processes = nil
	s.run(60, func() { s.duty(0) })
	s.host.Devices[0].Processes = holders
	s.run(11, func() { s.duty(0) })
	if got := toldOf(s.last); got[0].held != 110 || got[0].idle != 70 || got[0].quiet != 10 {
		t.Errorf("the same container later: %+v", got)
	}
	s.owners, s.host.Devices[0].Processes = s.owners[1:], nil
	s.run(60, func() { s.duty(0) })
	if len(s.t.totals) != 0 {
		t.Errorf("totals of a container that ended: %v", s.t.totals)
	}
	want := []TeamTotal{{"vision", 110 * second, 70 * second}}
	if diff := cmp.Diff(want, s.t.Teams()); diff != "" {
		t.Errorf("teams (-want +got):\n%s", diff)
	}
}

// TestTeamOfAContainerThatEnded: a reading of its device may come after its end. It holds it in its name and its team's.
func TestTeamOfAContainerThatEnded(t *testing.T) {
	s := newScene("g")
	s.hold(0, "a", 1)
	s.run(11, func() { s.duty(0.5) })
	s.owners = s.owners[1:]
	s.run(1, func() { s.duty(0.5) })
	if len(s.last) != 1 || s.last[0].Name != "train" || s.last[0].Team != "vision" {
		t.Errorf("%+v", s.last)
	}
	if diff := cmp.Diff([]TeamTotal{{Team: "vision", HeldNs: 11 * second}}, s.t.Teams()); diff != "" {
		t.Errorf("teams (-want +got):\n%s", diff)
	}
}

// manyTeams holds one device with more teams than are counted apart.
func manyTeams() *scene {
	s := newScene("g")
	s.owners = nil
	for i := range 3 * maxTeams {
		key := "c" + strconv.Itoa(i)
		s.owners = append(s.owners, Owner{Key: key, Name: key, Team: key})
		s.hold(0, key, int32(i+1))
	}
	s.run(3, func() { s.duty(0) })
	return s
}

func TestTeamsAreBounded(t *testing.T) {
	s := manyTeams()
	if diff := cmp.Diff(s.t.Teams(), manyTeams().t.Teams()); diff != "" {
		t.Errorf("which teams are counted apart is chance:\n%s", diff)
	}
	if n := len(s.t.Teams()); n != maxTeams+1 {
		t.Errorf("%d teams are counted apart, want %d and the others", n, maxTeams)
	}
}

func TestMemory(t *testing.T) {
	s := newScene("g")
	s.hold(0, "a", 1)
	s.hold(0, "a", 2)
	if got := s.step()[0].MemBytes; got != 2<<30 {
		t.Errorf("two processes hold %d bytes", got)
	}
	s = newScene("g")
	s.hold(0, "a", 1)
	s.host.Devices[0].Processes[0].MemBytes = 0
	if got := s.step()[0].MemBytes; got != 5<<30 {
		t.Errorf("the only one, of whom nothing is told, holds %d bytes", got)
	}
}

// play draws one tick of a node: figures that drop out, devices that fall off,
// processes that come and go, readings that are late.
func play(rt *rapid.T, s *scene) []probes.Sample {
	bools := rapid.Bool()
	s.host.AtNs += rapid.Int64Range(1, 15).Draw(rt, "seconds") * second
	var samples []probes.Sample
	for _, o := range s.owners {
		if bools.Draw(rt, "sampled") {
			s.launch(o.Key, pidOf(o.Key), rapid.Uint64Range(0, 1).Draw(rt, "kernels"))
			samples = append(samples, probes.Sample{Container: o.Key, CUDA: &probes.CUDA{Processes: slices.Clone(s.samples[o.Key].Processes)}})
		}
	}
	for i := range s.host.Devices {
		d := &s.host.Devices[i]
		d.Processes, d.Lost = nil, ""
		if rapid.IntRange(0, 9).Draw(rt, "lost") == 0 {
			d.Lost = "fell off the bus"
			continue
		}
		d.AtNs = s.host.AtNs - rapid.Int64Range(0, 1).Draw(rt, "late")*second/2
		for _, key := range []string{"a", "b", ""} {
			if rapid.IntRange(0, 4).Draw(rt, "holds") > 0 {
				s.hold(i, key, pidOf(key))
			}
		}
	}
	shares := rapid.SliceOfN(rapid.SampledFrom([]float64{-1, 0, 0, 0.5}), len(s.host.Devices), len(s.host.Devices)).Draw(rt, "duty")
	s.duty(shares...)
	return samples
}

func pidOf(key string) int32 {
	return int32(len(key)*100) + int32(slices.Index([]string{"", "a", "b"}, key)) + 1
}

func TestIdleHeldWall(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScene("g", "h")
		s.cfg.AfterNs = rapid.Int64Range(0, 40).Draw(rt, "after") * second
		start := s.host.AtNs
		before := map[place]Holding{}
		for range rapid.IntRange(1, 60).Draw(rt, "ticks") {
			samples := play(rt, s)
			s.t.Step(s.cfg, s.host, samples, s.owners)
			for _, h := range s.t.Holdings() {
				b := before[place{h.Device, h.Key}]
				switch {
				case h.IdleNs > h.HeldNs || h.HeldNs > s.host.AtNs-start:
					rt.Fatalf("idle ≤ held ≤ wall time is broken: %+v", h)
				case h.IdleNs < b.IdleNs || h.HeldNs < b.HeldNs:
					rt.Fatalf("a counter fell: %+v, before %+v", h, b)
				case h.QuietNs > h.CoveredNs || h.CoveredNs > h.AtNs || h.AtNs > s.host.AtNs:
					rt.Fatalf("instants out of order: %+v", h)
				case h.Idle && h.QuietForNs() <= s.cfg.AfterNs:
					rt.Fatalf("idle before its time: %+v", h)
				}
				before[place{h.Device, h.Key}] = h
			}
		}
	})
}

// TestNeverIdleWhileLaunching: a process of one device that launches at least once
// between any two readings is never idle, whatever else is told or not.
func TestNeverIdleWhileLaunching(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScene("g")
		s.cfg.AfterNs = 15 * second
		for range rapid.IntRange(1, 60).Draw(rt, "ticks") {
			play(rt, s)
			s.launch("a", pidOf("a"), 1)
			for _, h := range s.step() {
				if h.Key == "a" && (h.Idle || h.IdleNs > 0) {
					rt.Fatalf("idle while it launches: %+v", h)
				}
			}
		}
	})
}

func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, other := newScene("g", "h"), New()
		for range rapid.IntRange(1, 20).Draw(rt, "ticks") {
			samples := play(rt, s)
			host := s.host
			host.Devices = slices.Clone(host.Devices)
			for i := range host.Devices {
				host.Devices[i].Processes = slices.Clone(host.Devices[i].Processes)
				slices.Reverse(host.Devices[i].Processes)
			}
			slices.Reverse(host.Devices)
			turned, owners := slices.Clone(samples), slices.Clone(s.owners)
			slices.Reverse(turned)
			slices.Reverse(owners)
			s.t.Step(s.cfg, s.host, samples, s.owners)
			other.Step(s.cfg, host, turned, owners)
			if diff := cmp.Diff(s.t.Holdings(), other.Holdings()) + cmp.Diff(s.t.Teams(), other.Teams()); diff != "" {
				rt.Fatalf("another order, another answer:\n%s", diff)
			}
		}
	})
}
