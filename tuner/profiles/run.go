package profiles

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
)

// keepEveryNs is how often it is kept what a run has come to, and leastRunNs how long it must have
// run: a crash costs so much, and what ends sooner is no run.
const (
	keepEveryNs = 15e9
	leastRunNs  = 20e9
	// nearShare is by how much what is kept may be off before it is kept anew, keepAtLeastNs for how long.
	nearShare     = 0.03
	keepAtLeastNs = 3600e9
)

// Run follows one container as a run of a job. The zero Run is of a container of which nothing is
// known at its start, and does nothing.
type Run struct {
	start           *Start
	id              RunID
	device          string
	beganNs, keptNs int64
	last            LastRuns
	took            []string
	given, judged   bool    // CPUs of the last runs stand; told whether that was right
	quotas, all     quotas  // what was enough, and all that could be lent where it wanted that
	memory          float64 // bytes that were enough last
	libraries       string
	kept            End
	keptAs          uint64 // the entry that it taught then
	pacer           Pacer
	slower          *Slower
	told            bool // that it is
}

// Shown is what is known of a container from earlier runs of the same job.
type Shown struct {
	Job   string `json:"job"` // its identity's: a keyed hash
	Entry uint64 `json:"entry,omitempty"`
	Runs  int    `json:"runs"` // that are remembered; 0: it never ran
	// CPUs and Memory (bytes) are what they ended with, as far as that is acted on; 0: not.
	CPUs   float64 `json:"cpus,omitempty"`
	Memory float64 `json:"memory,omitempty"`
	// PerSecond is the rate that is expected on this host, between Low and High in 95 % of runs (0: too
	// few tell), in the unit of Source.
	PerSecond float64  `json:"perSecond,omitempty"`
	Low       float64  `json:"low,omitempty"`
	High      float64  `json:"high,omitempty"`
	Source    string   `json:"source,omitempty"`
	Took      []string `json:"took,omitempty"`  // what was taken over at its start, for people
	Doubt     string   `json:"doubt,omitempty"` // why nothing is
	// Slower is the share of the usual rate that is missing; 0: it is as fast as usual, or that is
	// not known. SlowerWhy says it in words.
	Slower    float64 `json:"slower,omitempty"`
	SlowerWhy string  `json:"slowerWhy,omitempty"`
}

// Begin looks a container up that starts. key tells it from all others where the start does not, and where
// an earlier version kept what it had come to.
func (r *Run) Begin(b *Store, s *Start, key, device string, nowNs int64) {
	if s == nil || !s.Identity.Known() {
		return
	}
	*r = Run{start: s, device: device, beganNs: nowNs, id: cmp.Or(s.Run, RunOf(key)), pacer: Pacer{late: !s.Fresh}}
	r.last = b.LastRuns(*s, device, r.id)
	if last := b.LastRuns(*s, device, RunOf(key)); r.last.Own == nil && last.Own != nil {
		r.id, r.last = RunOf(key), last
	}
	if r.last.Own != nil {
		r.quotas.most, r.memory, r.libraries = r.last.Own.CPUs, r.last.Own.Memory, r.last.Own.Libraries
	}
}

// Last is what is to be taken over of the last runs, and has not been: CPUs and bytes; 0: nothing.
func (r *Run) Last(k *policies.Constants) (cpus, memory float64) {
	if r.last.Memory > 0 {
		memory = k.WithRoom(r.last.Memory)
	}
	return r.last.CPUs, memory
}

// Entry is the known job whose curves it begins with; 0: none, or its last runs came to different ends.
func (r *Run) Entry() uint64 {
	if r.last.Doubt != "" {
		return 0
	}
	return r.last.Entry
}

// Runs is how many runs what is taken over rests on.
func (r *Run) Runs() int { return r.last.Runs }

// Written notes a raise of a limit that stands, and returns whether it was the one that the last
// runs told of. What came before it is another pace.
func (r *Run) Written(k runtime.Knob, to float64) (cpus float64) {
	r.pacer.anew("")
	switch {
	case r.start == nil:
	case k == runtime.KnobCPUQuota && r.last.CPUs > 0:
		known := r.last.CPUs
		if r.last.CPUs = 0; to > known*1.01 {
			return 0 // lent for another reason
		}
		if to >= known*0.99 { // else no more was free
			cpus, r.given = known, true
		}
		r.took = append(r.took, fmt.Sprintf("a quota of %.2f CPUs", to))
	case k == runtime.KnobMemoryLimit && r.last.Memory > 0:
		r.took, r.last.Memory = append(r.took, fmt.Sprintf("a memory limit of %.0f MiB", to/(1<<20))), 0
	}
	return cpus
}

