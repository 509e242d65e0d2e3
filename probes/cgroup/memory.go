package cgroup

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// Memory is what a container's memory consists of, bytes, of its whole subtree.
type Memory struct {
	Usage, Anon, Shmem, Swap uint64
	// Rigid is what the kernel cannot free at once: all but file pages on its lists and slab
	// that it may shrink; of file pages those that must be written first. Locked pages and
	// what else the kernel keeps for the container are in it. v2 alone tells; 0 on v1,
	// where a limit that is too low is refused and kills nothing.
	Rigid uint64
}

// ReadMemory reads a container's memory once and keeps nothing open. A limit is set
// by the answer, so what it is made of must be there: an absent file would read as
// memory that holds nothing.
func ReadMemory(t probes.Target) (Memory, error) {
	if t.Dir == nil {
		return Memory{}, fmt.Errorf("container %s: no cgroup directories", t.Key)
	}
	r := &reading{files: &files{buf: make([]byte, maxFileBytes)}, part: &probes.Cgroup{}}
	var m Memory
	dir, usage, needed := t.Dir("memory"), "memory.current", []string{"memory.current", "memory.stat", "memory.stat:anon", "memory.stat:shmem"}
	if t.V2 {
		var inactive, active, slab, dirty, writeback uint64 // what is not told is taken for rigid
		r.table(dir, "memory.stat", map[string]*uint64{"anon": &m.Anon, "shmem": &m.Shmem, "inactive_file": &inactive, "active_file": &active,
			"slab_reclaimable": &slab, "file_dirty": &dirty, "file_writeback": &writeback})
		// The list is read first: what is charged in between counts as rigid.
		r.number(dir, usage, &m.Usage)
		free := inactive + active
		m.Rigid = m.Usage - min(m.Usage, free-min(free, dirty+writeback)+slab)
	} else {
		usage, needed = "memory.usage_in_bytes", []string{"memory.usage_in_bytes", "memory.stat", "memory.stat:total_rss", "memory.stat:total_shmem"}
		// total_swap is there where memory.memsw.limit_in_bytes is, the one that it counts against.
		r.table(dir, "memory.stat", map[string]*uint64{"total_rss": &m.Anon, "total_shmem": &m.Shmem, "total_swap": &m.Swap})
		r.number(dir, usage, &m.Usage)
	}
	for _, missing := range r.part.Missing {
		if slices.Contains(needed, missing) {
			return Memory{}, fmt.Errorf("container %s: %s in %s cannot be read", t.Key, missing, dir)
		}
	}
	return m, nil
}
