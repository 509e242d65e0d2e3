package verdict

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
)

// reading is a healthy job of two loaders; edit makes it ill.
func reading(edit func(r *observe.Reading, share func(policies.Part, float64))) observe.Reading {
	w := &observe.Window{StartNs: 0, EndNs: 2e9, HasKernel: true, HasCgroup: true, HostCPUs: 4, HostIdle: 2}
	w.Cgroup.CPUNs, w.Cgroup.MemoryLimit = 2e9, -1
	r := observe.Reading{Window: w, Root: 100, Ranks: 1, LoaderUse: observe.LoaderUse{Loaders: 2}, CostOK: true, Rate: policies.Rate{PerSecond: 10, Ticks: 20, Source: "torch.backward"},
		Cost: policies.Cost{TrainerCPU: 0.02, LoaderCPU: 0.05, Device: 0.05, Batch: 0.05, Loaders: 2, Ticks: 20}}
	r.Trainer.Ns[probes.StateRun] = 4e8
	r.Breakdown.WallNs = 2e9
	left := 1.0
	share := func(p policies.Part, v float64) {
		r.Breakdown.Ns[p] = int64(v * 2e9)
		left -= v
	}
	share(policies.PartCompute, 0.2)
	edit(&r, share)
	r.Breakdown.Ns[policies.PartDevice] = int64(left * 2e9)
	return r
}

