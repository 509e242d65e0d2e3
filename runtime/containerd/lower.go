package containerd

import (
	"context"
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/engine"
)

// lowerTries is how often room is made for a lower limit that the runtime refused: what
// the job reads between making room and the runtime's look fills it again.
const lowerTries = 3

// lowered sends an update whose memory limit may be lower than the one that stands.
// On v2 runc, from 1.2 on, refuses a limit below memory.current when asked to look
// (CheckBeforeUpdate), page cache included: without making room first, a limit that
// was raised for cache would never go back. On a kernel that cannot be asked to make
// room it makes it while it lowers the limit, and the runtime is not asked to look. What
// only a kill frees is looked at here, after room was made, whatever the runtime does.
//
// v1's kernel makes the room itself and kills nobody; it refuses where one round of it did
// not suffice, though the usage it leaves may be below the limit by then: it is asked again.
func lowered(ctx context.Context, c runtime.Container, r *specs.LinuxResources, stands runtime.Value, update func(*specs.LinuxResources) error) error {
	if r.Memory == nil || r.Memory.CheckBeforeUpdate == nil {
		return update(r)
	}
	var err error
	if c.Cgroup.Mode != runtime.CgroupV2 {
		for range lowerTries {
			if err = update(r); !errors.Is(err, runtime.ErrRefused) {
				return err
			}
		}
		return err
	}
	limit := *r.Memory.Limit
	for range lowerTries {
		can, errReclaim := cgroup.Reclaim(ctx, c.Cgroup, limit-engine.Room(limit))
		if err := engine.CheckRoom(c, limit, stands); err != nil {
			return errors.Join(err, errReclaim)
		}
		if !can && errReclaim == nil {
			r.Memory.CheckBeforeUpdate = nil
			return update(r)
		}
		if err = update(r); !errors.Is(err, runtime.ErrRefused) {
			return err
		}
		err = errors.Join(err, errReclaim)
	}
	return err
}
