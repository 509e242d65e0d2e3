package uprobe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// point is one place to probe, with the cookie its hits carry.
type point struct {
	offset uint64
	cookie uint64
}

// attacher puts programs on places in files, for one process at a time.
type attacher struct {
	multi bool // by BPF link, all places at once; else by one perf event for each
}

func newAttacher() attacher {
	return attacher{multi: linkFiltersByProcess() && features.HaveBPFLinkUprobeMulti() == nil}
}

// linkFiltersByProcess: from Linux 6.10 on (46ba0e49b642) the process filter of
// such a link means the process; before, only the thread of that number.
func linkFiltersByProcess() bool {
	version, err := features.LinuxVersionCode()
	return err == nil && version >= linux(6, 10)
}

// linux is a kernel's version as the kernel writes it: KERNEL_VERSION.
func linux(major, minor uint32) uint32 { return major<<16 | minor<<8 }

// prepare makes the programs of an object loadable for the way of attaching.
func (a attacher) prepare(spec *ebpf.CollectionSpec) {
	if !a.multi {
		return
	}
	for _, p := range spec.Programs {
		if p.Type == ebpf.Kprobe {
			p.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
}

// attach puts prog on all points of a file, by its descriptor, at the entry or the return of the
// functions. pid 0 is every process. The file is not read: its path and the points'
// offsets go to the kernel.
func (a attacher) attach(file int, pid int32, prog *ebpf.Program, points []point, ret bool) ([]link.Link, error) {
	exe, err := link.OpenExecutable(selfPath(file))
	if err != nil {
		return nil, fmt.Errorf("open the library: %w", err)
	}
	if a.multi {
		l, err := attachMulti(exe, pid, prog, points, ret)
		if err != nil {
			return nil, err
		}
		return []link.Link{l}, nil
	}
	links := make([]link.Link, 0, len(points))
	for _, p := range points {
		l, err := attachOne(exe, pid, prog, p, ret)
		if err != nil {
			return nil, errors.Join(err, closeAll(links))
		}
		links = append(links, l)
	}
	return links, nil
}

// links is how many links so many entries and returns take.
func (a attacher) links(entries, returns int) int {
	if a.multi {
		return min(entries, 1) + min(returns, 1)
	}
	return entries + returns
}

// attachBoth puts a hook's programs on entries and returns, returns first: an entry
// without its return would stay open. The links are to be closed in their order.
func (a attacher) attachBoth(file int, pid int32, hook *Hook, entries, returns []point) ([]link.Link, error) {
	var after []link.Link
	if len(returns) > 0 {
		var err error
		if after, err = a.attach(file, pid, hook.Return, returns, true); err != nil {
			return nil, err
		}
	}
	links, err := a.attach(file, pid, hook.Entry, entries, false)
	if err != nil {
		return nil, errors.Join(err, closeAll(after))
	}
	return append(links, after...), nil
}

func attachMulti(exe *link.Executable, pid int32, prog *ebpf.Program, points []point, ret bool) (link.Link, error) {
	opts := &link.UprobeMultiOptions{PID: uint32(pid)}
	for _, p := range points {
		opts.Addresses = append(opts.Addresses, p.offset)
		opts.Cookies = append(opts.Cookies, p.cookie)
	}
	attach := exe.UprobeMulti
	if ret {
		attach = exe.UretprobeMulti
	}
	l, err := attach(nil, prog, opts)
	if err != nil {
		return nil, fmt.Errorf("attach to %d functions: %w", len(points), err)
	}
	return l, nil
}

func attachOne(exe *link.Executable, pid int32, prog *ebpf.Program, p point, ret bool) (link.Link, error) {
	opts := &link.UprobeOptions{Address: p.offset, Cookie: p.cookie, PID: int(pid)}
	attach := exe.Uprobe
	if ret {
		attach = exe.Uretprobe
	}
	l, err := attach("", prog, opts)
	if err != nil {
		return nil, fmt.Errorf("attach to a function: %w", err)
	}
	return l, nil
}

func closeAll(links []link.Link) error {
	var errs []error
	for _, l := range links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
