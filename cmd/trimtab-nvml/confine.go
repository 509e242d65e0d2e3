//go:build cgo

package main

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are system calls by which a process under root's user ID, without one capability, could
// still reach others: engines' sockets, other processes, new namespaces, modes of files. NVML needs none. It asks
// nvidia-persistenced by a socket and starts nvidia-modprobe, and goes on where either is refused.
//
//trimtab:table read only
var refused = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, // opens sockets past any filter
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// Files' owners, modes, times and attributes, by path: no rule of Landlock's covers these.
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR, unix.SYS_TRUNCATE,
}

// onOneself are system calls that are left where their first argument, a process, is the caller or 0.
//
//trimtab:table read only
var onOneself = []uint32{
	unix.SYS_KILL, unix.SYS_TGKILL, unix.SYS_PRLIMIT64,
	unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
}

// Where struct seccomp_data holds what a filter looks at; both machines are little-endian.
const (
	numberAt, archAt, firstArgument, secondArgument = 0, 4, 16, 24

	x32Calls = 0x40000000 // of x86-64: another ABI under the same architecture
)

// confine takes from all threads what could reach other processes. A call that is refused fails
// with EPERM: the library goes on.
func confine() error {
	filter, err := filter(goruntime.GOARCH, uint32(os.Getpid())) //nolint:gosec // a PID is positive
	if err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // some hundred instructions
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 || failed != 0 {
		return fmt.Errorf("seccomp: %w (thread %d); the service's SystemCallFilter must leave it, and the kernel needs CONFIG_SECCOMP_FILTER", errno, failed)
	}
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("seccomp: the filter does not hold: socket %d, %w", fd, err)
	}
	return nil
}

// filter is the program for one architecture.
func filter(goarch string, pid uint32) ([]unix.SockFilter, error) {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[goarch]
	if arch == 0 {
		return nil, fmt.Errorf("seccomp: no filter for %s", goarch)
	}
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(test uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	answer := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	no, yes := answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)), answer(unix.SECCOMP_RET_ALLOW)

	// Calls of another ABI have other numbers: none is left.
	f := []unix.SockFilter{load(archAt), jump(unix.BPF_JEQ, arch, 1, 0), no, load(numberAt)}
	all := refused
	if goarch == "amd64" {
		f = append(f, jump(unix.BPF_JGE, x32Calls, 0, 1), no)
		// fork, vfork, chmod, chown, lchown, utime, utimes and futimesat, which arm64 does not have
		all = append(all[:len(all):len(all)], 57, 58, 90, 92, 94, 132, 235, 261)
	}
	for _, number := range all {
		f = append(f, jump(unix.BPF_JEQ, number, 0, 1), no)
	}
	for _, number := range onOneself {
		f = append(f, jump(unix.BPF_JEQ, number, 0, 5), load(firstArgument),
			jump(unix.BPF_JEQ, 0, 2, 0), jump(unix.BPF_JEQ, pid, 1, 0), no, yes)
	}
	return append(f,
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4), load(firstArgument), // threads, and no processes
		jump(unix.BPF_JSET, unix.CLONE_THREAD, 1, 0), no, yes,
		// Its flags are in memory, where a filter cannot look: the C library then takes clone.
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), answer(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)),
		jump(unix.BPF_JEQ, unix.SYS_FCNTL, 0, 6), load(secondArgument), // who gets a file's signals; who waits for it
		jump(unix.BPF_JEQ, unix.F_SETOWN, 2, 0), jump(unix.BPF_JEQ, unix.F_SETOWN_EX, 1, 0), jump(unix.BPF_JEQ, unix.F_SETLEASE, 0, 1), no, yes,
		yes), nil
}
