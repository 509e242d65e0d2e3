package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
)

// clockTicks is the unit of /proc/PID/stat's start times: USER_HZ, on every
// architecture that trimtab is built for.
const clockTicks = 100

// Sweep clears what hiding left in a container of which nothing is hidden, as far as
// the records know: the file of a life before (a container's /run outlives its
// restart), and, where the records were lost, its refusals on v2 and the nodes that
// were removed, of GPUs that its engine gave it and as known names them. Done is false while a device that it may have lost cannot be opened:
// what is lost of v1's rules is the repair's, and the file stays as the mark until then.
// The notes tell people what was found.
func (v *Visibility) Sweep(ctx context.Context, c runtime.Container, known runtime.GPUView) (done bool, notes []string, err error) {
	key := c.Key()
	turn, ok := v.ledger.turns.Try(key)
	if !ok {
		return false, nil, nil
	}
	defer turn.Give()
	if _, known := v.ledger.get(key); known || v.ledger.err != nil || v.ledger.unread[key] != nil {
		return true, nil, nil // its record tells, or would
	}
	if v.gone(c) {
		return true, nil, nil
	}
	if c.Cgroup.V1["devices"] == "" && c.Cgroup.Unified != "" {
		if freed, err := v.sweepProgram(c); err != nil {
			return false, nil, err
		} else if freed {
			notes = append(notes, "a refusal of GPUs that no record tells of was taken from its device program")
		}
	}
	written, err := inFiles(ctx, v, c, func(_ context.Context, root *os.File) (time.Time, error) { return viewWritten(root) })
	if err != nil || written.IsZero() {
		return err == nil, notes, err
	}
	var nodes []Node
	if written.After(v.startOf(c)) { // nodes may have been removed in this life; a restart makes a new /dev
		nodes = v.sweepNodes(ctx, c, known)
		if len(nodes) == 0 && !byRuleAlone(c) && len(gpusIn(ctx, v.hostDev)) > 0 {
			return false, append(notes, "/run/trimtab/gpus is of an earlier time, and waits for a GPU that its engine gave it and that it can open"), nil
		}
	}
	more, err := inFiles(ctx, v, c, func(ctx context.Context, root *os.File) ([]string, error) { return v.sweepInside(ctx, root, nodes) })
	return err == nil, append(notes, more...), err
}

func (v *Visibility) sweepProgram(c runtime.Container) (freed bool, err error) {
	programs, err := v.programs.of(c.Cgroup.Unified)
	if err != nil {
		return false, err
	}
	for _, p := range programs {
		front, _ := splitRefusing(p.code)
		freed = freed || p.here && len(front) > 0
	}
	if !freed {
		return false, nil
	}
	v.Forget(c.Key())
	return true, v.unrefuse(c.Cgroup.Unified, false)
}

// byRuleAlone: the engine gave c no node. It makes its own, of any GPU.
func byRuleAlone(c runtime.Container) bool {
	return len(c.GPUs) == 0 || c.GPUVia == "devices" && slices.Contains(c.GPUs, "all")
}

// given tells whether c's engine made it a node of the GPU. The file in a container proves
// nothing, since anybody in there writes one, and its rules may be for all GPUs. A number is
// a place on the bus, a minor number for plain devices, and either in CDI: there it has to
// be both.
func given(c runtime.Container, minor int, names []string) bool {
	if byRuleAlone(c) {
		return false
	}
	number := strconv.Itoa(minor)
	return slices.ContainsFunc(c.GPUs, func(gpu string) bool {
		if gpu == "all" {
			return true
		}
		gpu, _, _ = strings.Cut(gpu, ":") // "0:1" is a slice of "0"
		isNumber := strings.Trim(gpu, "0123456789") == ""
		named := slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, gpu) })
		switch {
		case c.GPUVia == "devices":
			return gpu == number
		case c.GPUVia == "cdi" && isNumber:
			return named && gpu == number
		default:
			return named
		}
	})
}

// sweepNodes are the host's nodes that the container was given and may open, as the host
// has them.
func (v *Visibility) sweepNodes(ctx context.Context, c runtime.Container, known runtime.GPUView) (nodes []Node) {
	majors, err := nvidiaMajors(v.o.ProcRoot)
	if err != nil {
		return nil
	}
	dev, err := os.OpenFile(v.hostDev, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer dev.Close()
	for _, minor := range gpusIn(ctx, v.hostDev) {
		if !given(c, minor, known.Names[minor]) {
			continue
		}
		n, ok, _ := nodeOf(dev, "nvidia"+strconv.Itoa(minor), majors)
		if access, _ := tryOpen(ctx, c, []int{minor}); ok && access == AccessAllowed {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return append(nodes, v.sweepControl(ctx, c, dev, majors)...)
}

// sweepControl are the host's nodes without a GPU of their own that the container may open. Those
// of other majors go with nvidiactl: without it they do nothing.
func (v *Visibility) sweepControl(ctx context.Context, c runtime.Container, dev *os.File, majors []int) (nodes []Node) {
	if access, _ := tryOpen(ctx, c, []int{nvidiactlMinor}); access != AccessAllowed {
		return nil
	}
	for _, name := range controlNodes {
		n, ok, _ := nodeOf(dev, name, majors)
		if ok && n.Major == nvidiaMajor {
			access, _ := tryOpen(ctx, c, []int{n.Minor})
			ok = access == AccessAllowed
		}
		if ok {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// sweepInside makes the nodes that are missing and removes the file.
func (v *Visibility) sweepInside(ctx context.Context, root *os.File, nodes []Node) (notes []string, err error) {
	made, err := v.sweepDev(ctx, root, nodes)
	if err != nil {
		notes = append(notes, err.Error())
	}
	if made > 0 {
		notes = append(notes, fmt.Sprintf("%d nodes of GPUs were made again that no record tells of", made))
	}
	if err := removeView(root); err != nil {
		return notes, err
	}
	return append(notes, "/run/trimtab/gpus was of an earlier time, and was removed"), nil
}

func (v *Visibility) sweepDev(ctx context.Context, root *os.File, nodes []Node) (made int, err error) {
	dev, err := v.devDir(root)
	if err != nil && len(nodes) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer dev.Close()
	_ = eachEntry(ctx, fmt.Sprintf("/proc/self/fd/%d", dev.Fd()), func(e os.DirEntry) bool { // what a kill left
		if name, ok := strings.CutPrefix(e.Name(), nodeTemp("")); ok && strings.HasPrefix(name, "nvidia") {
			removeTemp(dev, name)
		}
		return true
	})
	majors, err := nvidiaMajors(v.o.ProcRoot)
	if err != nil {
		return 0, err
	}
	for _, n := range nodes {
		var st unix.Stat_t
		if unix.Fstatat(int(dev.Fd()), n.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			continue
		}
		if failed := makeNode(dev, n, majors); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		made++
	}
	return made, err
}

// viewWritten is when the file was last written; zero: there is none.
func viewWritten(root *os.File) (time.Time, error) {
	dir, err := runDir(root, false)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errHostsRun) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	defer dir.Close()
	var st unix.Stat_t
	err = unix.Fstatat(int(dir.Fd()), viewFile, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return time.Time{}, nil
	}
	return time.Unix(st.Ctim.Unix()), err
}

// startOf is when the container's init process started, by the clock that files have.
func (v *Visibility) startOf(c runtime.Container) time.Time {
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}
	}
	since := time.Duration(boot.Nano()) - time.Duration(c.ID.StartTick)*(time.Second/clockTicks)
	return time.Now().Add(-since)
}
