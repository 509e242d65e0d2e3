package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// limits are looked at while a runtime writes: it takes none of them through a third value on the way
// from what stands to what is asked for. On v2 it first writes a weight, and a protection, of its own record.
//
//trimtab:table knobs whose values in between are somebody's
var limits = [...]runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCpuset, runtime.KnobMemoryLimit}

// lookEvery is how often they are read meanwhile. A write takes some 10 ms and, on a busy machine,
// seconds; from its 50th look on each waits for lookPart of the time so far, for one that hangs shall
// cost no CPU. What stood for less before ours came over it is lost.
const (
	lookEvery = time.Millisecond
	lookPart  = 50
)

// keepMeanwhile writes, and then once more the limits that somebody else set meanwhile: the write
// carried all values that were read before, and the older ones of those (the package's trap).
func keepMeanwhile(ctx context.Context, host engine.Host, c runtime.Container, stands, want runtime.Values, inFlight []runtime.Values,
	write func(ctx context.Context, stands, want runtime.Values) error) error {
	inFlight = slices.Clip(inFlight)
	end := look(ctx, host, c, append(inFlight, stands, want)...)
	err := write(ctx, stands, want)
	theirs := end()
	if errors.Is(err, runtime.ErrUnavailable) { // it may still land, and who does not answer is not asked again
		return err
	}
	for range 3 { // who sets it in a loop has the last word without us
		now, errRead := host.Read(ctx, c)
		if errRead != nil { // it ended, or we do
			return err
		}
		back, errBack := engine.ResolveCPUs(c, now, theirs)
		for knob, v := range back {
			if knob.Same(v, now[knob]) {
				delete(back, knob)
			}
		}
		if errBack == nil && len(back) == 0 {
			return err
		}
		end = look(ctx, host, c, append(inFlight, now, back)...)
		if errBack == nil {
			errBack = write(ctx, now, back)
		}
		theirs = end()
		if errBack != nil { // not of its class: what was asked for is written
			return errors.Join(err, fmt.Errorf("container %q: %s was set while trimtab wrote, and could not be set again: %v", c.Name, engine.KnobNames(back), errBack))
		}
	}
	return err
}

// look reads what stands until end is called, which returns what none of known holds, the latest
// of each knob. It came from elsewhere.
func look(ctx context.Context, host engine.Host, c runtime.Container, known ...runtime.Values) (end func() runtime.Values) {
	ctx, cancel := context.WithCancel(ctx)
	theirs, ended := runtime.Values{}, make(chan struct{})
	go func() {
		defer close(ended)
		for began := time.Now(); ; {
			if now, err := host.Read(ctx, c); err == nil {
				note(theirs, now, known, c.Cgroup.Mode)
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

// note keeps what of now is somebody else's: with a memory limit the swap limit, but for one of ours
// above which that does not go. v1's counts memory too.
func note(theirs, now runtime.Values, known []runtime.Values, mode runtime.CgroupMode) {
	for _, knob := range limits {
		v, ok := now[knob]
		if !ok || ours(knob, v, known) {
			continue
		}
		theirs[knob] = v
		tooLow := func(values runtime.Values) bool { return values[runtime.KnobMemorySwap].Below(v) }
		needed := mode != runtime.CgroupV2 && slices.ContainsFunc(known, tooLow)
		if swap, ok := now[runtime.KnobMemorySwap]; ok && knob == runtime.KnobMemoryLimit && (needed || !ours(runtime.KnobMemorySwap, swap, known)) {
			theirs[runtime.KnobMemorySwap] = swap
		}
	}
}

// ours reports whether a write may have left a value: one of known, or, of a quota, one's quota in
// another's period, for v1 has a file for each.
func ours(knob runtime.Knob, v runtime.Value, known []runtime.Values) bool {
	for _, a := range known {
		if k, ok := a[knob]; ok && knob.Same(k, v) {
			return true
		}
		quota, _, err := runtime.ParseQuota(a[knob])
		if knob != runtime.KnobCPUQuota || err != nil {
			continue
		}
		for _, b := range known {
			if _, period, err := runtime.ParseQuota(b[knob]); err == nil && knob.Same(runtime.Quota(quota, period), v) {
				return true
			}
		}
	}
	return false
}
