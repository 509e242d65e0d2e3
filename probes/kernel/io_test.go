package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

// Cold reads by O_DIRECT: bytes and latency are the container's, and the thread
// waits in blockio.
func TestBlockIO(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-block")
	b.chargeBlockIO(t)
	watch(t, p, b, "box")
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 16<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	const code = "import os,mmap,sys,time\nfd=os.open(sys.argv[1],os.O_RDWR|os.O_DIRECT)\nos.fsync(fd)\nm=mmap.mmap(-1,1<<20)\n" +
		"n=sum(os.preadv(fd,[m],i<<20) for i in range(16))\nos.pwritev(fd,[m],0)\nprint('read',n,flush=True)\ntime.sleep(100)"
	j := b.start(code, path)
	line, err := j.out.ReadString('\n')
	if err != nil {
		if strings.Contains(j.stderr(), "Invalid argument") {
			t.Skip("needs a file system with O_DIRECT below the temporary directory")
		}
		t.Fatalf("%v: %s", err, j.stderr())
	}
	k := read(t, p, "box")
	th := threadOf(t, k, j.pid())
	t.Logf("%s: %+v; %s", strings.TrimSpace(line), k.Block, describe(th))
	if k.Block.Reads == 0 {
		t.Skip("needs a block device below the temporary directory")
	}
	if k.Block.ReadBytes < 16<<20 || k.Block.ReadNs == 0 || k.Block.WriteBytes < 1<<20 || k.Block.WriteNs == 0 {
		t.Errorf("block I/O of 16 MiB read, 1 MiB written: %+v", k.Block)
	}
	if th.Ns[probes.StateBlockIO] == 0 {
		t.Errorf("no time in blockio: %s", describe(th))
	}
}

// A memory limit that anonymous and file memory together exceed makes direct
// reclaim, and its time is the thread's.
func TestReclaim(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-reclaim")
	watch(t, p, b, "box")
	limit := memoryLimit(t, "trimtab-reclaim", 48<<20)
	const code = "import os,sys,time\nopen(sys.argv[1]+'/cgroup.procs','w').write(str(os.getpid()))\n" +
		"f=open(sys.argv[2],'wb')\nfor i in range(200): f.write(b'x'*(1<<20))\nprint('go',flush=True)\ntime.sleep(100)"
	j := b.start(code, limit, filepath.Join(t.TempDir(), "data"))
	j.line()
	time.Sleep(10 * time.Millisecond)
	th := threadOf(t, read(t, p, "box"), j.pid())
	t.Logf("reclaim %.1f ms; %s", float64(th.ReclaimNs)/1e6, describe(th))
	if th.ReclaimNs == 0 || int64(th.ReclaimNs) > th.AtNs-th.SinceNs {
		t.Errorf("ReclaimNs %d of %d", th.ReclaimNs, th.AtNs-th.SinceNs)
	}
}

// memoryLimit makes a memory cgroup beside the box and returns its directory.
func memoryLimit(t *testing.T, name string, bytes int64) string {
	t.Helper()
	dir, file := "/sys/fs/cgroup/memory/"+name, "memory.limit_in_bytes"
	if _, _, v2 := cgroupRoots(t); v2 {
		t.Skip("needs v1's memory hierarchy: a v2 process has one cgroup for all")
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		t.Skipf("needs v1's memory hierarchy: %v", err)
	}
	t.Cleanup(func() { removeCgroup(t, dir) })
	if err := os.WriteFile(filepath.Join(dir, file), []byte(itoa(int32(bytes))), 0); err != nil {
		t.Fatal(err)
	}
	return dir
}
