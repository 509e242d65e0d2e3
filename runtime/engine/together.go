package engine

import "github.com/trimtab/trimtab/runtime"

// CheckTogether refuses values that contradict each other, naming the one that
// was not asked for: the kernel's own answer is a bare "invalid argument".
func CheckTogether(c runtime.Container, all, set runtime.Values) error {
	limit, swap := all[runtime.KnobMemoryLimit], all[runtime.KnobMemorySwap]
	_, asksLimit := set[runtime.KnobMemoryLimit]
	_, asksSwap := set[runtime.KnobMemorySwap]
	if c.Cgroup.Mode == runtime.CgroupV2 || !(asksLimit || asksSwap) || !swap.Below(limit) {
		return checkBurst(c, all, set)
	}
	if asksLimit {
		return Refused(c, runtime.KnobMemoryLimit, "%s is above %s %s, which counts memory and swap: set both",
			limit, runtime.KnobMemorySwap, swap)
	}
	return Refused(c, runtime.KnobMemorySwap, "%s is below %s %s, and counts memory and swap: set both",
		swap, runtime.KnobMemoryLimit, limit)
}

func checkBurst(c runtime.Container, all, set runtime.Values) error {
	_, asksBurst := set[runtime.KnobCPUBurst]
	_, asksQuota := set[runtime.KnobCPUQuota]
	if !(asksBurst || asksQuota) || !burstAbove(all[runtime.KnobCPUBurst], all[runtime.KnobCPUQuota]) {
		return nil
	}
	return Refused(c, runtime.KnobCPUQuota, "%s is below the burst of %s µs: set %s as well",
		all[runtime.KnobCPUQuota], all[runtime.KnobCPUBurst], runtime.KnobCPUBurst)
}

// burstAbove reports whether a burst exceeds a quota, which the kernel refuses.
func burstAbove(burst, quota runtime.Value) bool {
	burstUs, ok := burst.Int()
	quotaUs, _, err := runtime.ParseQuota(quota)
	return ok && err == nil && quotaUs >= 0 && burstUs > quotaUs
}

// Steps are the complete sets of values to write, one after another, on the way from what
// stands to all. A quota below the burst that stands is refused, and quotas are written
// before bursts: the new burst goes first then, which the old quota allows. Whoever dies
// between two steps leaves values that stood or that were asked for, and no others: only
// those are known to be ours.
func Steps(stands, all runtime.Values) []runtime.Values {
	if !burstAbove(stands[runtime.KnobCPUBurst], all[runtime.KnobCPUQuota]) {
		return []runtime.Values{all}
	}
	return []runtime.Values{Merge(stands, runtime.Values{runtime.KnobCPUBurst: all[runtime.KnobCPUBurst]}), all}
}
