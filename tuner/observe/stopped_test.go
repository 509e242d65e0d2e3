package observe

import (
	"cmp"
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestAStopSaysNothingOfWants: what a job used while it was stopped is not what it wanted, however long that lasted.
func TestAStopSaysNothingOfWants(t *testing.T) {
	k := policies.DefaultConstants()
	for _, seconds := range []int{1, 54, 200} {
		var s State
		for i := range 72 + seconds {
			w := &Window{StartNs: int64(i) * second, EndNs: int64(i+1) * second, HasCgroup: true, Cgroup: Cgroup{CPUNs: 1e9, QuotaCPUs: 2}, Stopped: i >= 70 && i < 70+seconds}
			if w.Stopped {
				w.Cgroup.CPUNs = 1e6 // somebody's shell
			}
			s.addUse(k, w, Reading{})
		}
		if uses := s.Wants(k); len(Free(uses)) != int(k.UnusedSeconds+k.SettleReadings) || math.Abs(Enough(uses, 0.9, 0)-1) > 1e-9 {
			t.Errorf("stopped for %d s: %d free readings, %.3f CPUs are enough, want 1", seconds, len(Free(uses)), Enough(uses, 0.9, 0))
		}
	}
}

// does is what a process of one thread does in a second: it works for most of it, or waits in a state.
type does struct {
	works  bool
	in     probes.State
	gone   bool
	signal bool // has stopped it
}

// TestWhatIsAStop: a process in sigwait sleeps as one that a signal stopped. What others of the container do tells.
func TestWhatIsAStop(t *testing.T) {
	works, sleeps, waits, gone := does{works: true}, does{in: probes.StateOther}, does{in: probes.StateFutex}, does{gone: true}
	halts := does{in: probes.StateOther, signal: true}
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		counted bool // the first's steps are
		entry   func(at int64) does
		program func(at int64) does
		from    int64               // as of which second it is to be told, 181: as many as loaders may work on for have passed
		stopped func(at int64) bool // nil: never
	}{
		"it waits for the program that it started": {entry: func(at int64) does { return turn(at < 9, works, sleeps) },
			program: func(at int64) does { return turn(at < 9, gone, works) }, from: 10},
		"for one that works by turns": {entry: func(at int64) does { return turn(at < 9, works, sleeps) },
			program: func(at int64) does { return turn(at >= 9 && at%3 != 0, works, waits) }},
		"for one that is stopped later": {entry: func(at int64) does { return turn(at < 5, works, sleeps) },
			program: func(at int64) does { return turn(at < 150, works, sleeps) }, stopped: func(int64) bool { return true }},
		"it ended, and the program is stopped": {entry: func(at int64) does { return turn(at < 5, works, gone) },
			program: func(at int64) does { return turn(at < 150, works, sleeps) }, stopped: func(int64) bool { return true }},
		"its loaders work on for a while": {entry: func(at int64) does { return turn(at < 90, works, sleeps) },
			program: func(at int64) does { return turn(at < 95, works, waits) }, stopped: func(int64) bool { return true }},
		"its peers do all along": {counted: true, entry: func(at int64) does { return turn(at < 90, works, sleeps) },
			program: func(int64) does { return works }, stopped: func(int64) bool { return true }},
		"a signal stops it, and others work on": {entry: func(at int64) does { return turn(at < 90, works, halts) },
			program: func(int64) does { return works }, from: 92, stopped: func(int64) bool { return true }},
		"a signal stops it for a while": {entry: func(at int64) does { return turn(at < 90 || at >= 185, works, halts) },
			program: func(int64) does { return works }, from: 187, stopped: func(int64) bool { return false }},
		"a signal stops another": {entry: func(int64) does { return works },
			program: func(at int64) does { return turn(at < 90, works, halts) }, from: 92, stopped: func(int64) bool { return false }},
		"it goes on": {entry: func(at int64) does { return turn(at < 90 || at >= 190, works, sleeps) },
			program: func(int64) does { return waits }, stopped: func(at int64) bool { return at < 190 }},
	} {
		var s State
		threads, ticks := []probes.Thread{{TID: 100, TGID: 100, PPID: 1}, {TID: 200, TGID: 200, PPID: 100}}, probes.Ticks{Source: "torch.backward", TGID: 100}
		for at := int64(1); at <= 200; at++ {
			sample := probes.Sample{Container: "x", Kernel: &probes.Kernel{}}
			for i, d := range []does{c.entry(at), c.program(at)} {
				th := &threads[i]
				th.Stopped = d.signal
				if d.gone {
					continue
				}
				if th.AtNs == 0 {
					th.StartNs, th.SinceNs, th.AtNs = uint64(at), at*second, at*second
				}
				spent := uint64(at*second - th.AtNs)
				if th.AtNs = at * second; d.works {
					th.Ns[probes.StateRun] += spent - spent/5
					th.Ns[probes.StateFutex] += spent / 5
					th.Count[probes.StateRun] += 10
					th.Count[probes.StateFutex] += 10
				} else {
					th.Ns[d.in] += spent
				}
				if i == 0 && c.counted && d.works {
					ticks.Count, ticks.LastNs = ticks.Count+10, at*second
				}
				sample.Kernel.Threads = append(sample.Kernel.Threads, *th)
			}
			if c.counted {
				sample.Kernel.Ticks = []probes.Ticks{ticks}
			}
			s.Add(k, sample, probes.Host{AtNs: at * second, CPUs: 4}, true, 0, false)
			if want := c.stopped != nil && c.stopped(at); at >= cmp.Or(c.from, 181) && s.Stopped() != want {
				t.Errorf("%s, second %d: stopped %v, want %v", name, at, s.Stopped(), want)
				break
			}
			if s.Stopped() && s.Work.SeenNs != at*second {
				t.Fatalf("%s: at second %d its work was seen last at %d ns", name, at, s.Work.SeenNs)
			}
		}
	}
}

func turn(first bool, a, b does) does {
	if first {
		return a
	}
	return b
}
