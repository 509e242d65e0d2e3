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

// TestNetworkMount: the only one, by a name that may stand in a command.
func TestNetworkMount(t *testing.T) {
	at := func(point, kind string) string {
		return "700 599 0:61 / " + point + " rw,relatime - " + kind + " nas:/x rw\n"
	}
	const local = "600 599 8:1 /x /etc/hosts rw - ext4 /dev/sda1 rw\n599 500 0:50 / / rw - overlay overlay rw\n"
	for name, tt := range map[string]struct{ mountinfo, want string }{
		"NFS":                             {local + at("/data", "nfs4"), "/data"},
		"below others":                    {at("/mnt/a-b/c_d.0", "cifs") + local, "/mnt/a-b/c_d.0"},
		"FUSE":                            {local + at("/data", "fuse.sshfs"), "/data"},
		"with optional fields":            {"700 599 0:61 / /data rw shared:7 master:1 - ceph a:/ rw\n", "/data"},
		"local ones alone":                {local + at("/data", "xfs"), ""},
		"two":                             {at("/data", "nfs4") + at("/models", "nfs4"), ""},
		"one that hides another":          {at("/data", "nfs4") + at("/data", "9p"), "/data"},
		"hidden by a local one":           {at("/data", "nfs4") + at("/data", "ext4"), ""},
		"two, of which one is hidden":     {at("/data", "nfs4") + at("/models", "nfs4") + at("/models", "tmpfs"), "/data"},
		"lxcfs beside it":                 {at("/proc/meminfo", "fuse.lxcfs") + at("/sys/devices", "fuse.lxcfs") + at("/data", "nfs"), "/data"},
		"the root":                        {at("/", "nfs4"), ""},
		"a space":                         {at("/my\\040data", "nfs4"), ""},
		"an escape":                       {at("/\x1b]0;x\a", "fuse.x"), ""},
		"right to left":                   {at("/\u202eatad", "fuse.x"), ""},
		"a command":                       {at("/$(reboot)", "fuse.x"), ""},
		"another part of a volume":        {at("/data:/etc", "fuse.x"), ""},
		"up":                              {at("/data/../etc", "fuse.x"), ""},
		"long":                            {at("/"+strings.Repeat("x", 4096), "fuse.x"), ""},
		"hostile, beside one that is not": {at("/$(reboot)", "fuse.x") + at("/data", "nfs4"), ""},
		"a source of that name":           {"700 599 0:61 / /data rw - ext4 nfs4 rw\n", ""},
		"cut":                             {strings.TrimSuffix(at("/data", "nfs4"), "nfs4 nas:/x rw\n"), ""},
		"":                                {"", ""},
	} {
		if got := networkMount([]byte(tt.mountinfo)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A container mounts what it likes, by any name.
func FuzzMountinfo(f *testing.F) {
	f.Add([]byte("618 600 0:54 / /dev/shm rw - tmpfs shm rw,size=65536k\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m := networkMount(b); m != "" && (!plainMount(m) || strings.ContainsAny(m, "\\\x1b :\"'$`")) {
			t.Fatalf("%q: %q", b, m)
		}
		if n := sharedBytes(b); n%1024 != 0 || n > 1<<63 {
			t.Fatalf("%q: %d bytes", b, n)
		}
	})
}
