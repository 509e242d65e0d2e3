package network

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/trimtab/trimtab/probes/bpf"
)

// loaded is what the kernel accepted.
type loaded struct {
	objs    objects
	iter    *link.Iter
	onState link.Link       // nil: refused
	closed  *ringbuf.Reader // nil with onState
	missing []string
}

// objects are of bpf/network.bpf.c.
type objects struct {
	Closed      *ebpf.Map      `ebpf:"closed"`
	Containers  *ebpf.Map      `ebpf:"containers"`
	Passes      *ebpf.Map      `ebpf:"passes"`
	Watched     *ebpf.Map      `ebpf:"watched"`
	LostTotal   *ebpf.Variable `ebpf:"lost_total"`
	Pass        *ebpf.Variable `ebpf:"pass"`
	OnState     *ebpf.Program  `ebpf:"on_state"`
	ReadSockets *ebpf.Program  `ebpf:"read_sockets"`
}

// load verifies and attaches. Without the final counters of sockets that close,
// what they moved since the last reading is lost, and said.
func load(opts Options) (*loaded, error) {
	spec, err := bpf.Spec(_SocketsBytes)
	if err != nil {
		return nil, err
	}
	constants := map[string]any{"tasks_by_v1_cpu": opts.TasksByV1CPU}
	if opts.maxRecords > 0 {
		constants["max_records"] = opts.maxRecords
	}
	if err := bpf.SetConstants(spec, constants); err != nil {
		return nil, err
	}
	l := &loaded{}
	if err := spec.LoadAndAssign(&l.objs, nil); err != nil {
		return nil, bpf.Explain(err)
	}
	if l.iter, err = link.AttachIter(link.IterOptions{Program: l.objs.ReadSockets}); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the iterator over open files: %w", bpf.Explain(err)), l.close())
	}
	if err := l.followClosed(); err != nil {
		l.missing = append(l.missing, fmt.Sprintf("what closing sockets moved since the last reading: %v", err))
	}
	return l, nil
}

func (l *loaded) followClosed() error {
	onState, err := link.AttachTracing(link.TracingOptions{Program: l.objs.OnState})
	if err != nil {
		return fmt.Errorf("attach to inet_sock_set_state: %w", err)
	}
	closed, err := ringbuf.NewReader(l.objs.Closed)
	if err != nil {
		return errors.Join(fmt.Errorf("open the buffer of closed sockets: %w", err), onState.Close())
	}
	l.onState, l.closed = onState, closed
	return nil
}

func (l *loaded) close() error {
	var errs []error
	if l.onState != nil {
		errs = append(errs, l.onState.Close(), l.closed.Close())
	}
	if l.iter != nil {
		errs = append(errs, l.iter.Close())
	}
	return errors.Join(append(errs, bpf.Close(&l.objs))...)
}
