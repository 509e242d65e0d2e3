package uprobe

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// linkFiles is how many descriptors an attachment holds at the most: a perf event and
	// the link of the program to it.
	linkFiles = 2
	// maxFiles bounds the finder where the process may open any number.
	maxFiles = 1 << 16
)

var errNoRoom = errors.New("no room: half of the files that this process may open hold libraries and probes")

// room counts the descriptors that a finder holds, up to half of those that its
// process may open: the other half is for all that is not the containers' doing.
type room struct {
	ceiling int64
	used    atomic.Int64
}

func newRoom() room {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024 // the kernel's own
	}
	return room{ceiling: int64(min(limit.Cur/2, maxFiles))}
}

// take makes room for n descriptors; what took it frees it again.
func (r *room) take(n int) error {
	if r.used.Add(int64(n)) > r.ceiling {
		r.free(n)
		return errNoRoom
	}
	return nil
}

// toSpare: half of the room is left, so that what only saves time takes none from
// libraries and probes.
func (r *room) toSpare() bool { return r.used.Load() < r.ceiling/2 }

func (r *room) free(n int) { r.used.Add(-int64(n)) }
