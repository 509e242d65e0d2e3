package rivals

import (
	"math"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

func box(name string, quota float64, labels map[string]string) Seen {
	now := runtime.Values{runtime.KnobCPUQuota: runtime.Quota(-1, runtime.DefaultPeriodUs), runtime.KnobCPUWeight: "1024", runtime.KnobMemoryLimit: "max"}
	if quota > 0 {
		now[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(quota, runtime.DefaultPeriodUs)
	}
	return Seen{Key: name, Name: name, Labels: labels, Tuned: true, Now: now}
}

var two = Node{CPUs: 2}

func quota(t *testing.T, v runtime.Values) float64 {
	t.Helper()
	cpus, ok := v[runtime.KnobCPUQuota].CPUs()
	if !ok {
		t.Fatalf("no quota in %v", v)
	}
	return cpus
}

func TestFreeAndProportional(t *testing.T) {
	stranger := box("s", 0, nil)
	stranger.Tuned = false
	all := []Seen{box("a", 0.5, nil), box("b", 0.5, map[string]string{LabelGPUs: "2"}), stranger}
	got := free{}.Decide(0, two, all)
	if len(got) != 2 || got["a"][runtime.KnobCPUQuota] != "max 100000" || got["b"][runtime.KnobCPUWeight] != "1024" {
		t.Errorf("free: %v", got)
	}
	got = proportional{}.Decide(0, two, all)
	if a, b := quota(t, got["a"]), quota(t, got["b"]); len(got) != 2 || a != 0.5 || b != 1 || got["b"][runtime.KnobCPUWeight] != "2048" {
		t.Errorf("proportional: %v", got)
	}
}

func TestHistogramIsVPAs(t *testing.T) {
	h := histogram{first: vpaFirstCPU}
	for range 95 {
		h.add(0, 0.2, 1)
	}
	for range 5 {
		h.add(0, 1, 1)
	}
	if p := h.percentile(0.9); p < 0.2 || p > 0.22 {
		t.Errorf("90 %% is %.3f: a bucket's end is at most a twentieth above what is in it", p)
	}
	if p := h.percentile(0.97); p < 1 || p > 1.06 {
		t.Errorf("97 %% is %.3f", p)
	}
	h.add(2*vpaHalfLife, 1, 30) // 120 of then
	if p := h.percentile(0.5); p < 1 {
		t.Errorf("half is %.3f after two half-lives: old samples still rule", p)
	}
}

// TestPercentileGrowsTheStarved: a container at its limit has that as its use, so the
// recommendation is a margin above it, again and again; the updater waits for its bounds.
func TestPercentileGrowsTheStarved(t *testing.T) {
	p := newPercentile(60)
	if p.Every() != time.Second {
		t.Fatalf("every %s", p.Every())
	}
	c, first := box("a", 0.3, nil), time.Duration(0)
	for at := time.Second; at < 2*time.Minute; at += time.Second {
		now, _ := c.Now[runtime.KnobCPUQuota].CPUs()
		c.UsedCPUs = min(now, 0.9)
		for k, v := range p.Decide(at, two, []Seen{c})["a"] {
			if c.Now[k] = v; first == 0 {
				first = at
			}
		}
	}
	now, _ := c.Now[runtime.KnobCPUQuota].CPUs()
	if first < 10*time.Second || first > 40*time.Second {
		t.Errorf("first change after %s: its lower bound says 0.87 of the limit after about 20 s", first)
	}
	if now <= 0.36 || now > 0.9*(1+vpaMargin)*1.06 {
		t.Errorf("%.2f CPUs after two minutes", now)
	}
}

func TestPercentileOwnSpeedDoesNothingInAMinute(t *testing.T) {
	p := newPercentile(1)
	c := box("a", 0.3, nil)
	c.UsedCPUs = 0.3
	if p.Every() != time.Minute || len(p.Decide(time.Minute, two, []Seen{c})) != 0 {
		t.Error("it should do nothing in a minute")
	}
}

func TestPercentileMemory(t *testing.T) {
	p := newPercentile(60)
	c := box("a", 0.3, nil)
	c.UsedCPUs, c.WorkingSet = 0.25, 400<<20
	c.Now[runtime.KnobMemoryLimit] = runtime.IntValue(300 << 20)
	var got runtime.Value
	for at := time.Second; at < time.Minute && got == ""; at += time.Second {
		got = p.Decide(at, two, []Seen{c})["a"][runtime.KnobMemoryLimit]
	}
	if n, ok := got.Int(); !ok || float64(n) < 1.15*400*(1<<20) || float64(n) > 1.3*400*(1<<20) {
		t.Errorf("memory limit %q", got)
	}
}

func TestBurst(t *testing.T) {
	b := newBurst()
	c := box("a", 0.5, nil)
	c.Throttled = true
	quiet := Node{CPUs: 2, UsedCPUs: 0.6}
	for range 10 {
		if set := b.Decide(0, quiet, []Seen{c})["a"]; set[runtime.KnobCPUQuota] != "" {
			c.Now[runtime.KnobCPUQuota] = set[runtime.KnobCPUQuota]
		}
	}
	if now, _ := c.Now[runtime.KnobCPUQuota].CPUs(); math.Abs(now-1.5) > 1e-9 {
		t.Errorf("%.2f CPUs, want three times its own 0.5", now)
	}
	full := Node{CPUs: 2, UsedCPUs: 1.8}
	for range 15 {
		if set := b.Decide(0, full, []Seen{c})["a"]; set[runtime.KnobCPUQuota] != "" {
			c.Now[runtime.KnobCPUQuota] = set[runtime.KnobCPUQuota]
		}
	}
	if now, _ := c.Now[runtime.KnobCPUQuota].CPUs(); math.Abs(now-0.5) > 1e-9 {
		t.Errorf("%.2f CPUs on a node over half full, want its own 0.5", now)
	}
	if set := newBurst().Decide(0, quiet, []Seen{box("free", 0, nil)}); len(set) != 0 {
		t.Errorf("sets %v where there is no limit", set)
	}
}

func TestSuppress(t *testing.T) {
	b := newBurst()
	be := box("be", 0, map[string]string{LabelBestEffort: "true"})
	be.UsedCPUs = 0.8
	ls := box("ls", 0, nil)
	ls.UsedCPUs = 0.9
	got := b.Decide(0, Node{CPUs: 2, UsedCPUs: 1.8}, []Seen{be, ls})
	if q := quota(t, got["be"]); math.Abs(q-(2*koordSuppress-0.9-0.1)) > 1e-9 {
		t.Errorf("%.2f CPUs for best effort", q)
	}
	ls.UsedCPUs = 0
	got = b.Decide(0, Node{CPUs: 2, UsedCPUs: 0.9}, []Seen{be, ls})
	if q := quota(t, got["be"]); math.Abs(q-0.5) > 1e-9 { // a tenth of the node more at once
		t.Errorf("%.2f CPUs for best effort when the others are gone", q)
	}
}

// TestClimbFindsTheStarved: one container gains from quota, the other does not.
func TestClimbFindsTheStarved(t *testing.T) {
	c := newClimb()
	a, b := box("a", 0.5, nil), box("b", 0.5, nil)
	for range 200 {
		qa, _ := a.Now[runtime.KnobCPUQuota].CPUs()
		qb, _ := b.Now[runtime.KnobCPUQuota].CPUs()
		a.Rate, b.Rate = 10*min(1, qa/1.2), 10*min(1, qb/0.2)
		for key, set := range c.Decide(0, two, []Seen{a, b}) {
			s := map[string]*Seen{"a": &a, "b": &b}[key]
			now := s.Now.Clone()
			now[runtime.KnobCPUQuota] = set[runtime.KnobCPUQuota]
			s.Now = now
		}
	}
	qa, _ := a.Now[runtime.KnobCPUQuota].CPUs()
	qb, _ := b.Now[runtime.KnobCPUQuota].CPUs()
	if qa < 1 || qb > 0.7 {
		t.Errorf("%.2f and %.2f CPUs", qa, qb)
	}
}

func TestNamesAreKnown(t *testing.T) {
	for _, name := range Names() {
		if r, err := New(name, 60); err != nil || r.Every() <= 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New("none", 1); err == nil {
		t.Error("an unknown rival was made")
	}
}
