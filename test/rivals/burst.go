package rivals

import (
	"math"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// Koordinator's published constants: koordinator-sh/koordinator, pkg/koordlet/qosmanager/
// plugins/cpuburst/cpu_burst.go, plugins/cpusuppress/cpu_suppress.go, framework/config.go;
// pkg/util/sloconfig/nodeslo_config.go for the defaults of the strategies. Both are off by
// default; here both are on, with the policies "auto" and "cfsQuota".
const (
	koordEvery     = time.Second // ReconcileIntervalSeconds, CPUSuppressIntervalSeconds
	koordUp        = 1.2         // cfsIncreaseStep
	koordDown      = 0.8         // cfsDecreaseStep
	koordCeiling   = 3.0         // CFSQuotaBurstPercent 300
	koordShare     = 0.50        // SharePoolThresholdPercent 50
	koordCooling   = 0.9         // sharePoolCoolingThresholdRatio
	koordOver      = 5           // overload is judged over five intervals
	koordSuppress  = 0.65        // CPUSuppressThresholdPercent 65
	koordSuppressN = 0.01        // suppressBypassQuotaDeltaRatio, of the node's CPUs
	koordRise      = 0.1         // beMaxIncreaseCPUPercent, of the node's CPUs
	koordLeast     = 0.02        // beMinQuota 2000 µs
)

// burst lets the quota of throttled containers grow while the node has room, and
// holds best-effort ones to what the others leave.
type burst struct {
	base    map[string]float64 // the owner's quota, CPUs
	useOf   []float64          // of the node, latest last
	granted map[string]float64 // of best-effort containers; absent: not suppressed yet
}

func newBurst() *burst {
	return &burst{base: map[string]float64{}, granted: map[string]float64{}}
}

func (*burst) Every() time.Duration { return koordEvery }

type nodeState int

const (
	idle nodeState = iota
	cooling
	overload
)

func (b *burst) Decide(_ time.Duration, n Node, all []Seen) map[string]runtime.Values {
	var bestEffort, others float64
	for _, c := range all {
		if isBestEffort(c) {
			bestEffort += c.UsedCPUs
		} else {
			others += c.UsedCPUs
		}
	}
	if b.useOf = append(b.useOf, n.UsedCPUs-bestEffort); len(b.useOf) > koordOver {
		b.useOf = b.useOf[1:]
	}
	state := b.state(n)
	out := map[string]runtime.Values{}
	var suppressed []Seen
	for _, c := range byKey(all) {
		switch {
		case !c.Tuned:
		case isBestEffort(c):
			suppressed = append(suppressed, c)
		default:
			if set := b.grow(c, state); len(set) > 0 {
				out[c.Key] = set
			}
		}
	}
	b.suppress(n, others, bestEffort, suppressed, out)
	return out
}

func isBestEffort(c Seen) bool { return c.Labels[LabelBestEffort] == "true" }

func (b *burst) state(n Node) nodeState {
	var mean float64
	for _, u := range b.useOf {
		mean += u / float64(len(b.useOf))
	}
	switch use := mean / n.CPUs; {
	case use >= koordShare:
		return overload
	case use >= koordShare*koordCooling:
		return cooling
	default:
		return idle
	}
}

// grow is CFS quota burst.
func (b *burst) grow(c Seen, state nodeState) runtime.Values {
	now, limited := c.Now[runtime.KnobCPUQuota].CPUs()
	base, known := b.base[c.Key]
	if !known {
		if !limited {
			return nil
		}
		b.base[c.Key], base = now, now
	}
	to := now
	switch {
	case state == overload:
		to = now * koordDown
	case c.Throttled && state == idle:
		to = now * koordUp
	}
	set := runtime.Values{}
	if to = max(base, min(to, base*koordCeiling)); math.Abs(to-now) > 1e-6 {
		set[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(to, runtime.DefaultPeriodUs)
	}
	return set
}

// suppress divides what the threshold and the others leave among the best-effort
// containers; Koordinator sets it on their common parent, which Docker's have not.
func (b *burst) suppress(n Node, others, bestEffort float64, all []Seen, out map[string]runtime.Values) {
	if len(all) == 0 {
		return
	}
	system := max(0, n.UsedCPUs-others-bestEffort)
	want := max(koordLeast, n.CPUs*koordSuppress-others-system)
	var sum float64
	for _, c := range all {
		sum += b.granted[c.Key]
	}
	if sum > 0 {
		if math.Abs(want-sum) < koordSuppressN*n.CPUs {
			return
		}
		want = min(want, sum+koordRise*n.CPUs)
	}
	for _, c := range all {
		b.granted[c.Key] = want / float64(len(all))
		out[c.Key] = runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(max(koordLeast, b.granted[c.Key]), runtime.DefaultPeriodUs)}
	}
}
