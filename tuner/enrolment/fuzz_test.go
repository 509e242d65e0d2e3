package enrolment

import (
	"math"
	"testing"
)

// An amount of a label is above 0 and finite, or refused with what is allowed.
func FuzzAmounts(f *testing.F) {
	for _, s := range []string{"0.5", "8GiB", "1e400", "NaN", "-1", "9e9TiB", "1 k i b", ".", "0x10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, errCPUs := ParseCPUs(s)
		bytes, errBytes := ParseBytes(s)
		if errCPUs == nil && !(cpus > 0 && cpus < math.Inf(1)) || errBytes == nil && !(bytes >= 1 && bytes < math.Inf(1)) {
			t.Fatalf("%q is %v CPUs, %v bytes", s, cpus, bytes)
		}
	})
}
