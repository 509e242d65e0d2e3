package cgroup

import "testing"

// A line of mountinfo holds paths that other users may have named.
func FuzzMount(f *testing.F) {
	for _, s := range []string{"25 30 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw", `31 30 0:26 /a\040b /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct`,
		" - ", `1 2 3 \0 \999 - cgroup x y`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if m, ok := parseMount(s); ok && (m.point == "" || m.v2 == (len(m.controllers) > 0)) {
			t.Fatalf("%q is read as %+v", s, m)
		}
	})
}