func TestVerdicts(t *testing.T) {
	type R = observe.Reading
	type share = func(policies.Part, float64)
	for _, tt := range []struct {
		name  string
		edit  func(*R, func(policies.Part, float64))
		class policies.Class
		cause policies.Cause
	}{
		{"healthy", func(*R, share) {}, policies.ClassBalanced, policies.CauseNone},
		{"hardly any CPU, for it reads from a slow disk", func(r *R, s share) {
			r.Window.Cgroup.CPUNs, r.Rate.Ticks, r.Rate.PerSecond, r.Loaders = 1e7, 0, 0, 0
			s(policies.PartInputStorage, 0.78)
			r.Window.Block.ReadBytes, r.Window.Cgroup.RefaultFile, r.Window.Cgroup.MemoryLimit = 16<<20, 4000, 400<<20
		}, policies.ClassInput, policies.CauseCache},
		{"hardly any CPU, and it waits for nothing", func(r *R, s share) {
			r.Window.Cgroup.CPUNs, r.Rate.Ticks, r.Rate.PerSecond, r.Loaders = 1e7, 0, 0, 0
		}, policies.ClassIdle, policies.CauseNone},
		{"loaders out of quota", func(r *R, s share) {
			s(policies.PartInputThrottled, 0.3)
			s(policies.PartInputWorkers, 0.1)
			r.LoaderShort, r.Window.Cgroup.QuotaCPUs = 0.7, 1
		}, policies.ClassInput, policies.CauseThrottled},
		{"ranks out of quota, which keep each other waiting by that", func(r *R, s share) {
			s(policies.PartThrottled, 0.6)
			s(policies.PartCommunication, 0.15)
			r.Loaders, r.Window.Cgroup.QuotaCPUs = 0, 1
			r.Window.Network.Ns = 2e9
		}, policies.ClassCompute, policies.CauseHost},
		{"ranks that wait for each other longer than for a CPU", func(r *R, s share) {
			s(policies.PartThrottled, 0.1)
			s(policies.PartCommunication, 0.3)
			r.Loaders, r.Window.Cgroup.QuotaCPUs = 0, 1
			r.Window.Network.Ns = 2e9
		}, policies.ClassCommunication, policies.CauseStraggler},
		{"one quota starves trainer and loaders", func(r *R, s share) {
			s(policies.PartThrottled, 0.4)
			s(policies.PartInputThrottled, 0.03)
			r.LoaderBusy, r.LoaderRun, r.LoaderNs = 1, 0.3, 2e9
			r.LoaderShort, r.Window.Cgroup.QuotaCPUs = 0.7, 1
		}, policies.ClassInput, policies.CauseThrottled},
		{"the trainer starves before a full queue", func(r *R, s share) {
			s(policies.PartThrottled, 0.4)
			s(policies.PartInputThrottled, 0.01)
			r.LoaderShort, r.LoaderBusy, r.LoaderRun, r.LoaderNs, r.Window.Cgroup.QuotaCPUs = 0.7, 0.3, 0.3, 2e9, 1
		}, policies.ClassCompute, policies.CauseHost},
		{"loaders behind others", func(r *R, s share) {
			s(policies.PartInputContended, 0.3)
			r.LoaderShort, r.Window.HostIdle = 0.7, 0
		}, policies.ClassInput, policies.CauseContended},
		{"behind others, with quota to spare", func(r *R, s share) {
			s(policies.PartContended, 0.5)
			s(policies.PartInputThrottled, 0.06)
			r.LoaderShort, r.Window.HostIdle, r.Window.Cgroup.QuotaCPUs = 0.7, 0, 3
		}, policies.ClassInput, policies.CauseContended},
		{"first touch", func(r *R, s share) {
			s(policies.PartInputStorage, 0.4)
			r.Window.Block.ReadBytes = 1 << 30
		}, policies.ClassInput, policies.CauseStorage},
		{"read again", func(r *R, s share) {
			s(policies.PartInputStorage, 0.4)
			r.Window.Block.ReadBytes, r.Window.Cgroup.RefaultFile, r.Window.Cgroup.MemoryLimit = 1<<30, 200_000, 1<<30
		}, policies.ClassInput, policies.CauseCache},
		{"network", func(r *R, s share) { s(policies.PartInputRemote, 0.4) }, policies.ClassInput, policies.CauseRemote},
		{"too few workers", func(r *R, s share) {
			s(policies.PartInputWorkers, 0.4)
			r.Cost.Batch = 0.25
		}, policies.ClassInput, policies.CauseWorkers},
		{"the loader that it waits for is at work as long", func(r *R, s share) {
			s(policies.PartInputWorkers, 0.4)
			r.Loaders, r.LoaderNs, r.LoaderBusy = 1, float64(r.Window.EndNs-r.Window.StartNs), 0.5
		}, policies.ClassInput, policies.CauseWorkers},
		{"the thread that it waits for does next to nothing", func(r *R, s share) { // OpenMP, seen in ImageMagick: 12 % and 4 %
			s(policies.PartInputWorkers, 0.12)
			s(policies.PartCompute, 0.7)
			r.Loaders, r.LoaderNs, r.LoaderBusy = 1, float64(r.Window.EndNs-r.Window.StartNs), 0.04
		}, policies.ClassCompute, policies.CauseHost},
		{"trainer on the CPU", func(r *R, s share) { s(policies.PartCompute, 0.7) }, policies.ClassCompute, policies.CauseHost},
		{"no loaders, out of quota", func(r *R, s share) {
			s(policies.PartThrottled, 0.5)
			r.Loaders, r.LoaderShort = 0, 0
		}, policies.ClassCompute, policies.CauseHost},
		{"a slower rank of its container", func(r *R, s share) {
			s(policies.PartCommunication, 0.3)
			r.Peers = []observe.Peer{{Root: 1, Own: 0.2}, {Root: 2, Own: 0.9}}
		}, policies.ClassCommunication, policies.CauseStraggler},
		{"reclaim", func(r *R, s share) {
			s(policies.PartReclaim, 0.2)
			r.Window.Cgroup.MemoryLimit = 1 << 30
		}, policies.ClassMemory, policies.CauseReclaim},
		{"mapped pages evicted", func(r *R, s share) {
			s(policies.PartInputStorage, 0.4)
			r.Window.Block.ReadBytes, r.Window.Cgroup.RefaultFile, r.Window.Cgroup.MajorFaults, r.Window.Cgroup.MemoryLimit = 1<<30, 200_000, 200_000, 1<<30
		}, policies.ClassMemory, policies.CauseReclaim},
		{"growth towards the limit", func(r *R, s share) {
			g := &r.Window.Cgroup
			g.MemoryLimit, g.Anon, g.AnonGrowth = 1<<30, 900<<20, 40<<20
		}, policies.ClassMemory, policies.CauseRisk},
		{"the wire is full", func(r *R, s share) {
			s(policies.PartCommunication, 0.4)
			r.Window.Network = observe.Network{Ns: 2e9, TxBytes: 70e6, RxBytes: 70e6, Links: []observe.LinkUse{{Bytes: 70e6, MaxBps: 100e6}}}
		}, policies.ClassCommunication, policies.CauseNetwork},
		{"segments are lost", func(r *R, s share) {
			s(policies.PartCommunication, 0.4)
			r.Window.Network = observe.Network{Ns: 2e9, TxBytes: 7e6, RxBytes: 7e6, Segments: 1000, Retransmits: 50}
		}, policies.ClassCommunication, policies.CauseNetwork},
		{"few bytes: a peer is late", func(r *R, s share) {
			s(policies.PartCommunication, 0.4)
			r.Window.Network = observe.Network{Ns: 2e9, TxBytes: 2e6, RxBytes: 2e6, Segments: 1000, Links: []observe.LinkUse{{Bytes: 2e6, MaxBps: 100e6}}}
		}, policies.ClassCommunication, policies.CauseStraggler},
		{"nobody read the network", func(r *R, s share) { s(policies.PartCommunication, 0.4) }, policies.ClassUnknown, policies.CauseNone},
		{"more for peers than for data", func(r *R, s share) {
			r.Window.Network.Ns = 2e9
			s(policies.PartInputWorkers, 0.1)
			s(policies.PartCommunication, 0.4)
		}, policies.ClassCommunication, policies.CauseStraggler},
		{"the device", func(r *R, s share) { r.SyncNs = 12e8 }, policies.ClassCompute, policies.CauseDevice},
		{"the device, while the trainer computes", func(r *R, s share) {
			s(policies.PartCompute, 0.7)
			r.SyncNs = 5e8
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99}}
		}, policies.ClassCompute, policies.CauseDevice},
		{"launch-bound", func(r *R, s share) {
			s(policies.PartCompute, 0.7)
			r.SyncNs = 1e8
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.4}}
		}, policies.ClassCompute, policies.CauseHost},
		{"a full launch queue, in which the trainer spins", func(r *R, s share) {
			s(policies.PartCompute, 0.99)
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99, PIDs: []int32{100}, Activities: 2, SM: 0.96}}
		}, policies.ClassCompute, policies.CauseDevice},
		{"the same where SMs are not told", func(r *R, s share) {
			s(policies.PartCompute, 0.99)
			r.Launches = 3000
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99}}
		}, policies.ClassCompute, policies.CauseDevice},
		{"the same of one that exchanges: it may spin in a collective", func(r *R, s share) {
			s(policies.PartCompute, 0.99)
			r.Launches, r.Collectives, r.Exchanges = 3000, 30, true
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99}}
		}, policies.ClassCompute, policies.CauseHost},
		{"a trainer that computes beside small kernels", func(r *R, s share) {
			s(policies.PartCompute, 0.99)
			r.Launches = 3000
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.95, PIDs: []int32{100}, Activities: 2, SM: 0.05}}
		}, policies.ClassCompute, policies.CauseHost},
		{"a trainer that computes, on a device that another container fills", func(r *R, s share) {
			s(policies.PartCompute, 0.99)
			r.Launches = 30
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99, Holders: []string{"other"}, PIDs: []int32{100}, Activities: 2, SM: 0.96}}
		}, policies.ClassCompute, policies.CauseHost},
		{"a rank that computes beside one whose device is full", func(r *R, s share) {
			s(policies.PartCompute, 0.9)
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.2, PIDs: []int32{100}, Activities: 2, SM: 0.1}, {Samples: 10, Duty: 0.99, PIDs: []int32{200}, Activities: 2, SM: 0.96}}
		}, policies.ClassCompute, policies.CauseHost},
		{"a device shared by another container", func(r *R, s share) {
			r.SyncNs, r.SharedWith = 12e8, []string{"other"}
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99, Holders: []string{"other"}}}
		}, policies.ClassCompute, policies.CauseShared},
		{"a device that others work on, by the driver", func(r *R, s share) {
			r.SyncNs = 12e8
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99, SMReadings: 5, Own: 0.5, Others: 0.4}}
		}, policies.ClassCompute, policies.CauseShared},
		{"a hot device", func(r *R, s share) {
			r.SyncNs = 12e8
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99, Readings: 4, Slowed: 4, SlowedClock: 0.6, SlowedBy: "thermal"}}
		}, policies.ClassCompute, policies.CauseClocks},
		{"a wait for a device that does nothing", func(r *R, s share) {
			r.SyncNs = 12e8
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.05}}
		}, policies.ClassBalanced, policies.CauseNone},
		{"nothing runs", func(r *R, s share) {
			r.Window.Cgroup.CPUNs = 1e6
			r.Rate = policies.Rate{}
		}, policies.ClassIdle, policies.CauseNone},
		{"next to nothing runs, for others stand before it", func(r *R, s share) {
			r.Window.Cgroup.CPUNs, r.Rate, r.Ranks, r.Aggregated, r.Loaders = 1e7, policies.Rate{}, 0, true, 0
			r.Window.HostIdle = 0
			s(policies.PartCompute, 0)
			s(policies.PartContended, 0.99)
		}, policies.ClassCompute, policies.CauseHost},
		{"the hypervisor takes what others would", func(r *R, s share) {
			r.Window.HostCPUs, r.Window.HostIdle, r.Window.StealShare, r.Window.Cgroup.CPUNs = 2, 0, 0.1, 36e8
			s(policies.PartInputContended, 0.3)
			r.LoaderShort = 0.7
		}, policies.ClassInput, policies.CauseWorkers},
		{"a notebook", func(r *R, s share) {
			r.Window.Cgroup.CPUNs, r.Network, r.Loaders = 1e8, 0.9, 0
			r.Rate = policies.Rate{Ticks: 1}
		}, policies.ClassInteractive, policies.CauseNone},
		{"without a counted step, by shares of time", func(r *R, s share) {
			r.Rate, r.Aggregated, r.Loaders = policies.Rate{}, true, 0
			s(policies.PartThrottled, 0.6)
		}, policies.ClassCompute, policies.CauseHost},
		{"no kernel probe", func(r *R, s share) { r.Window.HasKernel = false }, policies.ClassUnknown, policies.CauseNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Judge(policies.DefaultConstants(), reading(tt.edit))
			if v.Class != tt.class || v.Cause != tt.cause {
				t.Errorf("%s/%s, want %s/%s: %s", v.Class, v.Cause, tt.class, tt.cause, v.Why)
			}
			if v.Why == "" || v.Relief == "" {
				t.Errorf("a verdict must say why and what would relieve it: %+v", v)
			}
			if strings.Contains(v.Relief, "Python") || strings.Contains(v.Relief, "not help") { // no reading tells the language, and more CPUs help some
				t.Errorf("relief %q is not true of any program", v.Relief)
			}
		})
	}
}

