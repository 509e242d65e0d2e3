package runtime

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Knob is one thing of a container that trimtab can set.
type Knob string

// The knobs, in the order in which a plan applies them.
const (
	KnobCPUWeight   Knob = "cpu.weight"   // v1: shares 2..262144; v2: weight 1..10000; never converted, compare ratios
	KnobCPUQuota    Knob = "cpu.quota"    // "QUOTA PERIOD" in µs, or "max PERIOD"
	KnobCpuset      Knob = "cpuset"       // CPU list, "0-3,8"
	KnobMemoryLimit Knob = "memory.limit" // bytes, or "max"
	KnobMemorySwap  Knob = "memory.swap"  // v1 memsw in bytes (memory and swap), v2 swap.max in bytes; or "max"
	// KnobGPU is the GPUs that a container sees, by UUID with commas, in the order of their
	// nodes. It has no place among Knobs: the actuator never writes it, the agent does.
	KnobGPU Knob = "gpu"
)

// Knobs lists all knobs in the order of application.
func Knobs() []Knob {
	return []Knob{KnobCPUWeight, KnobCPUQuota, KnobCpuset, KnobMemoryLimit, KnobMemorySwap}
}

// Families lists the words by which people allow knobs, in the knobs' order.
func Families() []string {
	var out []string
	for _, k := range append(Knobs(), KnobGPU) {
		if f := k.Family(); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// HasMax reports whether ValueMax is a value of the knob: "no limit".
func (k Knob) HasMax() bool { return k.Family() == "memory" }

// Family is the word by which people allow a knob: cpu, cpuset, memory, gpu.
func (k Knob) Family() string {
	switch k {
	case KnobCPUWeight, KnobCPUQuota:
		return "cpu"
	case KnobMemoryLimit, KnobMemorySwap:
		return "memory"
	default:
		return string(k)
	}
}

// Value is a knob's value in its canonical text, as documented at the knob.
// A text rather than a number, so that originals on disk stay readable by any
// version, and by people.
type Value string

// ValueMax is "no limit" for knobs that have it (HasMax).
const ValueMax Value = "max"

// DefaultPeriodUs is the CFS period that kernels and runtimes default to.
const DefaultPeriodUs = 100_000

// Quota makes a KnobCPUQuota value from µs; a quota below zero means unlimited.
func Quota(quotaUs, periodUs int64) Value {
	if quotaUs < 0 {
		return Value(fmt.Sprintf("max %d", periodUs))
	}
	return Value(fmt.Sprintf("%d %d", quotaUs, periodUs))
}

// QuotaFromCPUs makes a KnobCPUQuota value that grants so many CPUs.
func QuotaFromCPUs(cpus float64, periodUs int64) Value {
	return Quota(int64(cpus*float64(periodUs)+0.5), periodUs)
}

// ParseQuota reads a KnobCPUQuota value; unlimited gives a quota of -1.
func ParseQuota(v Value) (quotaUs, periodUs int64, err error) {
	q, p, ok := strings.Cut(string(v), " ")
	if !ok {
		return 0, 0, fmt.Errorf("cpu quota %q: want \"QUOTA PERIOD\" or \"max PERIOD\"", v)
	}
	periodUs, err = strconv.ParseInt(p, 10, 64)
	if err != nil || periodUs <= 0 {
		return 0, 0, fmt.Errorf("cpu quota %q: bad period", v)
	}
	if q == "max" {
		return -1, periodUs, nil
	}
	quotaUs, err = strconv.ParseInt(q, 10, 64)
	if err != nil || quotaUs <= 0 {
		return 0, 0, fmt.Errorf("cpu quota %q: bad quota", v)
	}
	return quotaUs, periodUs, nil
}

// CPUs returns the CPUs that a KnobCPUQuota value grants; ok is false if it is
// unlimited, absent or malformed.
func (v Value) CPUs() (cpus float64, ok bool) {
	if v == "" {
		return 0, false // most containers have none, and an error for each would cost
	}
	q, p, err := ParseQuota(v)
	if err != nil || q < 0 {
		return 0, false
	}
	return float64(q) / float64(p), true
}

// Int reads a whole-number value; ok is false for "max", "" and malformed ones.
func (v Value) Int() (n int64, ok bool) {
	if v == "" || v == "max" {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// Below reports whether an amount is less than another; one that is no number has no limit, and is
// the most.
func (v Value) Below(other Value) bool {
	a, limited := v.Int()
	b, bounded := other.Int()
	return limited && (!bounded || a < b)
}

// Quantity is a value as one number: CPUs of a quota, the number itself otherwise; +Inf for no limit.
func (v Value) Quantity() float64 {
	if cpus, ok := v.CPUs(); ok {
		return cpus
	}
	if n, ok := v.Int(); ok {
		return float64(n)
	}
	return math.Inf(1)
}

// IntValue makes a whole-number value.
func IntValue(n int64) Value { return Value(strconv.FormatInt(n, 10)) }

// Same reports whether what was asked and what stands are the same setting,
// given the roundings of the write paths: systemd rounds a quota up to 1 % of a CPU
// and picks its own period, memory rounds down to a page.
func (k Knob) Same(asked, stands Value) bool {
	if asked == stands {
		return true
	}
	switch k {
	case KnobCPUQuota:
		a, aok := asked.CPUs()
		b, bok := stands.CPUs()
		if aok != bok {
			return false
		}
		if !aok { // both unlimited, or both unreadable
			return strings.HasPrefix(string(asked), "max") && strings.HasPrefix(string(stands), "max")
		}
		return b >= a-1e-9 && b-a <= 0.01+1e-9
	case KnobMemoryLimit, KnobMemorySwap:
		a, aok := asked.Int()
		b, bok := stands.Int()
		return aok && bok && a-b >= 0 && a-b < 64<<10 // the largest page size in use
	case KnobCpuset:
		x, errX := ParseCPUList(string(asked))
		y, errY := ParseCPUList(string(stands))
		return errX == nil && errY == nil && slices.Equal(x, y)
	}
	return false
}

// ParseCPUList reads the kernel's list format, "0-3,8", into sorted CPU numbers.
func ParseCPUList(s string) ([]int, error) {
	var out []int
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(lo)
		if err != nil || first < 0 {
			return nil, fmt.Errorf("CPU list %q: bad number %q", s, lo)
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(hi); err != nil || last < first || last > 1<<16 {
				return nil, fmt.Errorf("CPU list %q: bad range %q", s, part)
			}
		}
		for cpu := first; cpu <= last; cpu++ {
			out = append(out, cpu)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Values maps knobs to values; a knob that is absent is not there on this host,
// or is not to be set.
type Values map[Knob]Value

// Clone returns an independent copy.
func (v Values) Clone() Values { return maps.Clone(v) }

// Sorted returns the knobs present, in the order of application. Those of another version come last: what
// it left on record is told of, and not forgotten.
func (v Values) Sorted() []Knob {
	order := append(Knobs(), KnobGPU)
	return slices.SortedFunc(maps.Keys(v), func(a, b Knob) int {
		if i, j := slices.Index(order, a), slices.Index(order, b); i >= 0 && j >= 0 {
			return i - j
		} else if i >= 0 || j >= 0 {
			return cmp.Compare(j, i)
		}
		return cmp.Compare(a, b)
	})
}

// GPUs shows a KnobGPU value to people: the begin of each UUID, which tells them apart.
func (v Value) GPUs() string {
	const shown = 12 // GPU- and eight digits
	if v == "" {
		return "none"
	}
	names := strings.Split(string(v), ",")
	for i, name := range names {
		names[i] = name[:min(len(name), shown)]
	}
	return strings.Join(names, ",")
}

// Text shows a change in the units that people use: CPUs, MiB.
func (k Knob) Text(from, to Value) string {
	if k == KnobCPUQuota {
		a, okA := from.CPUs()
		if b, okB := to.CPUs(); okA && okB {
			return fmt.Sprintf("CPU %.2f→%.2f", a, b)
		}
	}
	return fmt.Sprintf("%s %s→%s", k, k.show(from), k.show(to))
}

func (k Knob) show(v Value) string {
	if k == KnobGPU {
		return v.GPUs()
	}
	n, ok := v.Int()
	if !ok || k.Family() != "memory" {
		return string(v)
	}
	if n >= 10<<30 {
		return fmt.Sprintf("%.1fGiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0fMiB", float64(n)/(1<<20))
}