// Rate takes in a reading of the rate, and reports whether the run has turned out slower than usual:
// once in a run. It counts as slower until half of what was missing is back. now is what it has come to, asked for where that is to be judged.
func (r *Run) Rate(source string, sample observe.RateSample, now func() End) (alarm *Slower) {
	if r.start == nil || !observe.Counted(source) || !r.pacer.Add(source, sample) {
		return nil
	}
	e := r.complete(now())
	u, ok := UsualOf(*r.start, r.last.Ends, source)
	if !ok {
		r.slower = nil
		return nil
	}
	if slow := u.Slower(&r.pacer, e); slow != nil || r.slower == nil || r.recovered(u) {
		r.slower = slow
	}
	if r.slower == nil || r.told {
		return nil
	}
	r.told = true
	return r.slower
}

// Missed notes that it may have made steps that Rate is not given.
func (r *Run) Missed() { r.pacer.late = r.pacer.late || r.pacer.blocks < 2 }

// recovered reports whether half of what was missing is back. Where the first steps told it, the phases that
// are in the usual rate have to come first.
func (r *Run) recovered(u Usual) bool {
	return (!r.slower.early || r.pacer.blocks >= stretchBlocks) && u.below(&r.pacer) < -math.Log(1-r.slower.Below/2)
}

// complete adds to what a run has come to where it ran, and as what.
func (r *Run) complete(e End) End {
	s, i := r.start, r.start.Identity
	e.Run, e.Numbers, e.Pace = r.id, i.Numbers[:min(len(i.Numbers), maxEndNumbers)], r.pacer.Pace()
	e.Job, e.Host, e.Kernel, e.Driver, e.Image, e.Data = i.Job, s.Host, clip(s.Kernel), clip(s.Driver), i.Image, i.Data
	if e.Device = cmp.Or(e.Device, clip(r.device)); e.Blocks > 0 {
		e.Source = r.pacer.source
	}
	if r.libraries == "" && e.Blocks > 0 { // later it maps more, as to evaluate or to write checkpoints, and at its end none
		r.libraries = e.Libraries
	}
	e.Libraries = r.libraries
	return e
}

// Due reports whether what the run has come to is to be kept: from time to time, and at its end.
func (r *Run) Due(nowNs int64, ended bool) bool {
	return r.start != nil && nowNs-r.beganNs >= leastRunNs && (ended || nowNs-r.keptNs >= keepEveryNs)
}

// Keep keeps what the run has come to, if that is anything, and anything new. entry is what the container
// teaches; 0: none. all is the CPUs that it has, where no more may be lent to it and it wants them; else 0.
func (r *Run) Keep(b *Store, entry uint64, name string, e End, all float64, nowNs int64, ended bool) {
	r.keptNs = nowNs
	r.quotas.add(e.CPUs, nowNs)
	r.all.add(all, nowNs)
	most := r.quotas.most
	if r.all.most > 0 && r.all.times > r.quotas.times { // a burst is no reason to take all again
		most = r.all.most
	}
	r.memory = cmp.Or(e.Memory, r.memory)
	e.CPUs, e.Memory = cmp.Or(most, e.CPUs, all), r.memory
	if e = r.complete(e); e.CPUs == 0 && e.Memory == 0 && e.Blocks == 0 {
		return
	}
	if right := math.Abs(math.Log(most/r.last.Expected)) <= math.Log(agreeWithin); ended && most > 0 && r.last.Expected > 0 && !r.judged && (right || r.given) {
		r.judged = true
		b.Recalled(r.last.Entry, right)
	}
	if !ended && entry == r.keptAs && e.near(r.kept) {
		return
	}
	r.kept, r.keptAs = e, entry
	if r.start.Passing {
		entry = 0
	}
	b.End(entry, *r.start, name, e)
}

// quotas finds the largest quota that was enough for a while: a job that prepares its data, or writes
// its results, needs little then, and its next run all the same as much as it worked with.
type quotas struct {
	last [3]float64 // two keepEveryNs apart from first to last
	ns   int64
	most float64 // of what stood so long; 0: none yet
	// times is how often there was one.
	times int
}

func (q *quotas) add(cpus float64, ns int64) {
	if cpus > 0 && (q.ns == 0 || ns-q.ns >= keepEveryNs) {
		q.last, q.ns, q.times = [3]float64{q.last[1], q.last[2], cpus}, ns, q.times+1
		q.most = max(q.most, slices.Min(q.last[:]))
	}
}