// TestNearCausesAreToldTogether: which of two is the larger by a little may be another in the next
// window. The cause stays one, and the text has both with their figures.
func TestNearCausesAreToldTogether(t *testing.T) {
	const quota, queue = "out of CPU quota", "for a CPU"
	for _, tt := range []struct {
		name                 string
		throttled, contended float64
		loaders              int
		quotaCPUs            float64
		cause                policies.Cause
		figures              string // "": one is told alone
	}{
		{"loaders: the quota by a little", 0.32, 0.29, 2, 1, policies.CauseThrottled, "32 and 29 %"},
		{"loaders: the queue by a little", 0.29, 0.32, 2, 1, policies.CauseThrottled, "29 and 32 %"},
		{"loaders: the quota by far", 0.32, 0.26, 2, 1, policies.CauseThrottled, ""},
		{"loaders: the queue does not count", 0.07, 0.04, 2, 1, policies.CauseThrottled, ""},
		{"loaders: the queue by a little, and the quota does not bind", 0.29, 0.32, 2, 3, policies.CauseContended, "29 and 32 %"},
		{"loaders: the queue by far, and the quota does not bind", 0.26, 0.32, 2, 3, policies.CauseContended, ""},
		{"trainer: the quota by a little", 0.32, 0.29, 0, 1, policies.CauseHost, "32 and 29 %"},
		{"trainer: the queue by a little", 0.29, 0.32, 0, 1, policies.CauseHost, "29 and 32 %"},
		{"trainer: the quota by far", 0.32, 0.26, 0, 1, policies.CauseHost, ""},
		{"trainer: the quota does not count", 0.04, 0.07, 0, 1, policies.CauseHost, ""},
	} {
		v := Judge(policies.DefaultConstants(), reading(func(r *observe.Reading, s func(policies.Part, float64)) {
			s(policies.PartThrottled, tt.throttled)
			s(policies.PartContended, tt.contended)
			r.Loaders, r.Window.HostIdle, r.Window.Cgroup.QuotaCPUs = tt.loaders, 0, tt.quotaCPUs
			if tt.loaders > 0 {
				r.LoaderShort, r.LoaderBusy, r.LoaderRun, r.LoaderNs = 0.7, 1, 0.3, 2e9
			}
		}))
		if v.Cause != tt.cause {
			t.Errorf("%s: cause %q, want %q: %s", tt.name, v.Cause, tt.cause, v.Why)
		}
		both := strings.Contains(v.Why, quota) && strings.Contains(v.Why, queue)
		if both != (tt.figures != "") || !strings.Contains(v.Why, tt.figures) {
			t.Errorf("%s: both told %v, want the figures %q: %s", tt.name, both, tt.figures, v.Why)
		}
	}
}

