package loop

import (
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/enrol"
)

// Facts are what the core needs to know of a container beside its readings; see
// core.Container.
type Facts struct {
	Pinned     string
	LowReaches bool
	Above      enrol.Above // bounds its enrolment
}

// factsEvery is how often they are renewed: they cost a look at each thread.
const factsEvery = 30 * time.Second

// renewFacts looks at what may be tuned; what is only observed is told the same.
func (l *Loop) renewFacts(t *tracked) {
	if l.o.Facts == nil || t.enrolment.Mode == policies.ModeOff || !t.watched || time.Since(t.factsAt) < factsEvery {
		return
	}
	t.facts, t.factsAt = l.o.Facts(t.c, t.enrolment), time.Now()
}
