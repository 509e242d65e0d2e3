// Package lend gives containers what nobody uses: CPU above an owner's quota, memory above an
// owner's limit. A loan needs neither a counted step nor a trial, since nobody pays for it. It
// settles to what the container turned out to use, and goes back when it is of no use.
//
// The policy says what each container could use. How much of it there is, who gets it, and
// what is called back because somebody else wants it is tuner/allocate's.
package lend

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Name is the policy's name in metrics and history.
const Name = "lend"

// Policy implements policies.Policy.
type Policy struct{ k *policies.Constants }

// New returns the policy.
func New(k *policies.Constants) Policy { return Policy{k} }

// Name implements policies.Policy.
func (Policy) Name() string { return Name }

// Propose implements policies.Policy: for each container at most one plan for its CPU and one
// for its memory.
func (p Policy) Propose(node policies.Node, jobs []policies.Job) policies.Proposal {
	var out policies.Proposal
	add := func(kind policies.Kind, ch policies.Change) {
		out.Plans = append(out.Plans, policies.Plan{Policy: Name, Kind: kind, Changes: []policies.Change{ch}})
	}
	for _, j := range jobs {
		if !j.May {
			continue
		}
		if kind, ch, ok := p.cpu(node, j); ok && !j.Urgent {
			add(kind, ch)
		}
		if kind, ch, ok := p.memory(node, j); ok {
			add(kind, ch)
		}
	}
	return out
}

// cpu lends to a job that its quota stops, settles a loan that is known to be enough, and
// returns one that is of no use.
func (p Policy) cpu(node policies.Node, j policies.Job) (kind policies.Kind, ch policies.Change, ok bool) {
	own, limited := j.Original[runtime.KnobCPUQuota].CPUs()
	now, stands := j.Now[runtime.KnobCPUQuota].CPUs()
	_, periodUs, err := runtime.ParseQuota(j.Now[runtime.KnobCPUQuota])
	if !limited || !stands || err != nil {
		return "", ch, false
	}
	ceiling := node.MostCPUs(j.Enrolment, j.CPU.Crowds)
	ch = policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUQuota, From: j.Now[runtime.KnobCPUQuota]}
	to := func(cpus float64) { ch.To = runtime.QuotaFromCPUs(cpus, periodUs) }
	lent := now > own*(1+p.k.MinStep)
	back := max(own, j.Enrolment.CPU.Min) // a loan of no use goes back to no less
	switch target := max(own, roundUp(j.CPU.Enough)); {
	case lent && j.Enrolment.Loans == policies.LoansOff:
		to(own)
		ch.Take, ch.Reason = true, "loans are off"
		return policies.KindReturn, ch, true
	case lent && now > max(own, ceiling)*(1+p.k.MinStep/2):
		to(max(own, ceiling))
		ch.Take, ch.Reason = true, fmt.Sprintf("no more than %.2f CPUs may be lent to it any more", max(own, ceiling))
		return policies.KindReturn, ch, true
	case now > back*(1+p.k.MinStep) && j.CPU.LoanBrings < 0:
		to(back)
		ch.Take, ch.Reason = true, fmt.Sprintf("its rate is the same with %.2f CPUs as with %.2f", now, own)
		return policies.KindReturn, ch, true
	case now > back*(1+p.k.MinStep) && j.CPU.LoanDoubt:
		to(back)
		ch.Take, ch.Reason = true, fmt.Sprintf("its rate hardly rose with %.2f CPUs: it is measured with %.2f for a moment", now, back)
		return policies.KindReturn, ch, true
	case min(ceiling, j.CPU.Last) > now*(1+p.k.MinStep) && j.Enrolment.Loans != policies.LoansOff:
		to(min(ceiling, j.CPU.Last))
		ch.Gain = ch.To.Quantity()/now - 1
		ch.RateAfter, ch.Reason = j.Rate.PerSecond*(1+ch.Gain), fmt.Sprintf("it is a known job: %.2f CPUs were enough in its last runs (%d)", j.CPU.Last, j.CPU.LastRuns)
		return p.kind(j), ch, true
	case j.CPU.Throttled && j.Enrolment.Loans != policies.LoansOff && ceiling > now*(1+p.k.MinStep):
		switch known := j.CPU.Known; {
		case known > now*(1+p.k.MinStep): // lent anew, after it was called in
			ceiling = min(ceiling, known)
		case lent && j.CPU.HasSettled && j.CPU.Bursts > 0: // it is too little by what it lost, and all that is idle would be far too much
			ceiling = min(ceiling, math.Ceil(100*now*max(1+p.k.MinStep, 1/(1-min(j.CPU.Lost, p.k.Full))))/100)
		}
		to(ceiling)
		ch.Gain = p.gain(node, j, now)
		ch.RateAfter = j.Rate.PerSecond * (1 + ch.Gain)
		ch.Reason = fmt.Sprintf("its quota of %.2f CPUs stops it for %.0f %% of the time that it wants a CPU", now, 100*j.CPU.Lost)
		return p.kind(j), ch, true
	case lent && min(ceiling, j.CPU.Shrank) > now*(1+p.k.MinStep):
		to(min(ceiling, j.CPU.Shrank))
		ch.RateAfter = j.Rate.PerSecond
		ch.Reason = fmt.Sprintf("it uses less since its loan settled to %.2f CPUs, though nothing holds it back: it may read its quota", now)
		return p.kind(j), ch, true
	case lent && j.CPU.Enough > 0 && now >= target*(1+2*p.k.MinStep): // less frees next to nothing, and may cost a program a thread that counts whole CPUs
		to(target)
		ch.Take, ch.RateAfter = true, j.Rate.PerSecond
		ch.Reason = fmt.Sprintf("%.2f CPUs are enough: nothing held it back, and that is what it used, with a margin", target)
		if j.CPU.Bursts > 0 && target > own {
			ch.Reason = fmt.Sprintf("it works in bursts: %.2f CPUs stopped them, %.2f do not; %.2f between may be enough", j.CPU.Bursts, now, target)
		}
		return policies.KindReturn, ch, true
	}
	return "", ch, false
}

// kind is a loan, or a trial where the container's loans are to be proven. Where nothing can
// prove one but the use of it, it is lent: what is not used goes back.
func (p Policy) kind(j policies.Job) policies.Kind {
	if j.Enrolment.Loans == policies.LoansProven && !j.CPU.Unseen {
		return policies.KindTrial
	}
	return policies.KindLoan
}

// gain is the relative gain that is expected of CPU in plenty. What a step costs tells it as
// a quotient of two times, so no step needs to be counted; else the time that is lost does.
func (p Policy) gain(node policies.Node, j policies.Job, now float64) float64 {
	most := math.Inf(1)
	if j.CPU.Obtainable > 0 {
		most = j.CPU.Obtainable
	}
	if before, after := j.Cost.Step(now), j.Cost.Step(min(node.CPUs, most)); j.CPU.Bursts == 0 && j.CostOK && before > 0 && after > 0 {
		return max(0, before/after-1)
	}
	return min(j.CPU.Lost/max(1-j.CPU.Lost, 0.05), max(most, now)/now-1)
}

// roundUp rounds CPUs up to a twentieth: a number that an owner can copy.
func roundUp(cpus float64) float64 { return math.Ceil(cpus*20-1e-9) / 20 }