// TestWordsOfLoadersFollowTheFigureBelow: "all along" stands above no figure that says otherwise.
// The window is 2 s; a loader process has three threads, of which one loads.
func TestWordsOfLoadersFollowTheFigureBelow(t *testing.T) {
	for _, tt := range []struct {
		name     string
		loaders  int
		ns, busy float64 // of all their threads
		figure   float64
		want     string
	}{
		{"one of three threads works all along", 1, 6e9, 0.33, 0.99, "loaders that are busy all along"},
		{"two such loaders", 2, 12e9, 0.31, 0.93, "loaders that are busy all along"},
		{"just what leaves no room", 1, 2e9, 0.9, 0.9, "loaders that are busy all along"},
		{"a thread with time to spare", 1, 2e9, 0.31, 0.31, "loaders that are busy 31 % of the window"},
		{"two loaders that began half way", 2, 6e9, 0.31, 0.465, "loaders that are busy 46 % of the window"},
		{"threads side by side", 1, 8e9, 0.5, 1, "loaders that are busy all along"},
		{"none is known", 0, 0, 0, -1, "% of its time for data"},
	} {
		v := Judge(policies.DefaultConstants(), reading(func(r *observe.Reading, s func(policies.Part, float64)) {
			s(policies.PartInputWorkers, 0.4)
			r.Loaders, r.LoaderNs, r.LoaderBusy, r.LoaderRun = tt.loaders, tt.ns, tt.busy, 1
		}))
		if v.Cause != policies.CauseWorkers || !strings.HasSuffix(v.Why, tt.want) {
			t.Errorf("%s: %s, %q does not end with %q", tt.name, v.Cause, v.Why, tt.want)
		}
		figure := -1.0
		for _, e := range v.Evidence {
			if e.Name == "loaders busy" {
				figure = e.Value
			}
		}
		if math.Abs(figure-tt.figure) > 1e-9 {
			t.Errorf("%s: the figure below is %.3f, want %.3f", tt.name, figure, tt.figure)
		}
	}
}

