package runtime

import (
	"slices"
	"testing"
)

// A quota that is read is written alike.
func FuzzQuota(f *testing.F) {
	for _, s := range []string{"max 100000", "50000 100000", "-1 100000", "9223372036854775807 1", " ", "1 0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quota, period, err := ParseQuota(Value(s))
		if err != nil {
			return
		}
		if period <= 0 || quota == 0 || quota < -1 {
			t.Fatalf("%q is read as %d of %d", s, quota, period)
		}
		if again, p, err := ParseQuota(Quota(quota, period)); err != nil || again != quota || p != period {
			t.Fatalf("%q: %d of %d is written as %q", s, quota, period, Quota(quota, period))
		}
		if cpus, ok := Value(s).CPUs(); ok && !(cpus > 0) {
			t.Fatalf("%q is %v CPUs", s, cpus)
		}
	})
}

// A list of CPUs is short, sorted and without repetition, whatever a file says.
func FuzzCPUList(f *testing.F) {
	for _, s := range []string{"", "0-3,8", "0-1000000000", "3-1", "1,1", "0-7:2/4", "4294967296"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseCPUList(s)
		if err != nil {
			return
		}
		if len(list) > 1<<16 || !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) || len(list) > 0 && list[0] < 0 {
			t.Fatalf("%q is read as %d CPUs: %v", s, len(list), list[:min(len(list), 8)])
		}
	})
}

// A device rule that is read is written alike.
func FuzzDeviceRule(f *testing.F) {
	for _, s := range []string{"c 195:* rwm", "a *:* rwm", "b 8:0 r", "c 1:3", "c -1:0 rwm", "c 195:255 mwr"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseDeviceRule(s)
		if err != nil {
			return
		}
		if again, err := ParseDeviceRule(r.String()); err != nil || again != r {
			t.Fatalf("%q is read as %+v and written as %q, which is %+v, %v", s, r, r, again, err)
		}
		if !r.Contains(r) {
			t.Fatalf("%+v does not contain itself", r)
		}
	})
}
