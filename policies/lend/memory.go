package lend

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const mib = 1 << 20

// memory lends to a job that grows into its limit or reads again what the limit evicted, and
// takes back what turned out not to be needed, or what the host is short of.
func (p Policy) memory(node policies.Node, j policies.Job) (kind policies.Kind, ch policies.Change, ok bool) {
	m := j.Memory
	if !m.Read || m.Limit <= 0 || !j.Enrolment.Allows(runtime.KnobMemoryLimit) {
		return "", ch, false
	}
	own, limited := j.Original[runtime.KnobMemoryLimit].Int()
	lent := limited && m.Limit > float64(own)
	if j.Enrolment.Loans == policies.LoansOff {
		kind, ch, ok = p.lower(j, float64(own), "loans are off")
		return kind, ch, ok && lent
	}
	if to, why := p.protect(j); why != "" {
		return p.raise(node, j, to, 1, why)
	}
	evicts := m.Evicts(p.k)
	useless := lent && evicts && m.AtLimit && !m.Fills && m.Loan.Before > 0 && m.Loan.Seconds >= p.k.SettleReadings && !m.Loan.Helped()
	most := max(float64(own), j.Enrolment.Memory.Max, p.k.WithRoom(m.Peak))
	switch {
	case j.Urgent:
	case lent && j.Enrolment.Memory.Max > 0 && m.Limit > most*(1+p.k.MinStep):
		return p.lower(j, most, fmt.Sprintf("no more than %.0f MiB may be lent to it any more", most/mib))
	case lent && node.MemoryFree < 0:
		return p.lower(j, float64(own), "the host is short of memory")
	case useless:
		return p.lower(j, float64(own), fmt.Sprintf("with %.0f MiB it reads again as much as with %.0f", m.Limit/mib, m.Loan.From/mib))
	case m.Last >= m.Limit*(1+p.k.MinStep) && node.MemoryFree > 0:
		return p.raise(node, j, m.Last, 1, fmt.Sprintf("it is a known job: with %.0f MiB its last runs read nothing again", m.Last/mib))
	case evicts:
		kind, ch, ok = p.more(node, j)
		if !m.AtLimit { // a small step waits until it is full
			return kind, ch, ok && ch.To.Quantity() >= m.Limit*(1+p.k.Moved)
		}
		if !ok && lent && m.Loan.From > 0 && m.Loan.Before == 0 && m.Loan.Seconds >= p.k.SettleReadings { // its last runs misled
			return p.lower(j, float64(own), fmt.Sprintf("its last runs read nothing again with %.0f MiB, this one does; no more is free", m.Limit/mib))
		}
		return kind, ch, ok
	case lent && !m.Loan.Missed && m.Growth == 0 && m.SparedSeconds >= p.k.SettleReadings:
		return p.settle(j, float64(own))
	}
	return "", ch, false
}

// settle lowers a loan to what is enough. What it uses now is that, once its pages have come; where others
// evict of it the most that it used in a minute is, once that rises no more: they may do so for ever.
func (p Policy) settle(j policies.Job, own float64) (kind policies.Kind, ch policies.Change, ok bool) {
	m := j.Memory
	used, how, told := m.Current, "it reads nothing again, and uses %.0f, page cache included", !m.Fills && m.CalmSeconds >= p.k.SettleReadings
	if !m.Calm(p.k) {
		used, how, told = m.Most, "it used no more than %.0f in a minute, and others evict what it reads again", m.SparedSeconds >= p.k.UnusedSeconds && !m.Grows(p.k)
	}
	if to := max(own, p.k.WithRoom(max(used, m.Peak))); told && m.Limit >= to*(1+p.k.MinStep) {
		return p.lower(j, to, fmt.Sprintf("%.0f MiB are enough: "+how, to/mib, used/mib))
	}
	return "", ch, false
}

// more asks for what is known to be enough, else for a share of what is free.
func (p Policy) more(node policies.Node, j policies.Job) (policies.Kind, policies.Change, bool) {
	m := j.Memory
	if j.Paging.Enough && j.Paging.Set > m.Limit { // measured beats guessed
		return p.raise(node, j, p.k.WithRoom(j.Paging.Set), 1, fmt.Sprintf("%.0f MiB were enough before", j.Paging.Set/mib))
	}
	return p.raise(node, j, math.Inf(1), p.k.MemoryShare, fmt.Sprintf("it reads %.1f MiB/s again that its limit of %.0f MiB evicted", m.Reread/mib, m.Limit/mib))
}

// protect is the limit that a job needs that grows into its own; why is "" for all others. It
// is twice as far off as what counts as a risk: as long again passes until the next raise.
func (p Policy) protect(j policies.Job) (to float64, why string) {
	m := j.Memory
	if j.Verdict.Cause != policies.CauseRisk || m.Growth <= 0 {
		return 0, ""
	}
	to = max(p.k.WithRoom(m.Held)+m.Growth*2*p.k.RiskSeconds, m.Limit*(1+p.k.MinStep))
	return to, fmt.Sprintf("it holds %.0f MiB of its limit of %.0f MiB and grows by %.1f MiB/s", m.Held/mib, m.Limit/mib, m.Growth/mib)
}

// raise asks for so much, within a share of what is free.
func (p Policy) raise(node policies.Node, j policies.Job, want, share float64, why string) (policies.Kind, policies.Change, bool) {
	m := j.Memory
	to := min(want, m.Limit+share*max(0, node.MemoryFree), node.Ceiling(j.Enrolment, m))
	to = math.Floor(to/mib) * mib
	ch := limitChange(j, to)
	ch.Reason = fmt.Sprintf("%s; %.0f MiB of the host are free", why, max(0, node.MemoryFree)/mib)
	if lost := m.Evicted(j.Verdict, j.Breakdown); lost > 0 && j.Verdict.Cause != policies.CauseRisk {
		ch.Gain = lost / (1 - lost)
	}
	ch.RateAfter = j.Rate.PerSecond * (1 + ch.Gain)
	kind := p.kind(j)
	if j.Verdict.Cause == policies.CauseRisk {
		ch.Criterion, kind = policies.CriterionNoHarm, policies.KindLoan // it dies before a proof
	}
	return kind, ch, to >= m.Limit*(1+p.k.MinStep)
}

// lower takes back of what was lent; what is held stays.
func (p Policy) lower(j policies.Job, to float64, why string) (policies.Kind, policies.Change, bool) {
	m := j.Memory
	own, _ := j.Original[runtime.KnobMemoryLimit].Int()
	if to = math.Ceil(max(to, m.Floor(p.k))/mib) * mib; to < float64(own+mib) {
		to = float64(own) // to the letter, whatever its owner's unit is
	}
	ch := limitChange(j, to)
	ch.Take, ch.Criterion, ch.RateAfter, ch.Reason = true, policies.CriterionNoHarm, j.Rate.PerSecond, why
	return policies.KindReturn, ch, to < m.Limit
}

func limitChange(j policies.Job, to float64) policies.Change {
	return policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLimit, From: j.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(int64(to))}
}
