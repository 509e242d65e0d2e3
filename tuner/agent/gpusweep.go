package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// maxSweepPause is the longest time between two sweeps of a container in which something waits.
const maxSweepPause = time.Minute

// sweeping is what became of the sweeps of one container.
type sweeping struct {
	done  bool
	next  time.Time
	pause time.Duration
	told  string // by the latest that said something
}

// again plans the next sweep: soon at first, then in longer and longer pauses.
func (s *sweeping) again(now time.Time) {
	s.pause = min(max(2*s.pause, guardEvery), maxSweepPause)
	s.next = now.Add(s.pause)
}

// sweepVisibility looks at each container that holds a GPU and from which nothing is hidden, until
// nothing is left there of an earlier time; what it returns are those that were looked at.
func (l *Agent) sweepVisibility(ctx context.Context, swept map[string]*sweeping) map[string]*sweeping {
	var cs []runtime.Container
	known, now := runtime.GPUView{}, map[string]*sweeping{}
	_ = l.do(ctx, func() {
		known.Names = actuator.GPUs(l.host.Devices).Names()
		for _, c := range l.all() {
			mode := l.containers[c.Key()].enrolment.Mode
			if len(c.GPUs) == 0 || c.Kubernetes || mode == "" || mode == policies.ModeOff {
				continue
			}
			s := swept[c.Key()]
			if s == nil {
				s = &sweeping{}
			}
			if now[c.Key()] = s; !s.done && !time.Now().Before(s.next) {
				cs = append(cs, c)
			}
		}
	})
	hiding := l.o.Visibility.Hiding()
	for _, c := range cs {
		if _, hidden := hiding[c.Key()]; hidden {
			continue
		}
		s := now[c.Key()]
		done, notes, err := l.o.Visibility.Sweep(ctx, c, known)
		s.done = done || err != nil // not again and again at files that cannot be read
		s.again(time.Now())
		if text := strings.Join(slices.Sorted(slices.Values(notes)), "; "); text != "" && text != s.told {
			s.told = text
			l.reply(ctx, func() { l.visibilityRestored(c.Key(), c.Name, false, notes, nil, "") })
		}
	}
	return now
}
