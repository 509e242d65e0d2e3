package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// watched are the knobs that no runtime takes through a third value on the way from what stands to what is
// asked for. Of a weight on v2 it first writes the one that the container was made with.
//
//trimtab:table knobs whose values in between are somebody's
var watched = [...]runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCpuset, runtime.KnobMemoryLimit, runtime.KnobMemoryHigh, runtime.KnobMemoryLow}

// lookEvery is how often what stands is read while an engine writes. A write takes 20 ms and, on a busy
// machine, seconds; from its 50th look on each waits for lookPart of the time so far, for one that hangs
// shall cost no CPU. What stood for less before ours came over it is lost: of 720 quotas set at random
// instants of a write seven were, and a fifth without looking.
const (
	lookEvery = time.Millisecond
	lookPart  = 50
)

// keepMeanwhile writes, and then once more what somebody else set meanwhile: the write carried
// all values that were read before, and the older ones of those (runtime/containerd, the trap).
func (h Host) keepMeanwhile(ctx context.Context, c runtime.Container, stands, want runtime.Values,
	write func(ctx context.Context, stands, want runtime.Values) error) error {
	end := h.look(ctx, c, stands, want)
	err := write(ctx, stands, want)
	theirs := end()
	for range 3 { // who sets it in a loop has the last word without us
		now, errRead := h.Read(ctx, c)
		for knob, v := range theirs {
			if errRead != nil || knob.Same(v, now[knob]) {
				delete(theirs, knob)
			}
		}
		if len(theirs) == 0 {
			break
		}
		end = h.look(ctx, c, now, theirs)
		if errBack := write(ctx, now, theirs); errBack != nil {
			end()
			return errors.Join(err, fmt.Errorf("container %q: %s was set while trimtab wrote, and could not be set again: %w", c.Name, KnobNames(theirs), errBack))
		}
		theirs = end()
	}
	return err
}

// look reads what stands until end is called, which returns what neither stood nor was asked
// for, the latest of each knob. It came from elsewhere.
func (h Host) look(ctx context.Context, c runtime.Container, stands, want runtime.Values) (end func() runtime.Values) {
	ctx, cancel := context.WithCancel(ctx)
	theirs, ended := runtime.Values{}, make(chan struct{})
	go func() {
		defer close(ended)
		for began := time.Now(); ; {
			if now, err := h.Read(ctx, c); err == nil {
				for _, knob := range watched {
					if v, ok := now[knob]; ok && !ours(knob, v, stands, want) {
						theirs[knob] = v
					}
				}
			}
			select {
			case <-time.After(max(lookEvery, time.Since(began)/lookPart)):
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() runtime.Values {
		cancel()
		<-ended
		return theirs
	}
}

// ours reports whether a write may have left a value: what stood, what is asked for, or, of a quota,
// the one's quota in the other's period, for v1 has a file for each.
func ours(knob runtime.Knob, v runtime.Value, stands, want runtime.Values) bool {
	known := []runtime.Value{stands[knob]}
	if asked, ok := want[knob]; ok {
		known = append(known, asked)
		if a, periodA, err := runtime.ParseQuota(asked); knob == runtime.KnobCPUQuota && err == nil {
			if b, periodB, err := runtime.ParseQuota(stands[knob]); err == nil {
				known = append(known, runtime.Quota(a, periodB), runtime.Quota(b, periodA))
			}
		}
	}
	return slices.ContainsFunc(known, func(k runtime.Value) bool { return knob.Same(k, v) })
}
