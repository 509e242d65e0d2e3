package rivals

import (
	"math"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// The Vertical Pod Autoscaler's published rules. Flags and their defaults: kubernetes/
// autoscaler, vertical-pod-autoscaler/docs/flags.md; code: pkg/recommender/logic/
// recommender.go and estimator.go, pkg/recommender/model/aggregations_config.go,
// pkg/updater/priority/update_priority_calculator.go.
const (
	vpaTarget        = 0.90      // --target-cpu-percentile, --target-memory-percentile
	vpaLower         = 0.50      // --recommendation-lower-bound-cpu-percentile, …-memory-…
	vpaUpper         = 0.95      // --recommendation-upper-bound-cpu-percentile, …-memory-…
	vpaMargin        = 0.15      // --recommendation-margin-fraction
	vpaMinCPU        = 0.025     // --pod-recommendation-min-cpu-millicores
	vpaMinMemory     = 250 << 20 // --pod-recommendation-min-memory-mb
	vpaGrowth        = 0.05      // DefaultHistogramBucketSizeGrowth
	vpaFirstCPU      = 0.01      // the first bucket, cores
	vpaFirstMemory   = 1e7       // the first bucket, bytes
	vpaMinWeight     = 0.1       // minSampleWeight: a CPU sample weighs as much as its request, in cores
	vpaOOMBump       = 1.2       // --oom-bump-up-ratio
	vpaOOMMinBump    = 100 << 20 // --oom-min-bump-up-bytes
	vpaUpdateAtLeast = 0.1       // --pod-update-threshold
)

// Its published times: a sample and a recommendation a minute, an update a minute,
// usage that loses half its weight in a day, a pod of half a day that may be changed
// inside its bounds. In a run of a minute they would come to nothing; so its clock is
// run faster, all of it alike, and the run says by how much.
const (
	vpaInterval = time.Minute    // --recommender-interval, --updater-interval
	vpaHalfLife = 24 * time.Hour // --cpu-histogram-decay-half-life, --memory-…
	vpaDay      = 24 * time.Hour // --confidence-interval-cpu, -memory; a memory peak is of a day
	vpaInBounds = 12 * time.Hour // --in-recommendation-bounds-eviction-lifetime-threshold
)

// percentile recommends a high percentile of past use, with a margin.
type percentile struct {
	speed float64
	pods  map[string]*pod
}

type pod struct {
	first, at   time.Duration // in its own time
	samples     int
	cpu, memory histogram
	peak        float64 // of memory, in the current day
	peakFrom    time.Duration
	ooms        uint64
	request     float64 // CPUs, as the owner asked for at the start or as was set since
	ratio       float64 // of limit to request, which an update keeps
	limited     bool
}

func newPercentile(speed float64) *percentile {
	return &percentile{speed: max(1, speed), pods: map[string]*pod{}}
}

func (p *percentile) Every() time.Duration { return time.Duration(float64(vpaInterval) / p.speed) }

func (p *percentile) Decide(at time.Duration, n Node, all []Seen) map[string]runtime.Values {
	at = time.Duration(float64(at) * p.speed)
	out := map[string]runtime.Values{}
	for _, c := range byKey(all) {
		if !c.Tuned {
			continue
		}
		s := p.pods[c.Key]
		if s == nil {
			s = newPod(at, c)
			p.pods[c.Key] = s
		}
		s.take(at, c)
		if set := s.update(at, n, c); len(set) > 0 {
			out[c.Key] = set
		}
	}
	return out
}

// newPod takes the owner's quota as limit and request, which is what Kubernetes makes of
// a limit alone; without one, the weight as a request of so many CPUs.
func newPod(at time.Duration, c Seen) *pod {
	s := &pod{first: at, at: at, peakFrom: at, ooms: c.OOMKills, ratio: 1,
		cpu: histogram{first: vpaFirstCPU, start: at}, memory: histogram{first: vpaFirstMemory, start: at}}
	if s.request, s.limited = c.Now[runtime.KnobCPUQuota].CPUs(); !s.limited {
		w, _ := c.Now[runtime.KnobCPUWeight].Int()
		s.request = float64(w) / equalWeight
	}
	return s
}

func (s *pod) take(at time.Duration, c Seen) {
	s.at = at
	s.samples++
	s.cpu.add(at, c.UsedCPUs, max(s.request, vpaMinWeight))
	if at-s.peakFrom >= vpaDay {
		s.peak, s.peakFrom = 0, at
	}
	seen := c.WorkingSet
	if c.OOMKills > s.ooms {
		s.ooms = c.OOMKills
		seen = max(seen+vpaOOMMinBump, seen*vpaOOMBump)
	}
	if seen > s.peak { // one sample an interval: its peak so far
		if s.peak > 0 {
			s.memory.add(s.peakFrom, s.peak, -1)
		}
		s.peak = seen
		s.memory.add(s.peakFrom, s.peak, 1)
	}
}

// confidence is days of samples, one a minute.
func (s *pod) confidence() float64 {
	return min(float64(s.at-s.first)/float64(vpaDay), float64(s.samples)/(60*24))
}

// bounds of one resource: target, and the range in which nothing is evicted.
func (s *pod) bounds(h *histogram, least float64) (target, lower, upper float64) {
	of := func(q float64) float64 { return h.percentile(q) * (1 + vpaMargin) }
	target = max(of(vpaTarget), least)
	c := s.confidence()
	if c <= 0 {
		return target, least, math.Inf(1)
	}
	return target, max(of(vpaLower)*math.Pow(1+0.001/c, -2), least), max(of(vpaUpper)*(1+1/c), least)
}

// update is the updater's rule: outside its bounds at once, inside them after half a
// day and for at least a tenth.
func (s *pod) update(at time.Duration, n Node, c Seen) runtime.Values {
	target, lower, upper := s.bounds(&s.cpu, vpaMinCPU)
	target = min(target, n.CPUs)
	set := runtime.Values{}
	if s.due(at, s.request, target, lower, upper) {
		s.request = target
		set[runtime.KnobCPUWeight] = runtime.IntValue(max(2, int64(target*equalWeight+0.5)))
		if s.limited {
			set[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(target*s.ratio, runtime.DefaultPeriodUs)
		}
	}
	if limit, limited := c.Now[runtime.KnobMemoryLimit].Int(); limited {
		target, lower, upper = s.bounds(&s.memory, vpaMinMemory)
		if s.due(at, float64(limit), target, lower, upper) {
			set[runtime.KnobMemoryLimit] = runtime.IntValue(int64(target))
			set[runtime.KnobMemorySwap] = runtime.IntValue(int64(target))
		}
	}
	return set
}

func (s *pod) due(at time.Duration, now, target, lower, upper float64) bool {
	if now < lower || now > upper {
		return true
	}
	return at-s.first >= vpaInBounds && math.Abs(target-now)/now >= vpaUpdateAtLeast
}

// histogram has buckets that grow by a twentieth, and samples that decay.
type histogram struct {
	first  float64
	start  time.Duration
	weight []float64
}

func (h *histogram) bucket(v float64) int {
	if v < h.first {
		return 0
	}
	return int(math.Log(v*vpaGrowth/h.first+1) / math.Log(1+vpaGrowth))
}

// end is the upper bound of a bucket, which is what the recommender answers with.
func (h *histogram) end(i int) float64 {
	return h.first * (math.Pow(1+vpaGrowth, float64(i+1)) - 1) / vpaGrowth
}

func (h *histogram) add(at time.Duration, v, weight float64) {
	i := h.bucket(v)
	for len(h.weight) <= i {
		h.weight = append(h.weight, 0)
	}
	h.weight[i] += weight * math.Exp2(float64(at-h.start)/float64(vpaHalfLife))
}

func (h *histogram) percentile(q float64) float64 {
	var sum float64
	for _, w := range h.weight {
		sum += w
	}
	if sum <= 0 {
		return 0
	}
	var so float64
	for i, w := range h.weight {
		if so += w; so >= q*sum {
			return h.end(i)
		}
	}
	return h.end(len(h.weight) - 1)
}
