package api

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access is what a peer may do.
type Access int

// Write includes read.
const (
	AccessNone Access = iota
	AccessRead
	AccessWrite
)

// Peer is the process at the other end, as the kernel knew it when it connected.
type Peer struct {
	UID    int
	GID    int
	Groups []int // supplementary
}

// Groups are the groups by whose membership a peer is let in; an empty name lets
// nobody in.
type Groups struct{ Read, Write string }

// access decides what a peer may do. A group that does not exist has no members;
// one that is made later works within a second.
func (g Groups) access(p Peer, ids *groupIDs) Access {
	if p.UID == 0 || p.UID == os.Geteuid() {
		return AccessWrite
	}
	member := func(name string) bool {
		if name == "" {
			return false
		}
		gid := ids.of(name)
		return p.GID == gid || slices.Contains(p.Groups, gid)
	}
	switch {
	case member(g.Write):
		return AccessWrite
	case member(g.Read):
		return AccessRead
	}
	return AccessNone
}

// groupIDs finds groups' IDs, each once a second at the most: whoever may connect could have
// /etc/group read for each connection. Safe for concurrent use.
type groupIDs struct {
	mu    sync.Mutex
	asked time.Time
	known map[string]int
}

// of is the ID of a group by its name; -1, which no peer has: there is none. A file that cannot be read
// for once changes nothing.
func (g *groupIDs) of(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.asked) >= time.Second || g.known == nil {
		if text, err := os.ReadFile(groupFile); err == nil {
			g.asked, g.known = now, parseGroups(string(text))
		}
	}
	if id, known := g.known[name]; known {
		return id
	}
	return -1
}

// groupFile alone names groups here. In a build with cgo os/user would ask the host's name services, and
// wait for them: a directory server that is down must keep nobody from the socket.
const groupFile = "/etc/group"

// parseGroups reads group(5): of a name that is there twice the first counts.
func parseGroups(text string) map[string]int {
	ids := map[string]int{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 3 {
			continue
		}
		id, err := strconv.ParseUint(f[2], 10, 31)
		if _, twice := ids[f[0]]; err == nil && !twice {
			ids[f[0]] = int(id)
		}
	}
	return ids
}

// PeerOf asks the kernel who is at the other end of a connection to a Unix socket, as of when it was made.
func PeerOf(conn syscall.Conn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("peer: %w", err)
	}
	var peer Peer
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			inner = err
			return
		}
		peer = Peer{UID: int(cred.Uid), GID: int(cred.Gid)}
		peer.Groups, inner = peerGroups(fd)
	})
	if err := errors.Join(err, inner); err != nil {
		return Peer{}, fmt.Errorf("peer: %w", err)
	}
	return peer, nil
}

// peerGroups reads SO_PEERGROUPS, which x/sys has no wrapper for. Unlike
// /proc/PID/status it tells of the process that connected, whatever has become of
// its PID since.
func peerGroups(fd uintptr) ([]int, error) {
	gids := make([]uint32, 64)
	for {
		size := uint32(len(gids) * 4) //nolint:gosec // at most NGROUPS_MAX (65536) groups
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&gids[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && int(size/4) > len(gids): // the kernel said how many there are
			gids = make([]uint32, size/4)
			continue
		case errno == unix.ENODATA:
			return nil, nil
		case errno != 0:
			return nil, errno
		}
		var out []int
		for _, gid := range gids[:size/4] {
			out = append(out, int(gid))
		}
		return out, nil
	}
}

type peerKey struct{}
