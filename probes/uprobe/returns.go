package uprobe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errReturns: on x86-64 a return probe's trampoline makes a system call since Linux 6.11. The
// seccomp profiles of Docker and containerd refuse what they do not know, and the program dies at
// the first return. Linux 6.12.14 and 6.13.3 let the call pass.
var errReturns = errors.New("this kernel's return probes end programs under a seccomp filter (x86-64, Linux 6.11 to 6.13.2): update it")

// returnsTime bounds the trial of a return probe: some 0.1 s.
const returnsTime = 10 * time.Second

// checkReturns tries a return probe on a child under such a filter: distributions mend kernels
// without a new number. What cannot be tried is not done.
func checkReturns(a attacher) error {
	if sysUretprobe == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnsTime)
	defer cancel()
	died, err := diesOfReturn(ctx, a, sysUretprobe)
	switch {
	case err != nil:
		return fmt.Errorf("no return probes, since none can be tried: %w", err)
	case died:
		return errReturns
	}
	return nil
}

// diesOfReturn runs a child that returns from a probed function and may not make one system call.
func diesOfReturn(ctx context.Context, a attacher, refused uint32) (died bool, err error) {
	prog, err := pricingProgram(a)
	if err != nil {
		return false, err
	}
	defer prog.Close()
	code, at := priceProgram(1, false)
	file, err := sealedFile(code)
	if err != nil {
		return false, err
	}
	defer file.Close()
	links, err := a.attach(file, 0, prog, []point{{offset: at}}, true)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, closeAll(links)) }()
	done := make(chan error)
	go func() { done <- runRefused(ctx, file, refused) }()
	err = <-done
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// runRefused runs a file under a filter that refuses one system call. The filter stays on the
// thread: it ends with the goroutine, which does not unlock it.
func runRefused(ctx context.Context, file *os.File, refused uint32) error {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: refused, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{file}
	return cmd.Run()
}
