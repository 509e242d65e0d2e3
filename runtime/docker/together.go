package docker

import "github.com/trimtab/trimtab/runtime"

// checkTogether refuses values that contradict each other, naming the one that
// was not asked for: the kernel's own answer is a bare "invalid argument".
func checkTogether(c runtime.Container, all, set runtime.Values) error {
	limit, swap := all[runtime.KnobMemoryLimit], all[runtime.KnobMemorySwap]
	_, asksLimit := set[runtime.KnobMemoryLimit]
	_, asksSwap := set[runtime.KnobMemorySwap]
	if c.Cgroup.Mode == runtime.CgroupV2 || !(asksLimit || asksSwap) || !lower(limit, swap) {
		return checkBurst(c, all, set)
	}
	if asksLimit {
		return refused(c, runtime.KnobMemoryLimit, "%s is above %s %s, which counts memory and swap: set both",
			limit, runtime.KnobMemorySwap, swap)
	}
	return refused(c, runtime.KnobMemorySwap, "%s is below %s %s, and counts memory and swap: set both",
		swap, runtime.KnobMemoryLimit, limit)
}

func checkBurst(c runtime.Container, all, set runtime.Values) error {
	_, asksBurst := set[runtime.KnobCPUBurst]
	_, asksQuota := set[runtime.KnobCPUQuota]
	if !(asksBurst || asksQuota) || !burstAbove(all[runtime.KnobCPUBurst], all[runtime.KnobCPUQuota]) {
		return nil
	}
	return refused(c, runtime.KnobCPUQuota, "%s is below the burst of %s µs: set %s as well",
		all[runtime.KnobCPUQuota], all[runtime.KnobCPUBurst], runtime.KnobCPUBurst)
}

// burstAbove reports whether a burst exceeds a quota, which the kernel refuses.
func burstAbove(burst, quota runtime.Value) bool {
	burstUs, ok := burst.Int()
	quotaUs, _, err := runtime.ParseQuota(quota)
	return ok && err == nil && quotaUs >= 0 && burstUs > quotaUs
}

// burstBlocks reports whether the burst that stands would refuse the new quota,
// which is written before the new burst.
func burstBlocks(stands, all runtime.Values) bool {
	return burstAbove(stands[runtime.KnobCPUBurst], all[runtime.KnobCPUQuota])
}

// lower reports whether a memory value is below another, "max" being above all.
func lower(from, to runtime.Value) bool {
	a, aok := from.Int()
	b, bok := to.Int()
	return bok && (!aok || b < a)
}
