package uprobe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/procfs"
)

// Bounds on what one container can make the finder look at.
const (
	maxProcesses  = 1024
	maxMapsBytes  = 4 << 20 // of maps, and of mountinfo
	maxCgroupDirs = 256
	maxMappings   = 4096
	maxListBytes  = 1 << 20
)

// listing lists the processes of a container.
type listing struct {
	dir  string
	file held // its cgroup.procs
}

// list is the processes in the cgroup directory and below it.
func (l *listing) list(r *room, buf *[]byte) (pids []int32) {
	var st unix.Stat_t
	if unix.Stat(l.dir, &st) != nil {
		return nil
	}
	if st.Nlink == 2 { // as cgroup's file system counts: no directory below
		// A directory that vanishes in between is no loss.
		b, _ := l.file.read(r, filepath.Join(l.dir, "cgroup.procs"), buf)
		return appendPIDs(nil, b)
	}
	dirs := []string{l.dir}
	for i := 0; i < len(dirs) && len(pids) < maxProcesses; i++ {
		if b, err := procfs.Read(filepath.Join(dirs[i], "cgroup.procs"), maxListBytes); err == nil {
			pids = appendPIDs(pids, b)
		}
		dirs = appendDirs(dirs, dirs[i])
	}
	return pids
}

// appendDirs appends the directories in one, up to maxCgroupDirs in all. Of one that a container has
// filled no more is read than that takes.
func appendDirs(dirs []string, dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return dirs // it vanished, which is no loss
	}
	defer f.Close() //nolint:errcheck // only read
	for len(dirs) < maxCgroupDirs {
		entries, err := f.ReadDir(maxCgroupDirs)
		for _, e := range entries {
			if e.IsDir() && len(dirs) < maxCgroupDirs {
				dirs = append(dirs, filepath.Join(dir, e.Name()))
			}
		}
		if err != nil {
			break
		}
	}
	return dirs
}

func appendPIDs(pids []int32, text []byte) []int32 {
	for f := range bytes.FieldsSeq(text) {
		if pid, err := strconv.ParseInt(string(f), 10, 32); err == nil && pid > 0 && len(pids) < maxProcesses {
			pids = append(pids, int32(pid))
		}
	}
	return pids
}

// sizeOf reads the size of a process's address space from its statm.
func sizeOf(statm []byte) (bytesMapped uint64, ok bool) {
	pages, _, _ := bytes.Cut(statm, []byte{' '})
	n, err := strconv.ParseUint(string(pages), 10, 64)
	return n * uint64(os.Getpagesize()), err == nil
}

// mapping is one executable mapping of a file.
type mapping struct {
	addresses string // its name in map_files
	device    string // major:minor, hexadecimal
	inode     uint64 // as maps shows it
	path      string // the container's word
}

// executableMaps lists the executable file mappings: the program first, then
// those whose path holds a hint, then the others.
func executableMaps(maps []byte, hints []string) []mapping {
	var program, likely, others []mapping
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line)
		if len(f) < 6 || len(f[1]) != 4 || f[1][2] != 'x' || f[5][0] != '/' || bytes.Equal(f[4], []byte("0")) {
			continue
		}
		inode, err := strconv.ParseUint(string(f[4]), 10, 64)
		if err != nil {
			continue
		}
		// The path is the rest of the line, blanks and all.
		path := string(bytes.TrimRight(line[bytes.Index(line, f[5]):], "\n"))
		m := mapping{addresses: inMapFiles(f[0]), device: string(f[3]), inode: inode, path: path}
		switch {
		case len(program) == 0:
			program = append(program, m)
		case hinted(path, hints):
			likely = append(likely, m)
		default:
			others = append(others, m)
		}
		if len(likely)+len(others) >= maxMappings {
			break
		}
	}
	return append(append(program, likely...), others...)
}

// inMapFiles is a range of addresses as map_files writes it: maps fills up those of programs at fixed
// addresses with zeros, and map_files knows no such name.
func inMapFiles(addresses []byte) string {
	from, to, _ := bytes.Cut(addresses, []byte("-"))
	return string(bytes.TrimLeft(from, "0")) + "-" + string(bytes.TrimLeft(to, "0"))
}

func hinted(path string, hints []string) bool {
	return slices.ContainsFunc(hints, func(h string) bool { return strings.Contains(path, h) })
}

// remoteTypes are file systems whose server may keep a reader waiting for ever:
// another machine, or behind FUSE a process of the container's.
//
//trimtab:table file system types of mountinfo
var remoteTypes = []string{"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "gpfs", "beegfs"}

// mounts are those of one process and, where it does not show one, the host's: maps
// names the file system below an overlay, and a mount may have been taken out of sight.
type mounts struct {
	own      map[string]string // types by device, as maps writes it
	host     func() map[string]string
	hostNow  func() map[string]string // read anew
	overlays map[uint64]bool          // by device: is the host's
}

func readMounts(procRoot string, pid int32) (mounts, error) {
	text, err := procfs.Read(procfs.Path(procRoot, pid, "mountinfo"), maxMapsBytes)
	if err != nil {
		return mounts{}, fmt.Errorf("read a process's mounts: %w", err)
	}
	if len(text) >= maxMapsBytes {
		return mounts{}, errManyMounts
	}
	host := func() map[string]string {
		// What cannot be read shows nothing.
		text, _ := procfs.Read(procfs.Path(procRoot, 1, "mountinfo"), maxMapsBytes)
		return mountTypes(text)
	}
	return mounts{own: mountTypes(text), host: sync.OnceValue(host), hostNow: host, overlays: map[uint64]bool{}}, nil
}

// kind is the type of the file system on a device; an error: reading there may wait.
func (m mounts) kind(device string) (string, error) {
	kind, ok := m.own[device]
	if !ok {
		kind, ok = m.host()[device]
	}
	switch {
	case !ok:
		return "", errUnknownMount
	case strings.HasPrefix(kind, "fuse"): // what follows is the container's word
		kind = "fuse"
	case !slices.Contains(remoteTypes, kind):
		return kind, nil
	}
	return kind, fmt.Errorf("on a mount of type %s, where reading could wait for ever", kind)
}

// hostsOverlay reports whether an overlay of which a file is open is one that the host mounted, by its device.
// The host's mounts are read anew: earlier ones may have had an overlay under a number that a container's has now.
func (m mounts) hostsOverlay(dev uint64) bool {
	is, asked := m.overlays[dev]
	if !asked {
		is = m.hostNow()[fmt.Sprintf("%02x:%02x", unix.Major(dev), unix.Minor(dev))] == "overlay"
		m.overlays[dev] = is
	}
	return is
}

// mountTypes lists the types of mounted file systems by device.
func mountTypes(mountinfo []byte) map[string]string {
	devices := map[string]string{}
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := bytes.Cut(line, []byte(" - "))
		f := bytes.Fields(before)
		kind, _, _ := bytes.Cut(bytes.TrimSpace(after), []byte(" "))
		if !ok || len(f) < 3 {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(string(f[2]), "%d:%d", &major, &minor); err == nil {
			devices[fmt.Sprintf("%02x:%02x", major, minor)] = string(kind)
		}
	}
	return devices
}
