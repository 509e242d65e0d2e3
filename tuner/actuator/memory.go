package actuator

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// MemoryUse is what a container's memory consists of, in bytes, of its whole cgroup subtree.
type MemoryUse struct {
	Anon  uint64 // anonymous memory: only swap or a kill frees it
	Shmem uint64 // shared memory and tmpfs: likewise
	Swap  uint64 // swapped out; counts against v1's memory.swap
	Usage uint64 // all that is charged, page cache included
	// Rigid is what of Usage the kernel cannot free at once, what is locked, dirty or the
	// kernel's own included; 0: not known.
	Rigid uint64
}

const (
	// The margin above anonymous and shared memory under which no limit goes. It
	// stands for memory that is charged but neither (slab, page tables, stacks,
	// socket buffers) where that is not known, for growth between reading and writing,
	// and for a working set of page cache. Chosen, not measured; on v1 a limit that is
	// still too low is refused by the kernel (EBUSY), on v2 it would kill.
	memoryMarginShare = 0.10
	memoryMarginBytes = 64 << 20
	// memoryGrainBytes rounds safe limits up: a multiple of every page size in use.
	memoryGrainBytes = 1 << 20
	// pendingStep is the share by which a safe value must fall before a pending restore is made
	// in part: each part is a disk sync and an engine call.
	pendingStep = 0.05
	// stepShare is how much of what is charged may have to go for one write of a limit on
	// its way back: page cache that is freed in pieces keeps no write waiting, and what
	// grows meanwhile is seen before the next. Chosen, not measured.
	stepShare = 0.25
)

// unlimited stands for no limit in comparisons.
//
//trimtab:table a constant, but for the language
var unlimited = math.Inf(1)

// floor is the lowest limit, in bytes, that kills nothing: of memory, or, on v1's
// memsw, of memory and swap together.
func (u MemoryUse) floor(withSwap bool) float64 {
	held := float64(u.Anon) + float64(u.Shmem)
	if withSwap {
		held += float64(u.Swap)
	}
	bytes := max(held+max(held*memoryMarginShare, memoryMarginBytes), float64(u.Rigid)+memoryMarginBytes)
	return math.Ceil(bytes/memoryGrainBytes) * memoryGrainBytes
}

// step is the next limit on the way down from what stands: the lowest itself where nothing
// that is charged has to go for it.
func (u MemoryUse) step(stands, lowest float64) float64 {
	from := min(stands, float64(u.Usage))
	next := math.Floor((from-max(stepShare*from, memoryMarginBytes))/memoryGrainBytes) * memoryGrainBytes
	return max(next, lowest)
}

// kills reports whether lowering the knob can kill what runs under it. v2's memory.swap only stops
// further swapping.
func kills(k runtime.Knob, c runtime.Container) bool {
	return k == runtime.KnobMemoryLimit || k == runtime.KnobMemorySwap && jointSwap(c)
}

// jointSwap reports whether memory.swap counts memory and swap together (v1).
func jointSwap(c runtime.Container) bool {
	_, v1 := c.Cgroup.V1["memory"]
	return v1
}

// endangers refuses a change that would kill: a limit lowered below what is
// held, or, on v1, one raised above memory and swap together.
func (a *Actuator) endangers(ctx context.Context, p *part, ch policies.Change, stands runtime.Value) error {
	c := p.item.Container
	to, err := amount(ch.Knob, ch.To)
	if err != nil {
		return err
	}
	if ch.Knob == runtime.KnobMemoryLimit && jointSwap(c) {
		swap := p.now[runtime.KnobMemorySwap]
		for _, other := range p.item.Changes {
			if other.Knob == runtime.KnobMemorySwap {
				swap = other.To
			}
		}
		if joint, err := amount(runtime.KnobMemorySwap, swap); err == nil && joint < to {
			return fmt.Errorf("memory.limit %s is above memory.swap %s, which counts both: they must rise together", ch.To, swap)
		}
	}
	if !kills(ch.Knob, c) {
		return nil
	}
	now, err := amount(ch.Knob, stands)
	if err != nil || to >= now {
		return err
	}
	use, err := a.memoryUse(ctx, c)
	if err != nil {
		return fmt.Errorf("whether %s %s is safe is unknown: %w", ch.Knob, ch.To, err)
	}
	if floor := use.floor(ch.Knob == runtime.KnobMemorySwap); to < floor {
		return fmt.Errorf("%s %s is not safe: %.0f bytes are needed", ch.Knob, ch.To, floor)
	}
	return nil
}

func (a *Actuator) memoryUse(ctx context.Context, c runtime.Container) (MemoryUse, error) {
	if a.o.Memory == nil {
		return MemoryUse{}, errors.New("memory use is not measured")
	}
	return a.o.Memory(ctx, c)
}

// safely bends the way back of memory knobs to what is safe (law: restore never kills). It changes
// set, in which knobs that are to stay as they are get no entry, and returns
// why a knob's restore is pending, by knob.
func (a *Actuator) safely(ctx context.Context, c runtime.Container, now, set runtime.Values) map[runtime.Knob]string {
	pending := map[runtime.Knob]string{}
	var use MemoryUse
	var useErr error
	read := false
	for _, knob := range set.Sorted() {
		want, errWant := amount(knob, set[knob])
		stands, errNow := amount(knob, now[knob])
		if !kills(knob, c) || errWant != nil || errNow != nil || want >= stands {
			continue
		}
		if !read {
			use, useErr = a.memoryUse(ctx, c)
			read = true
		}
		lowest := stands
		if useErr == nil {
			lowest = min(stands, use.floor(knob == runtime.KnobMemorySwap))
		}
		if knob == runtime.KnobMemorySwap { // never below memory.limit, which comes before it in order
			limit, err := amount(runtime.KnobMemoryLimit, coming(set, now, runtime.KnobMemoryLimit))
			if err == nil {
				lowest = min(stands, max(lowest, limit))
			}
		}
		if want >= lowest {
			continue
		}
		pending[knob] = pendingText(knob, set[knob], lowest, useErr)
		if lowest >= stands || stands-lowest < stands*pendingStep {
			delete(set, knob)
		} else {
			set[knob] = runtime.IntValue(int64(lowest))
		}
	}
	return pending
}

// coming is what a knob will read once set is applied.
func coming(set, now runtime.Values, knob runtime.Knob) runtime.Value {
	if v, ok := set[knob]; ok {
		return v
	}
	return now[knob]
}

func pendingText(knob runtime.Knob, want runtime.Value, lowest float64, useErr error) string {
	if useErr != nil {
		return fmt.Sprintf("%s %s is pending: whether it is safe is unknown: %v", knob, want, useErr)
	}
	return fmt.Sprintf("%s %s is pending: memory in use needs %.0f MiB", knob, want, lowest/(1<<20))
}
