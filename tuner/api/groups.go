package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// errNoGroup says that the file names no such group.
var errNoGroup = errors.New("no such group")

// groupFile finds groups' IDs in /etc/group. Whoever may connect could have it read
// for each connection, so it is read again only when it changed. Safe for concurrent use.
type groupFile struct {
	path string

	mu    sync.Mutex
	stood groupStamp
	ids   map[string]int
	reads int
}

// groupStamp tells one content of the file from another.
type groupStamp struct {
	dev, ino uint64
	size     int64
	mtime    unix.Timespec
}

// id returns the ID of the group with the name.
func (g *groupFile) id(name string) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Stat(g.path, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", g.path, err)
	}
	if now := stampOf(&st); g.ids == nil || now != g.stood {
		if err := g.read(); err != nil {
			return 0, err
		}
	}
	id, ok := g.ids[name]
	if !ok {
		return 0, errNoGroup
	}
	return id, nil
}

// read takes the file as it is. The stamp is taken first: what changes meanwhile is read again.
func (g *groupFile) read() error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil { //nolint:gosec // a descriptor fits
		return fmt.Errorf("%s: %w", g.path, err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	g.stood, g.ids = stampOf(&st), groupIDs(data)
	g.reads++
	return nil
}

func stampOf(st *unix.Stat_t) groupStamp {
	return groupStamp{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim} //nolint:unconvert // not 64 bits everywhere
}

// groupIDs reads lines of name:password:ID:members, see group(5). The first of a name counts.
func groupIDs(data []byte) map[string]int {
	ids := map[string]int{}
	for line := range bytes.Lines(data) {
		field := bytes.SplitN(bytes.TrimSpace(line), []byte(":"), 4)
		if len(field) < 4 || len(field[0]) == 0 || bytes.ContainsAny(field[0][:1], "#+-") {
			continue
		}
		id, err := strconv.ParseUint(string(field[2]), 10, 32)
		if name := string(field[0]); err == nil {
			if _, known := ids[name]; !known {
				ids[name] = int(id)
			}
		}
	}
	return ids
}
