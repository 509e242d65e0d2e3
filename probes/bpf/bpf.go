// Package bpf holds what several probes do with the BPF objects that they load.
package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// MaxContainers is how many containers a probe can watch: MAX_CONTAINERS of bpf/thread.h.
const MaxContainers = 2048

// FreeSlot is the first slot that no container has; false: all are taken.
func FreeSlot[Container any](bySlot map[uint32]Container) (slot uint32, ok bool) {
	if len(bySlot) >= MaxContainers {
		return 0, false // asked for each container that is too many, at each tick
	}
	for slot := range uint32(MaxContainers) {
		if _, taken := bySlot[slot]; !taken {
			return slot, true
		}
	}
	return 0, false
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
