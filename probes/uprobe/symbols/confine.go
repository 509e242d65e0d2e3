package symbols

import (
	"fmt"
	"os"
	"slices"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
)

// needed is what the child still does: read what it was given, answer, and what
// Go's runtime does for memory, threads and signals. No file, socket or program is
// opened by any of these.
//
//trimtab:table read only
var needed = []string{
	"read", "pread64", "recvmsg", "write", "sendmsg", "close", "fcntl", "fstat",
	"mmap", "munmap", "madvise", "mprotect",
	"futex", "clone", "clone3", "set_robust_list", "rseq", "gettid", "getpid", "tgkill", "exit", "exit_group", "restart_syscall",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "timer_create", "timer_settime", "timer_delete", "setitimer",
	"epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_create1", "eventfd2", "nanosleep", "clock_nanosleep", "clock_gettime",
	"sched_yield", "sched_getaffinity", "getrandom", "prctl", "getrusage",
}

// victimFirst makes the kernel end this process before the daemon, should memory run out.
const victimFirst = "1000"

// confine leaves the process no system calls but those needed; others fail with EPERM.
// It holds for all threads. A kernel without seccomp is no error: the process has no
// capability anyhow.
func confine() error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(victimFirst), 0) // read-only in some sandboxes
	if !seccomp.Supported() {
		return nil
	}
	info, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	names := slices.DeleteFunc(slices.Clone(needed), func(name string) bool {
		_, known := info.SyscallNames[name] // not each architecture has all
		return !known
	})
	err = seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{{Action: seccomp.ActionAllow, Names: names}}},
	})
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}
