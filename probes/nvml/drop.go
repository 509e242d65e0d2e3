package nvml

import (
	"fmt"
	"os"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// securebits of linux/securebits.h: uid 0 gains nothing at exec, for good.
const secureNoRoot = 1<<0 | 1<<1

// dropAndExec gives up all privileges and starts the child anew, without them. It
// takes an exec because capabilities are a thread's: the new program has one
// thread, and all others come from it. Reading NVML needs no capability; the one
// thing lost is that the library could make missing device nodes, which the
// container runtime does. Returns only on failure.
func dropAndExec() error {
	goruntime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("nvml: no new privileges: %w", err)
	}
	// These need CAP_SETPCAP; without it there is less to give up, and NO_NEW_PRIVS with the empty sets below suffices.
	_ = unix.Prctl(unix.PR_SET_SECUREBITS, secureNoRoot, 0, 0, 0)
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			break
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("nvml: drop capabilities: %w", err)
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // a driver's crash needs no file of ours
	err := unix.Exec("/proc/self/exe", append(os.Args[:len(os.Args):len(os.Args)], droppedFlag), os.Environ())
	return fmt.Errorf("nvml: start again without privileges: %w", err)
}