// near reports whether what a run has come to is hardly another than was kept: a host at rest writes
// nothing to its disk.
func (e End) near(kept End) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) <= nearShare*max(a, b) }
	paced := func(a, b float32) bool { return near(float64(a), float64(b)) }
	return kept.Run == e.Run && e.UnixNs-kept.UnixNs < keepAtLeastNs && near(e.CPUs, kept.CPUs) && near(e.Allowed, kept.Allowed) && near(e.Memory, kept.Memory) &&
		paced(e.Rate, kept.Rate) && paced(e.Slowest, kept.Slowest) && paced(e.Least, kept.Least) && paced(e.First, kept.First) && float64(e.Blocks) <= 1.25*float64(kept.Blocks) && math.Abs(float64(e.Queued-kept.Queued)) < nearShare &&
		e.Shared == kept.Shared && e.Device == kept.Device && e.Source == kept.Source && e.Libraries == kept.Libraries && e.Ranks == kept.Ranks && e.Loaders == kept.Loaders
}

// Show tells people of it; nil where nothing is known at the start.
func (r *Run) Show() *Shown {
	if r.start == nil {
		return nil
	}
	out := &Shown{Job: r.start.Identity.Job, Entry: r.last.Entry, Runs: len(r.last.Ends), CPUs: r.last.Agreed, Memory: r.last.Set, Took: slices.Clone(r.took), Doubt: r.last.Doubt}
	u, ok := UsualOf(*r.start, r.last.Ends, r.pacer.source)
	if out.PerSecond, out.Source = u.PerSecond, u.Source; ok {
		out.Low, out.High = u.Low, u.High
	}
	if r.slower != nil {
		out.Slower, out.SlowerWhy = r.slower.Below, r.slower.String()
	}
	return out
}

// EndOf is what a container's latest window says of its run.
func EndOf(r *observe.Reading, p policies.Paging, devices []probes.Device, key string) End {
	e := End{Setting: Setting{Device: FactsOf("", key, devices).Device, Ranks: r.Ranks, Loaders: r.Loaders, Shared: len(r.SharedWith) > 0},
		Queued: float32(min(1, r.Breakdown.Share(policies.PartContended)+r.Breakdown.Share(policies.PartInputContended)))}
	if w := r.Window; w != nil {
		ranks := slices.DeleteFunc(slices.Clone(w.Facts), func(p probes.Process) bool {
			return !slices.ContainsFunc(r.Peers, func(q observe.Peer) bool { return q.Root == p.TGID })
		})
		if len(ranks) > 0 { // the slowest is now this one, now that, and one alone may write logs
			e.Libraries = slices.MinFunc(ranks, func(a, b probes.Process) int { return cmp.Compare(a.Rank, b.Rank) }).Libraries
		}
	}
	if p.Enough {
		e.Memory = p.Set
	}
	return e
}

// FirstRoot is the training process by which a container's job is told from the next one there; 0: none.
func FirstRoot(r observe.Reading) int32 {
	if len(r.Peers) == 0 {
		return 0
	}
	return slices.MinFunc(r.Peers, func(a, b observe.Peer) int { return int(a.Root) - int(b.Root) }).Root
}

// Granted names the models of the devices that a container was granted.
func Granted(devices []probes.Device, granted []policies.Device) (model string) {
	for _, d := range devices {
		if slices.ContainsFunc(granted, func(g policies.Device) bool { return g.Device == d.UUID }) {
			model = joined(model, d.Name)
		}
	}
	return model
}

// joined adds a model to models, once in a row.
func joined(models, model string) string {
	switch {
	case models == "":
		return model
	case model == models:
		return models
	}
	return models + " and " + model
}

// FactsOf are what a window does not hold of a container: its image, the devices that it holds, and
// the memory of them that it uses.
func FactsOf(image, key string, devices []probes.Device) Facts {
	f := Facts{Image: image}
	for _, d := range devices {
		held := false
		for _, p := range d.Processes {
			if p.Container == key && !p.Graphics {
				held, f.VRAM = true, f.VRAM+float64(p.MemBytes)
			}
		}
		if held {
			f.Device = joined(f.Device, d.Name)
		}
	}
	return f
}

// maxModels bounds the models of device that a speed is predicted on.
const maxModels = 8

// Models are those of the usable devices, sorted.
func Models(devices []probes.Device) (out []string) {
	sliced := map[string]bool{}
	for _, d := range devices {
		sliced[d.Parent] = true
	}
	for _, d := range devices {
		if d.Lost == "" && d.Name != "" && !sliced[d.UUID] {
			out = append(out, d.Name)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxModels)]
}
