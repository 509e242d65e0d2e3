package cuda

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// firstThreads is how many threads of a process are entered before the first reading that knows of it,
// which follows at once.
const firstThreads = 4

// missingThreads is what a reading says of a container whose calls were lost since the one before.
const missingThreads = "launches: more threads call than its share of the table holds"

// allowance is how many threads a container that holds so many may enter until the next reading: as long as
// it has its share (has_share in bpf/container.h), and all containers together half of what is free.
func allowance(held, used, room, containers int) int {
	free := room - used
	return max(0, min((free-4*held)/5, free/(2*containers)))
}

// crowded: it holds half of its share, so that threads that are over are looked for.
func crowded(held, used, room int) bool { return 8*held > room-used }

// share says how many threads each process may enter until the next reading. held are the entries
// of the processes that are probed.
func (p *Probe) share(held []uint64) error {
	keys, members, holds := map[int32]string{}, map[string]int{}, map[string]int{}
	for pid, key := range p.Processes() {
		keys[pid] = key
		members[key]++
	}
	for _, id := range held {
		holds[keys[int32(id>>32)]]++
	}
	room, used := int(p.objs.Threads.MaxEntries()), len(held)
	var over []uint64
	for _, id := range held {
		if crowded(holds[keys[int32(id>>32)]], used, room) && ended(int32(id>>32), int32(id)) {
			over = append(over, id)
		}
	}
	for _, id := range over {
		holds[keys[int32(id>>32)]]--
	}
	used -= len(over)
	p.free(over)
	var errs []error
	for pid, key := range keys {
		proc := p.processes[pid]
		if proc == nil {
			continue
		}
		more := allowance(holds[key], used, room, len(members))
		limit := proc.raw.Entered + uint64((more+members[key]-1)/members[key])
		if limit == proc.limit {
			continue
		}
		if err := p.objs.ThreadLimits.Put(uint32(pid), limit); err != nil {
			errs = append(errs, fmt.Errorf("cuda probe: room for threads of process %d: %w", pid, err))
			continue
		}
		proc.limit = limit
	}
	return errors.Join(errs...)
}

// free deletes threads from the kernel's table. One that calls nevertheless begins anew.
func (p *Probe) free(ids []uint64) {
	for _, id := range ids {
		_ = p.objs.Threads.Delete(id) // absent is what is wanted
	}
}

// ended reports whether a thread is over: nothing is sent to it.
func ended(tgid, tid int32) bool {
	return errors.Is(unix.Tgkill(int(tgid), int(tid), 0), unix.ESRCH)
}
