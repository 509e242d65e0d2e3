package engine

import (
	"fmt"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// CheckRoom refuses a v2 memory limit below what stands that only a kill would make room
// for. It is the last look before the write: since the actuator's, a disk was synced, page
// cache was freed, and the job went on. The kernel, unlike v1's, does not refuse: it kills.
func CheckRoom(c runtime.Container, limit int64, stands runtime.Value) error {
	if now, limited := stands.Int(); c.Cgroup.Mode != runtime.CgroupV2 || limited && limit >= now {
		return nil
	}
	held, err := cgroup.Unfreeable(c.Cgroup)
	if err != nil {
		return fmt.Errorf("container %q: whether %s %d is safe is unknown: %w", c.Name, runtime.KnobMemoryLimit, limit, err)
	}
	if held > limit-Room(limit) {
		return Refused(c, runtime.KnobMemoryLimit, "it holds %d bytes by now, which only a kill would free", held)
	}
	return nil
}

// Room is what is kept below a lower limit, in bytes: a tenth of a small one, 32 MiB of
// others. It is less than the actuator's own margin above what is held, which a job may have
// grown into meanwhile, so nothing has to be swapped for it.
func Room(limit int64) int64 { return min(32<<20, limit/10) }