// TestNoReliefInAWeightBeyondTheRight: who has its right in full and queues for more is told so.
func TestNoReliefInAWeightBeyondTheRight(t *testing.T) {
	k := policies.DefaultConstants()
	for name, tt := range map[string]struct {
		used, right float64
		part        policies.Part
		want        string
	}{
		"its right and more":       {0.41, 0.40, policies.PartContended, policies.ReliefGrant},
		"within the margin":        {0.39, 0.40, policies.PartContended, policies.ReliefGrant},
		"less than its right":      {0.38, 0.40, policies.PartContended, policies.ReliefWeight},
		"no right is known":        {0.41, 0, policies.PartContended, policies.ReliefWeight},
		"its own quota stops it":   {0.41, 0.40, policies.PartThrottled, policies.ReliefQuota},
		"loaders behind, no right": {0.38, 0.40, policies.PartInputContended, policies.ReliefWeight},
		"loaders behind":           {0.41, 0.40, policies.PartInputContended, policies.ReliefGrant},
	} {
		r := reading(func(r *observe.Reading, s func(policies.Part, float64)) {
			s(tt.part, 0.5)
			r.LoaderShort, r.Window.HostIdle = 0.7, 0
			r.Window.Cgroup.CPUNs = uint64(tt.used * float64(r.Window.EndNs-r.Window.StartNs))
		})
		v := Owned(k, Judge(k, r), r, tt.right)
		if v.Relief != tt.want {
			t.Errorf("%s: %s/%s, relief %q, want %q", name, v.Class, v.Cause, v.Relief, tt.want)
		}
		if queues := v.Relief != policies.ReliefQuota; queues == (WhyNothing(v) == "nothing to gain") {
			t.Errorf("%s: relief %q, and %q", name, v.Relief, WhyNothing(v))
		}
	}
}

