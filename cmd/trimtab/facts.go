package main

import (
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/tuner/loop"
)

// facts looks at what only control groups and threads tell. Threads' masks are of
// interest only where a CPU set may be changed and the kernel would forget them.
func facts() func(runtime.Container, policies.Enrolment) loop.Facts {
	return func(c runtime.Container, _ policies.Enrolment) loop.Facts {
		var f loop.Facts
		if cpus, group, err := cgroup.QuotaAbove(c.Cgroup); err == nil { // of a group that went away nothing is asked
			f.Above.CPUs, f.Above.Group = cpus, group
		}
		if bytes, group, err := cgroup.MemoryAbove(c.Cgroup); err == nil {
			f.Above.Memory, f.Above.MemoryGroup = bytes, group
		}
		return f
	}
}

// pinned says why a change of a container's CPU set would undo what its threads chose.
func pinned() func(runtime.Container) string {
	forgets := cgroup.ForgetsPins(release())
	return func(c runtime.Container) string {
		if !forgets {
			return ""
		}
		why, err := cgroup.Pinned("/proc", c.Cgroup)
		if err != nil {
			return "whether its threads pin themselves is not known"
		}
		return why
	}
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
