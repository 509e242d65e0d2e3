package loop

import (
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/enrol"
)

// Facts are what is known of a container beside its readings, and what may be done with it
// depends on.
type Facts struct {
	Above enrol.Above // bounds its enrolment
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
