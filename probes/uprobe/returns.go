package uprobe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/child"
)

// errReturns: on x86-64 a return probe's trampoline makes a system call since Linux 6.11. The
// seccomp profiles of Docker and containerd refuse what they do not know, and the program dies at
// the first return. Linux 6.12.14 and 6.13.3 let the call pass.
var errReturns = errors.New("this kernel's return probes end programs under a seccomp filter (x86-64, Linux 6.11 to 6.13.2): update it")

const (
	// returnsTime bounds the trial of a return probe: some 0.1 s.
	returnsTime = 2 * time.Second
	// returnsAgain is when one that could not be tried is tried again.
	returnsAgain = time.Minute
)

// returns says whether returns may be probed here: tried once, on a child under such a filter, since
// distributions fix kernels without a new number. Used from several goroutines.
type returns struct {
	try   func() error // nil: they may be; errReturns: never; another error: it could not be tried
	mu    sync.Mutex
	known bool
	err   error
	next  time.Time
}

func newReturns(a attacher) *returns {
	return &returns{try: func() error { return tryReturns(a) }}
}

// refused says why no return may be probed; nil: they may be.
func (r *returns) refused() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known && !time.Now().Before(r.next) {
		r.err = r.try()
		r.known = r.err == nil || errors.Is(r.err, errReturns)
		r.next = time.Now().Add(returnsAgain)
	}
	return r.err
}

func tryReturns(a attacher) error {
	if version, err := features.LinuxVersionCode(); sysUretprobe == 0 || err == nil && version < linux(6, 11) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnsTime)
	defer cancel()
	died, err := diesOfReturn(ctx, a, sysUretprobe)
	switch {
	case err != nil:
		return fmt.Errorf("no return probes, since none could be tried: %w", err)
	case died:
		return errReturns
	}
	return nil
}

// diesOfReturn runs a child that returns from a probed function and may not make one system call.
func diesOfReturn(ctx context.Context, a attacher, refused uint32) (died bool, err error) {
	prog, hits, err := hitProgram(a)
	if err != nil {
		return false, err
	}
	defer hits.Close()
	defer prog.Close()
	code, at := priceProgram(1, false)
	file, err := sealedFile(code)
	if err != nil {
		return false, err
	}
	defer file.Close()
	links, err := a.attach(int(file.Fd()), 0, prog, []point{{offset: at}}, true)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, closeAll(links)) }()
	child.OnThread(func() { err = runRefused(ctx, file, refused) })
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return true, nil
	}
	var n uint64
	if err == nil {
		if err = hits.Lookup(uint32(0), &n); err == nil && n == 0 {
			err = errors.New("the return was not seen")
		}
	}
	return false, err
}

// runRefused runs a file under a filter that refuses one system call, which stays on the thread.
func runRefused(ctx context.Context, file *os.File, refused uint32) error {
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
