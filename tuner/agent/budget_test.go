package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/budget"
	"github.com/trimtab/trimtab/tuner/control"
)

// missingProbe is a probe that says what it does not count.
type missingProbe struct {
	probes.Probe
	missing []string
}

func (p missingProbe) Missing(string) []string { return p.missing }

// problemProbe is one that reads jobs' own counts.
type problemProbe struct {
	probes.Probe
	problems map[string]string
}

func (p problemProbe) Problem(string) map[string]string { return p.problems }

// What probes leave out shows with what the budget thins, each reason once.
func TestThinnedSaysWhatIsMissing(t *testing.T) {
	l := &Agent{budget: budget.New()}
	l.o.Probes = []Probe{
		{Probe: missingProbe{missing: []string{"libraries: a", "launches: more than 20000 a second"}}},
		{Probe: struct{ probes.Probe }{}},
		{Probe: missingProbe{missing: []string{"libraries: a"}}},
		{Probe: problemProbe{problems: map[string]string{"log": "the driver keeps none", "datagram": "more than 500 a second"}}},
	}
	want := []string{"libraries: a", "launches: more than 20000 a second", "datagram: more than 500 a second", "log: the driver keeps none"}
	if diff := cmp.Diff(want, l.thinned("c")); diff != "" {
		t.Error(diff)
	}
}

// spender is a probe whose hooks cost what they are told to, and that keeps what it was asked.
type spender struct {
	probes.Probe
	spends []probes.Spend
	thin   map[string]float64 // by hook
}

func (s *spender) Spending() []probes.Spend { return s.spends }

func (s *spender) SetDutyCycle(_, hook string, share float64) { s.thin[hook] = share }

// The agent asks what hooks cost, and has those thinned that cost a job too much: by the
// config's share, the dearest first, the kernel's never.
func TestProbesAreHeldToTheJobsBudget(t *testing.T) {
	run := func(share float64, perSecond map[string]float64) (*Agent, *spender) {
		s, hits := &spender{thin: map[string]float64{}}, map[string]float64{}
		l := &Agent{budget: budget.New(), control: control.New(control.Defaults(), func(*policies.Constants) []policies.Policy { return nil }, "x")}
		l.settings.BudgetJob = share
		l.o.Probes = []Probe{{Probe: s}}
		for i := range uint64(10) {
			l.host.AtNs = int64(i+1) * budgetEveryNs
			s.spends = nil
			for _, hook := range []string{"cuda.launch", "cuda.sync", "kernel.switch"} {
				attached, asked := s.thin[hook]
				if !asked {
					attached = 1
				}
				hits[hook] += perSecond[hook] * attached * float64(budgetEveryNs) / 1e9
				s.spends = append(s.spends, probes.Spend{Container: "c", Hook: hook, Hits: uint64(hits[hook]), HitNs: 1000})
			}
			l.keepBudget()
		}
		return l, s
	}
	// 1 µs each: 10,000 a second are 1 % of a CPU.
	dear := map[string]float64{"cuda.launch": 10000, "cuda.sync": 100, "kernel.switch": 2000}
	l, s := run(0.005, dear)
	if share, asked := s.thin["cuda.launch"]; !asked || share > 0.4 || len(s.thin) != 1 {
		t.Errorf("thinned %v, want the launches alone, to what 0.5 %% pays for", s.thin)
	}
	if spent := l.budget.Spent("c"); spent > 0.0055 {
		t.Errorf("the hooks cost %.2f %% of a CPU after all", 100*spent)
	}
	if said := l.thinned("c"); len(said) != 1 {
		t.Errorf("said of it: %q", said)
	}
	if _, s := run(0.05, dear); len(s.thin) > 0 {
		t.Errorf("thinned %v below the budget", s.thin)
	}
	if _, s := run(0, dear); len(s.thin) > 0 {
		t.Errorf("thinned %v without a budget", s.thin)
	}
	l, _ = run(0.005, map[string]float64{"kernel.switch": 20000})
	if said := l.thinned("c"); len(said) != 1 || said[0] != "the kernel's hooks alone cost 2.0 % of a CPU, more than the budget" {
		t.Errorf("what cannot be thinned is not told: %q", said)
	}
}