// TestTheQueueIsToldWhereTheQuotaGoesUnspent: a burst now and then runs out of quota, and most of
// the time goes to waiting behind others. A higher quota brings such a job next to nothing.
func TestTheQueueIsToldWhereTheQuotaGoesUnspent(t *testing.T) {
	k := policies.DefaultConstants()
	for name, tt := range map[string]struct {
		used, throttled, contended float64
		relief                     string
		severity                   float64
	}{
		"the queue, quota left":   {0.32, 0.11, 0.69, policies.ReliefWeight, 0.69},
		"the queue, quota spent":  {0.40, 0.11, 0.69, policies.ReliefQuota, 0.11},
		"the quota, by means low": {0.32, 0.50, 0.20, policies.ReliefQuota, 0.50},
	} {
		v := Judge(k, reading(func(r *observe.Reading, s func(policies.Part, float64)) {
			s(policies.PartThrottled, tt.throttled)
			s(policies.PartContended, tt.contended)
			r.Loaders, r.Window.HostIdle, r.Window.Cgroup.QuotaCPUs = 0, 0, 0.4
			r.Window.Cgroup.CPUNs = uint64(tt.used * float64(r.Window.EndNs-r.Window.StartNs))
		}))
		if v.Cause != policies.CauseHost || v.Relief != tt.relief || math.Abs(v.Severity-tt.severity) > 1e-9 {
			t.Errorf("%s: %s, relief %q, %.2f lost to it; want relief %q, %.2f: %s", name, v.Cause, v.Relief, v.Severity, tt.relief, tt.severity, v.Why)
		}
	}
}

func TestThinEvidenceLowersConfidence(t *testing.T) {
	sure := Judge(policies.DefaultConstants(), reading(func(*observe.Reading, func(policies.Part, float64)) {})).Confidence
	for name, edit := range map[string]func(*observe.Reading){
		"few ticks":     func(r *observe.Reading) { r.Rate.Ticks = 6 },
		"excess steal":  func(r *observe.Reading) { r.Window.StealShare = 0.1 },
		"lost threads":  func(r *observe.Reading) { r.Window.Lost = 3 },
		"no accounting": func(r *observe.Reading) { r.Window.HasCgroup = false },
		"a shed probe":  func(r *observe.Reading) { r.Window.Unseen = []string{"launches: over the budget"} },
	} {
		r := reading(func(r *observe.Reading, _ func(policies.Part, float64)) { edit(r) })
		if got := Judge(policies.DefaultConstants(), r).Confidence; got >= sure {
			t.Errorf("%s: confidence %.2f, want below %.2f", name, got, sure)
		}
	}
}

