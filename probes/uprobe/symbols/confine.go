package symbols

import (
	"errors"
	"fmt"
	"os"
	"slices"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// needed is what the child still does: read what it was given, answer, and what
// the run time does for memory, threads and signals. None of these opens or names anything.
//
//trimtab:table read only
var needed = []string{
	"read", "pread64", "recvmsg", "write", "close", "fstat",
	"mmap", "munmap", "mremap", "madvise", "mprotect",
	"futex", "set_robust_list", "rseq", "gettid", "getpid", "exit", "exit_group", "restart_syscall",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
	"epoll_ctl", "epoll_wait", "epoll_pwait", "nanosleep", "clock_nanosleep", "clock_gettime",
	"sched_yield", "sched_getaffinity", "getrandom",
}

const (
	// victimFirst makes the kernel end this process before the daemon, should memory run out.
	victimFirst = "1000"
	// maxDataBytes bounds its memory; what Find holds at the most is below 200 MiB.
	maxDataBytes = 512 << 20
)

// confine leaves all threads of the process no system calls but those needed; others
// fail with EPERM.
func confine() error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(victimFirst), 0) // read-only in some sandboxes, and only a hint
	for _, err := range []error{
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: maxDataBytes, Max: maxDataBytes}),
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
	} {
		if err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	policy, err := policy()
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	if err := seccomp.LoadFilter(seccomp.Filter{Flag: seccomp.FilterFlagTSync, Policy: policy}); err != nil {
		return fmt.Errorf("seccomp: %w; the service's SystemCallFilter must leave it, and the kernel needs CONFIG_SECCOMP_FILTER", err)
	}
	if _, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("seccomp: the filter does not hold: %w", err)
	}
	return nil
}

func policy() (seccomp.Policy, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return seccomp.Policy{}, err
	}
	names := slices.DeleteFunc(slices.Clone(needed), func(name string) bool {
		_, known := info.SyscallNames[name] // not each architecture has all
		return !known
	})
	only := func(name string, argument uint32, operation seccomp.Operation, value uint64) seccomp.NameWithConditions {
		return seccomp.NameWithConditions{Name: name, Conditions: seccomp.ArgumentConditions{{Argument: argument, Operation: operation, Value: value}}}
	}
	return seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{
		{Action: seccomp.ActionAllow, Names: names},
		{Action: seccomp.ActionAllow, NamesWithCondtions: []seccomp.NameWithConditions{
			only("clone", 0, seccomp.BitsSet, unix.CLONE_THREAD), // no processes
			// A signal to a thread of its own. A signal needs no capability but the user ID, which is root's.
			only("tgkill", 0, seccomp.Equal, uint64(os.Getpid())),
			only("fcntl", 1, seccomp.Equal, unix.F_GETFL), // not F_SETOWN, by which signals are sent
			only("fcntl", 1, seccomp.Equal, unix.F_SETFL),
			only("fcntl", 1, seccomp.Equal, unix.F_GETFD),
		}},
		// Its flags are in memory, where a filter cannot look: the C library then takes clone.
		{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}},
	}}, nil
}
