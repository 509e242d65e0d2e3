package process

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// networkTypes are file systems whose reads bpf/classify.h counts as those over the network. What
// stands behind FUSE is not known: its types begin with "fuse".
//
//trimtab:table file system types of mountinfo
var networkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "lustre", "afs", "gpfs", "beegfs", "ocfs2", "gfs2"}

// maxMountPoint bounds a mount point that is told.
const maxMountPoint = 128

// networkMount is where a process sees its only network mount, by its mountinfo (proc(5)): the mount is not
// touched. "": there is none, there are several, or its name has other characters than those of
// plainMount. A name is the container's own word.
func networkMount(mountinfo []byte) string {
	var all [][]byte
	for line := range bytes.Lines(mountinfo) {
		before, after, _ := bytes.Cut(line, []byte(" - "))
		f, of := bytes.Fields(before), bytes.Fields(after)
		if len(f) < 6 || len(of) < 2 || bytes.HasPrefix(f[4], []byte("/proc/")) || bytes.HasPrefix(f[4], []byte("/sys/")) {
			continue // lxcfs shows a container its own numbers there, by FUSE
		}
		// What is mounted last hides what was there.
		all = slices.DeleteFunc(all, func(m []byte) bool { return bytes.Equal(m, f[4]) })
		if kind := string(of[0]); slices.Contains(networkTypes, kind) || strings.HasPrefix(kind, "fuse") {
			all = append(all, f[4])
		}
	}
	if len(all) == 1 && plainMount(string(all[0])) {
		return string(all[0])
	}
	return ""
}

// plainMount tells absolute names below the root of letters, digits and "_.-".
func plainMount(s string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/"
	return len(s) > 1 && len(s) <= maxMountPoint && s[0] == '/' && path.Clean(s) == s && strings.Trim(s, plain) == ""
}