// TestWorkersAdviceIsWhatTheHostCanRun: of a batch of 250 ms and a step of 70 ms.
func TestWorkersAdviceIsWhatTheHostCanRun(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*observe.Reading)
		want string
	}{
		{"four would do, of two", func(r *observe.Reading) {}, "about twice as many loader workers (it has 2)"},
		{"steps are not counted", func(r *observe.Reading) { r.Rate.Steps = false }, "more loader workers"},
		{"nothing is known of a step", func(r *observe.Reading) { r.Cost.TrainerCPU, r.Cost.Device = 0, 0 }, "more loader workers"},
		{"it has what it needs", func(r *observe.Reading) { r.Cost.Batch = 0.15 }, "more loader workers, or cheaper decoding"},
		{"a hundred would do", func(r *observe.Reading) { r.Cost.Batch = 7 }, "about four times as many loader workers (it has 2)"},
		{"two CPUs in all", func(r *observe.Reading) { r.Window.HostCPUs = 2 }, "about twice as many loader workers (it has 2)"},
		{"one CPU in all", func(r *observe.Reading) { r.Window.HostCPUs = 1 }, "cheaper decoding: for more loader workers too few CPUs are free here"},
		{"none is idle", func(r *observe.Reading) { r.Window.HostIdle = 0 }, "cheaper decoding: for more loader workers too few CPUs are free here"},
		{"four ranks share them", func(r *observe.Reading) { r.Ranks, r.Window.HostCPUs = 4, 8 }, "about twice as many loader workers (it has 2)"},
		{"four ranks share what is idle", func(r *observe.Reading) { r.Ranks, r.Window.HostCPUs, r.Window.HostIdle = 4, 64, 4 }, "about half as many loader workers again (it has 2)"},
	} {
		v := Judge(policies.DefaultConstants(), reading(func(r *observe.Reading, s func(policies.Part, float64)) {
			s(policies.PartInputWorkers, 0.5)
			r.Cost.Batch, r.Rate.Steps, r.Window.HostCPUs, r.Window.HostIdle = 0.25, true, 16, 12
			r.LoaderNs, r.LoaderBusy, r.LoaderRun = 4e9, 0.9, 0.9
			tt.edit(r)
		}))
		if v.Relief != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, v.Relief, tt.want)
		}
	}
}

// TestWorkersAdviceIsBounded: whatever a reading holds, no more workers are advised than the host
// can run, nor than four times those of today.
func TestWorkersAdviceIsBounded(t *testing.T) {
	any := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 10), rapid.SampledFrom([]float64{0, math.Inf(1), math.NaN(), 5e-324, math.MaxFloat64}))
	times := map[string]float64{"half as many": 1.5, "twice": 2, "three times": 3, "four times": 4}
	rapid.Check(t, func(rt *rapid.T) {
		r := reading(func(r *observe.Reading, _ func(policies.Part, float64)) {
			r.CostOK, r.Rate.Steps = true, true
			r.Cost.Batch, r.Cost.TrainerCPU, r.Cost.Device = any.Draw(rt, "batch"), any.Draw(rt, "trainer"), any.Draw(rt, "device")
			r.Loaders, r.Ranks = rapid.IntRange(0, 300).Draw(rt, "loaders"), rapid.IntRange(0, 16).Draw(rt, "ranks")
			r.LoaderNs, r.LoaderBusy, r.LoaderRun = any.Draw(rt, "ns"), any.Draw(rt, "busy"), any.Draw(rt, "run")
			r.Window.HostCPUs, r.Window.HostIdle = rapid.IntRange(0, 256).Draw(rt, "CPUs"), any.Draw(rt, "idle")
		})
		text := workersRelief(r)
		for words, n := range times {
			if !strings.Contains(text, "about "+words) {
				continue
			}
			if all := n * float64(max(r.Loaders, 1)*max(r.Ranks, 1)); all > workersPerCPU*float64(r.Window.HostCPUs)*(1+1e-9) {
				rt.Fatalf("%q, %.0f of all ranks, of %d CPUs", text, all, r.Window.HostCPUs)
			}
			if used := r.LoaderCPUNs() / 2e9; used > 0 && !((n-1)*used*float64(max(r.Ranks, 1)) <= r.Window.HostIdle*(1+1e-9)) {
				rt.Fatalf("%q: %.3g CPUs more of each of %d ranks, of %.3g idle", text, (n-1)*used, r.Ranks, r.Window.HostIdle)
			}
		}
		for _, digits := range regexp.MustCompile("[0-9]+").FindAllString(text, -1) {
			if digits != strconv.Itoa(r.Loaders) {
				rt.Fatalf("%q: a number that is not today's", text)
			}
		}
	})
}
