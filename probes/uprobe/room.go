package uprobe

import (
	"errors"
	"sync"
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

var (
	errNoRoom = errors.New("no room: half of the files that this process may open hold libraries and probes")
	errShare  = errors.New("its share of the files that hold libraries and probes is taken: half of what it leaves free")
)

// room counts the descriptors that a finder holds, up to half of those that its
// process may open: the other half is for all that is not the containers' doing.
type room struct {
	ceiling int64
	used    atomic.Int64
	mu      sync.Mutex
	held    map[string]int64 // of used: libraries and probes, by container
}

func newRoom() room {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024 // the kernel's own
	}
	return room{ceiling: int64(min(limit.Cur/2, maxFiles)), held: map[string]int64{}}
}

// takeFor makes room for a container's libraries and probes, and freeFor frees it. One that has some gets more as long
// as it holds less than half of what is free: one that wants all of it gets a third.
func (r *room) takeFor(key string, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := r.ceiling - r.used.Load()
	if err := r.take(n); err != nil {
		return err
	}
	if held := r.held[key]; held > 0 && 2*held >= free {
		r.free(n)
		return errShare
	}
	r.held[key] += int64(n)
	return nil
}

func (r *room) freeFor(key string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[key] -= int64(n); r.held[key] <= 0 {
		delete(r.held, key)
	}
	r.free(n)
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
