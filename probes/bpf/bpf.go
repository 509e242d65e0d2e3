// Package bpf holds what several probes do with the BPF objects that they load.
package bpf

import "github.com/cilium/ebpf"

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
