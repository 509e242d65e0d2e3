package process

import (
	"strings"
	"testing"
)

// TestSharedBytes: as kernels show a container's mounts, and as a container may make them.
func TestSharedBytes(t *testing.T) {
	const docker = "618 600 0:54 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k,inode64\n"
	for name, tt := range map[string]struct {
		mountinfo string
		want      uint64
	}{
		"Docker's default":             {"600 599 0:51 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755\n" + docker, 64 << 20},
		"with optional fields":         {"618 600 0:54 / /dev/shm rw,relatime shared:7 master:1 - tmpfs shm rw,size=1048576k\n", 1 << 30},
		"half of the host's":           {"618 600 0:54 / /dev/shm rw - tmpfs shm rw,inode64\n", 0},
		"hidden by a file server":      {docker + "700 618 0:60 / /dev/shm rw - fuse.x x rw,size=4k\n", 0},
		"hidden by a larger one":       {docker + "700 618 0:60 / /dev/shm rw - tmpfs x rw,size=8192k\n", 8 << 20},
		"another directory":            {"618 600 0:54 / /dev/shm\\040x rw - tmpfs shm rw,size=65536k\n", 0},
		"no number":                    {"618 600 0:54 / /dev/shm rw - tmpfs shm rw,size=-1k\n", 0},
		"more than memory can have":    {"618 600 0:54 / /dev/shm rw - tmpfs shm rw,size=18446744073709551615k\n", 0},
		"another unit":                 {"618 600 0:54 / /dev/shm rw - tmpfs shm rw,size=64m\n", 0},
		"a source that has the option": {"618 600 0:54 / /dev/shm rw - tmpfs size=64k rw\n", 0},
		"cut":                          {strings.TrimSuffix(docker, ",inode64\n")[:60], 0},
		"":                             {"", 0},
	} {
		if got := sharedBytes([]byte(tt.mountinfo)); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", name, got, tt.want)
		}
	}
}

// A container mounts what it likes, by any name.
func FuzzMountinfo(f *testing.F) {
	f.Add([]byte("618 600 0:54 / /dev/shm rw - tmpfs shm rw,size=65536k\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := sharedBytes(b); n%1024 != 0 || n > 1<<63 {
			t.Fatalf("%q: %d bytes", b, n)
		}
	})
}
