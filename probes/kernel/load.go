package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/trimtab/trimtab/probes/bpf"
)

// optional names the programs that the probe can do without, and what is then lost.
func optional() map[string]string {
	const reclaim, block = "time in direct reclaim", "block I/O of containers"
	return map[string]string{
		"on_waking":              "who ended a wait, and the end of sleeps: run-queue waits after a sleep count as sleep",
		"on_wakeup":              "throttled against queued after a sleep",
		"on_wakeup_new":          "throttled against queued of new threads",
		"on_attach":              "threads that are moved into a container, until the next seeding",
		"on_block_issue":         block,
		"on_block_complete":      block,
		"on_reclaim_begin":       reclaim,
		"on_reclaim_end":         reclaim,
		"on_memcg_reclaim_begin": reclaim,
		"on_memcg_reclaim_end":   reclaim,
	}
}

// loaded is what the kernel accepted.
type loaded struct {
	coll    *ebpf.Collection
	links   []link.Link
	iter    *link.Iter
	missing []string
}

// load verifies and attaches the programs. A refused optional program is named
// in missing; a refused required one ends it.
func load(opts Options) (*loaded, error) {
	spec, err := bpf.Spec(_CountersBytes)
	if err != nil {
		return nil, err
	}
	if err := setConstants(spec, opts); err != nil {
		return nil, err
	}
	kernelTypes, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("kernel probe: read the kernel's BTF: %w", bpf.Explain(err))
	}
	l := &loaded{}
	l.coll, l.missing, err = loadCollection(spec, kernelTypes)
	if err != nil {
		return nil, fmt.Errorf("kernel probe: %w", bpf.Explain(err))
	}
	if err := l.attach(); err != nil {
		return nil, errors.Join(fmt.Errorf("kernel probe: %w", bpf.Explain(err)), l.close())
	}
	return l, nil
}

func setConstants(spec *ebpf.CollectionSpec, opts Options) error {
	spec.Maps["requests"].MaxEntries = uint32(opts.MaxRequests)
	return bpf.SetConstants(spec, map[string]any{
		"max_requests":              uint64(opts.MaxRequests),
		"max_threads":               uint64(opts.MaxThreads),
		"max_threads_per_container": uint64(opts.MaxThreadsPerContainer),
		"kernel_stack_bytes":        max(16<<10, uint64(os.Getpagesize())), // arm64: THREAD_SIZE is at least a page
		"tasks_by_v1_cpu":           opts.TasksByV1CPU,
	})
}

// loadCollection loads all programs at once; where that fails, it finds the
// optional programs that the kernel refuses one by one, and loads the rest.
func loadCollection(spec *ebpf.CollectionSpec, types *btf.Spec) (*ebpf.Collection, []string, error) {
	copts := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}}
	coll, err := ebpf.NewCollectionWithOptions(spec, copts)
	if err == nil {
		return coll, nil, nil
	}
	var missing []string
	for name, loss := range optional() {
		if refusal := tryProgram(spec, copts, name); refusal != nil {
			missing = append(missing, fmt.Sprintf("%s: lost: %s (%v)", name, loss, refusal))
			delete(spec.Programs, name)
		}
	}
	if len(missing) == 0 {
		return nil, nil, err
	}
	slices.Sort(missing)
	coll, err = ebpf.NewCollectionWithOptions(spec, copts)
	return coll, missing, err
}

func tryProgram(spec *ebpf.CollectionSpec, copts ebpf.CollectionOptions, name string) error {
	one := spec.Copy()
	maps.DeleteFunc(one.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	coll, err := ebpf.NewCollectionWithOptions(one, copts)
	if err != nil {
		return err
	}
	coll.Close()
	return nil
}

func (l *loaded) attach() error {
	losses := optional()
	for _, name := range slices.Sorted(maps.Keys(l.coll.Programs)) {
		prog := l.coll.Programs[name]
		if name == "read_threads" {
			it, err := link.AttachIter(link.IterOptions{Program: prog})
			if err != nil {
				return fmt.Errorf("attach the task iterator: %w", err)
			}
			l.iter = it
			continue
		}
		ln, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			loss, ok := losses[name]
			if !ok {
				return fmt.Errorf("attach %s: %w", name, err)
			}
			l.missing = append(l.missing, fmt.Sprintf("%s: lost: %s (%v)", name, loss, err))
			continue
		}
		l.links = append(l.links, ln)
	}
	return nil
}

func (l *loaded) close() error {
	var errs []error
	for _, ln := range l.links {
		errs = append(errs, ln.Close())
	}
	if l.iter != nil {
		errs = append(errs, l.iter.Close())
	}
	l.coll.Close()
	return errors.Join(errs...)
}
