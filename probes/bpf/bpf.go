// Package bpf holds what several probes do with the BPF objects that they load.
package bpf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// MaxContainers is how many containers a probe can watch: MAX_CONTAINERS of bpf/thread.h.
const MaxContainers = 2048

var errFull = fmt.Errorf("%d containers are watched already, which is all there is room for", MaxContainers)

// FreeSlot is the first slot that no container has.
func FreeSlot[Container any](bySlot map[uint32]Container) (slot uint32, err error) {
	if len(bySlot) >= MaxContainers {
		return 0, errFull // asked for each container that is too many, at each tick
	}
	for {
		if _, taken := bySlot[slot]; !taken {
			return slot, nil
		}
		slot++
	}
}

// Spec reads an embedded BPF object.
func Spec(object []byte) (*ebpf.CollectionSpec, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	return spec, nil
}

// Close unloads the programs and maps that a struct holds, given by its pointer.
func Close(objects any) error {
	var errs []error
	each(objects, func(c io.Closer) { errs = append(errs, c.Close()) })
	return errors.Join(errs...)
}

// each visits a struct's programs and maps; variables have nothing to close.
func each(objects any, visit func(io.Closer)) {
	for _, v := range reflect.ValueOf(objects).Elem().Fields() {
		if c, ok := v.Interface().(io.Closer); ok {
			visit(c)
		}
	}
}

// SetConstants gives constants of a BPF object their values; a bool is 32 bits there.
func SetConstants(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		switch value {
		case true:
			value = uint32(1)
		case false:
			value = uint32(0)
		}
		v, ok := spec.Variables[name]
		if !ok {
			return fmt.Errorf("BPF object has no constant %q", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("BPF constant %q: %w", name, err)
		}
	}
	return nil
}

// ObjectBytes is the kernel memory held in the maps of a struct, given by its pointer.
func ObjectBytes(objects any) (total uint64) {
	each(objects, func(c io.Closer) {
		if m, ok := c.(*ebpf.Map); ok {
			total += MapBytes(m)
		}
	})
	return total
}

// MapBytes is the kernel memory held in maps, as the kernel accounts it.
func MapBytes(maps ...*ebpf.Map) (total uint64) {
	for _, m := range maps {
		if info, err := m.Info(); err == nil {
			bytes, _ := info.Memlock() // 0 where it is not told
			total += bytes
		}
	}
	return total
}

// Records runs an iterator once and visits the records that it writes, see [Split]. Records may be
// cut by the end of the buffer; the rest of one is kept for the next piece.
func Records(ctx context.Context, iter *link.Iter, buf []byte, size func(b []byte) (int, error), visit func(record []byte) error) error {
	f, err := iter.Open()
	if err != nil {
		return fmt.Errorf("open the iterator: %w", err)
	}
	defer f.Close()
	have := 0
	for ctx.Err() == nil {
		n, err := f.Read(buf[have:])
		rest, errSplit := Split(buf[:have+n], size, visit)
		if errSplit != nil {
			return errSplit
		}
		have = copy(buf, rest)
		switch {
		case errors.Is(err, io.EOF) && have > 0:
			return fmt.Errorf("the iterator ended within a record, %d bytes left", have)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, os.ErrDeadlineExceeded): // EAGAIN: a million objects in a row without a record
			return fmt.Errorf("read the iterator: %w", err)
		}
	}
	return ctx.Err()
}

// Split visits the whole records at the front of b and returns what is left over. size tells how long the
// one is that begins there; 0: more of it is needed.
func Split(b []byte, size func(b []byte) (int, error), visit func(record []byte) error) (rest []byte, err error) {
	for len(b) > 0 {
		n, err := size(b)
		if err != nil {
			return nil, err
		}
		if n == 0 || len(b) < n {
			break
		}
		if err := visit(b[:n]); err != nil {
			return nil, err
		}
		b = b[n:]
	}
	return b, nil
}

// Explain adds the fix for the known causes of a failed load.
func Explain(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE", err)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, btf.ErrNotFound):
		return fmt.Errorf("%w; needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF, /sys/kernel/btf/vmlinux)", err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.As(err, &verifier):
		return fmt.Errorf("%w; needs Linux 5.15 or newer with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT", err)
	}
	return err
}
