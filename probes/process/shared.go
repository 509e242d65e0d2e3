package process

import (
	"bytes"
	"strconv"
)

// sharedBytes is the size of the tmpfs that a process sees at /dev/shm, by its mountinfo (proc(5)): the
// mount is not touched, which may be a file server of the container's. 0: none is there, or one of the
// default size, half of the host's memory, which the kernel does not show.
func sharedBytes(mountinfo []byte) (size uint64) {
	for line := range bytes.Lines(mountinfo) {
		before, after, _ := bytes.Cut(line, []byte(" - "))
		f, of := bytes.Fields(before), bytes.Fields(after)
		if len(f) < 6 || len(of) < 3 || string(f[4]) != "/dev/shm" {
			continue
		}
		size = 0 // what is mounted last hides what was there
		for option := range bytes.SplitSeq(of[2], []byte{','}) {
			value, ok := bytes.CutPrefix(option, []byte("size="))
			kib, inKiB := bytes.CutSuffix(value, []byte{'k'})
			if n, err := strconv.ParseUint(string(kib), 10, 53); ok && inKiB && err == nil && string(of[0]) == "tmpfs" {
				size = n << 10
			}
		}
	}
	return size
}
