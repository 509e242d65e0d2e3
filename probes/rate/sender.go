package rate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trimtab/trimtab/probes/procfs"
)

// hierarchy finds where the cgroups that name containers are mounted: the v2 tree,
// or v1's cpu hierarchy where there is none.
func hierarchy(procRoot string) (root string, v1 bool, err error) {
	b, err := os.ReadFile(filepath.Join(procRoot, "self", "mounts"))
	if err != nil {
		return "", false, fmt.Errorf("find the cgroup tree: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup2":
			return f[1], false, nil
		case f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",cpu,"):
			root, v1 = f[1], true
		}
	}
	if root == "" {
		return "", false, errors.New("no cgroup tree is mounted, so no sender can be told")
	}
	return root, v1, nil
}

// containerOf finds the watched container that a process is in; "": none.
func (l *listener) containerOf(pid int32, now time.Time) string {
	if pid <= 0 {
		return ""
	}
	if s, ok := l.known[pid]; ok && now.Before(s.till) {
		return s.key
	}
	if len(l.known) >= maxKnown {
		clear(l.known)
	}
	key := l.lookUp(l.cgroupOf(pid))
	l.known[pid] = sender{key: key, till: now.Add(senderGoodFor)}
	return key
}

// cgroupOf is the directory of a process's cgroup; "": it has ended.
func (l *listener) cgroupOf(pid int32) string {
	memberships, _ := procfs.Memberships(l.procRoot, pid) // of one that has ended there are none
	for _, m := range memberships {
		if m.Controllers == "" && !l.v1 || l.v1 && strings.Contains(","+m.Controllers+",", ",cpu,") {
			return filepath.Join(l.root, m.Path)
		}
	}
	return ""
}

// lookUp finds the nearest watched cgroup at or above a directory.
func (l *listener) lookUp(dir string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(dir) > len(l.root) {
		if key, ok := l.dirs[dir]; ok {
			return key
		}
		dir = filepath.Dir(dir)
	}
	return ""
}
