package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

// Cold reads by O_DIRECT: bytes and latency are the container's, and the thread
// waits in blockio, and nothing is counted that the kernel charges to others, who read
// meanwhile. A sandbox's kernel may run no program while its own init is current, and a
// completion that interrupts that one is not seen: one round of several must be whole.
func TestBlockIO(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-block")
	b.chargeBlockIO(t)
	watch(t, p, b, "box")
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 16<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	others := newBox(t, nil, "trimtab-others").start("import os,mmap,sys\nfd=os.open(sys.argv[1],os.O_RDWR|os.O_DIRECT)\nm=mmap.mmap(-1,1<<16)\n"+
		"while True:\n for i in range(256): os.preadv(fd,[m],i<<16)", path)
	defer others.stop()
	var before probes.Block
	for range 5 {
		k, th := directIO(t, p, b, path)
		round := probes.Block{
			Reads: k.Block.Reads - before.Reads, ReadBytes: k.Block.ReadBytes - before.ReadBytes, ReadNs: k.Block.ReadNs - before.ReadNs,
			Writes: k.Block.Writes - before.Writes, WriteBytes: k.Block.WriteBytes - before.WriteBytes, WriteNs: k.Block.WriteNs - before.WriteNs,
		}
		before = k.Block
		if reads, writes, ok := b.charged(); !ok {
			t.Log("the kernel tells nothing to compare with")
		} else if k.Block.ReadBytes > reads || k.Block.WriteBytes > writes {
			t.Errorf("others' I/O was counted too: %+v; %s", k.Block, kernelsWord(p, b))
		}
		if round.ReadBytes >= 16<<20 && round.ReadNs > 0 && round.WriteBytes >= 1<<20 && round.WriteNs > 0 && th.Ns[probes.StateBlockIO] > 0 {
			return
		}
		t.Logf("a round that is not whole: %+v, %d lost; %s; %s", round, k.Lost, kernelsWord(p, b), describe(th))
	}
	t.Error("block I/O of 16 MiB read, 1 MiB written, was not whole in any round")
}

// directIO has the box read 16 MiB of path and write 1 MiB of it, and returns what was
// counted by then.
func directIO(t *testing.T, p *Probe, b *box, path string) (*probes.Kernel, probes.Thread) {
	t.Helper()
	const code = "import os,mmap,sys,time\nfd=os.open(sys.argv[1],os.O_RDWR|os.O_DIRECT)\nos.fsync(fd)\nm=mmap.mmap(-1,1<<20)\n" +
		"n=sum(os.preadv(fd,[m],i<<20) for i in range(16))\nos.pwritev(fd,[m],0)\nprint('read',n,flush=True)\ntime.sleep(100)"
	j := b.start(code, path)
	defer j.stop()
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
	if charged, _, _ := b.charged(); k.Block.Reads == 0 && charged == 0 {
		t.Skip("needs a block device below the temporary directory")
	}
	return k, th
}

// TestBlockRequestsAreShared: a container that keeps the disk's queue full takes no more than its
// share of the room for requests, and of a neighbour's each is counted. A request whose completion is
// not seen, as TestBlockIO says, keeps its place until it is used again. So the neighbour reads so many
// blocks one by one, and is judged by what it can have held of the room at most.
func TestBlockRequestsAreShared(t *testing.T) {
	p := newProbe(t, Options{MaxRequests: sharedRoom})
	path := filepath.Join(t.TempDir(), "data")
	if err := writeSynced(path, 16<<20); err != nil { // else a reader would write first
		t.Fatal(err)
	}
	const code = "import os,mmap,sys,threading\nos.sched_setaffinity(0,[min(os.sched_getaffinity(0))])\nfd=os.open(sys.argv[1],os.O_RDONLY|os.O_DIRECT)\n" +
		"def reads(n):\n m=mmap.mmap(-1,4096)\n while n: os.preadv(fd,[m],n%4096<<12); n-=1\n" +
		"for _ in range(int(sys.argv[2])): threading.Thread(target=reads,args=(-1,),daemon=True).start()\n" +
		"while True: reads(int(sys.argv[3])); print('read',flush=True); os.read(0,1)"
	s := sharing{T: t, p: p, hog: newBox(t, nil, "trimtab-hog"), victim: newBox(t, nil, "trimtab-victim")}
	s.hog.chargeBlockIO(t)
	watch(t, p, s.hog, "hog")
	hog := s.hog.start(code, path, "64", "1")
	s.victim.chargeBlockIO(t)
	watch(t, p, s.victim, "victim")
	victim := s.victim.start(code, path, "0", strconv.Itoa(roundReads))
	for _, j := range []*job{hog, victim} { // each has read what Python is made of
		if line, err := j.out.ReadString('\n'); err != nil {
			t.Skipf("needs a file system with O_DIRECT below the temporary directory: %v: %s%s", err, line, j.stderr())
		}
	}
	judged := 0
	for i, end := 0, time.Now().Add(time.Minute); i < 10 || judged == 0 && time.Now().Before(end); i++ {
		if s.round(victim) {
			judged++
		}
	}
	if k := read(t, p, "hog"); k.Lost == 0 || read(t, p, "victim").Block.Reads == 0 {
		t.Skip("needs a block device below the temporary directory, with 64 requests in flight")
	}
	if judged == 0 {
		t.Error("in no round was the hog refused and the victim seen well enough to judge")
	}
	hog.stop()
	victim.stop()
	s.noneLeaks()
}

const (
	sharedRoom = 16 // less than the hog reads at once
	roundReads = 100
)

// sharing is two containers that share the room for requests.
type sharing struct {
	*testing.T
	p           *Probe
	hog, victim *box
}

// held is how many requests of a container's the room holds.
func (s sharing) held(key string) uint64 {
	s.Helper()
	var v countersContainer
	if err := s.p.loaded.coll.Maps["containers"].Lookup(s.p.containers[key].slot, &v); err != nil {
		s.Fatal(err)
	}
	return v.Requests
}

// round has the victim read, and reports whether it could be judged: the hog was refused meanwhile, nothing
// else was charged to the victim, and with all that was not seen of its reads it held less than its share.
func (s sharing) round(victim *job) bool {
	s.Helper()
	held, hogBefore, before := s.held("victim"), read(s.T, s.p, "hog"), read(s.T, s.p, "victim")
	chargedBefore, _, _ := s.victim.charged()
	if _, err := victim.in.Write([]byte("x")); err != nil {
		s.Fatal(err)
	}
	victim.line()
	hog, after := read(s.T, s.p, "hog"), read(s.T, s.p, "victim")
	charged, _, tells := s.victim.charged()
	lost, hogLost := after.Lost-before.Lost, hog.Lost-hogBefore.Lost
	unseen := int64(roundReads) - int64(after.Block.Reads-before.Block.Reads) - int64(lost)
	only := unseen >= 0 && (!tells || charged-chargedBefore == roundReads*4096)
	s.Logf("hog lost %d; victim lost %d, %d unseen, %d held before; only its reads: %v", hogLost, lost, unseen, held, only)
	// The hog runs on one processor: it has a fifth of the room at most, one more, and one that the kernel issues elsewhere.
	const hogs = sharedRoom/5 + 2
	most := int64(held) + unseen
	if hogLost == 0 || !only || 4*most >= sharedRoom-hogs-most {
		return false
	}
	if lost > 0 {
		s.Errorf("%d of the victim's requests found no room, of which it held %d at most", lost, most)
	}
	return true
}

// noneLeaks: what the map holds is what is counted. Those left go when others' requests use them again,
// also between the two readings; a leak stays.
func (s sharing) noneLeaks() {
	s.Helper()
	var inMap, counted uint64
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if inMap, counted = requestsLeft(s.T, s.p); inMap == counted {
			return
		}
	}
	s.Errorf("%d requests are left, counted are %d", inMap, counted)
}

func writeSynced(path string, size int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, size))
	return errors.Join(err, f.Sync(), f.Close())
}

// requestsLeft are the requests that the map holds, and how many are counted in it.
func requestsLeft(t *testing.T, p *Probe) (inMap, counted uint64) {
	t.Helper()
	var key uint64
	value := make([]byte, p.loaded.coll.Maps["requests"].ValueSize())
	for all := p.loaded.coll.Maps["requests"].Iterate(); all.Next(&key, &value); {
		inMap++
	}
	if err := p.loaded.coll.Variables["num_requests"].Get(&counted); err != nil {
		t.Fatal(err)
	}
	return inMap, counted
}

// charged is what the kernel charged to the box, in bytes read and written.
func (b *box) charged() (reads, writes uint64, ok bool) {
	counts, err := b.ioCounts()
	for _, m := range regexp.MustCompile(`(Read |Write |rbytes=|wbytes=)(\d+)`).FindAllStringSubmatch(counts, -1) {
		n, _ := strconv.ParseUint(m[2], 10, 64) // digits
		if strings.HasPrefix(strings.ToLower(m[1]), "r") {
			reads += n
		} else {
			writes += n
		}
	}
	return reads, writes, err == nil && reads+writes > 0
}

// ioCounts is the kernel's file of them, v1's or v2's.
func (b *box) ioCounts() (string, error) {
	file := filepath.Join(b.blkio, "blkio.throttle.io_service_bytes")
	if b.v2 {
		file = filepath.Join(b.unified, "io.stat")
	}
	counts, err := os.ReadFile(file)
	return string(counts), err
}

// kernelsWord is what the kernel counted of a box's block I/O, and how often it left the
// programs out since the same one was running on that processor.
func kernelsWord(p *Probe, b *box) string {
	counts, err := b.ioCounts()
	said := fmt.Sprintf("the kernel's counts: %q, %v", counts, err)
	for _, name := range []string{"on_block_issue", "on_block_complete"} {
		if s, err := p.loaded.coll.Programs[name].Stats(); err == nil {
			said += fmt.Sprintf("; %s left out %d times", name, s.RecursionMisses)
		}
	}
	return said
}

// A memory limit that anonymous and file memory together exceed makes direct
// reclaim, and its time is the thread's. Where the kernel misses that it ends, it
// does not go on.
func TestReclaim(t *testing.T) {
	for name, missed := range map[string][]string{
		"seen":          nil,
		"end unnoticed": {"on_reclaim_end", "on_memcg_reclaim_end"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbe(t, Options{})
			b := newBox(t, nil, "trimtab-reclaim")
			watch(t, p, b, "box")
			detach(t, p, missed...)
			limit := memoryLimit(t, "trimtab-reclaim", 48<<20)
			const code = "import os,sys,time\nopen(sys.argv[1]+'/cgroup.procs','w').write(str(os.getpid()))\n" +
				"f=open(sys.argv[2],'wb')\nfor i in range(200): f.write(b'x'*(1<<20))\nprint('go',flush=True)\ntime.sleep(100)"
			j := b.start(code, limit, filepath.Join(t.TempDir(), "data"))
			j.line()
			time.Sleep(10 * time.Millisecond)
			th := threadOf(t, read(t, p, "box"), j.pid())
			t.Logf("reclaim %.1f ms; %s", float64(th.ReclaimNs)/1e6, describe(th))
			if (th.ReclaimNs > 0) != (missed == nil) || int64(th.ReclaimNs) > th.AtNs-th.SinceNs {
				t.Errorf("ReclaimNs %d of %d", th.ReclaimNs, th.AtNs-th.SinceNs)
			}
		})
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

// What a thread writes to a file on a disk is counted as it writes, and what it sends down a pipe is not.
func TestWrittenBytes(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-written")
	watch(t, p, b, "box")
	file := filepath.Join(t.TempDir(), "file")
	j := b.start("import os,sys,time\nr,w=os.pipe()\nprint('go',flush=True)\nsys.stdin.readline()\n"+
		"f=open(sys.argv[1],'wb')\nf.write(bytes(8<<20))\nf.flush()\nfor _ in range(64): os.write(w,bytes(1<<15)); os.read(r,1<<15)\nprint('written',flush=True)\ntime.sleep(100)", file)
	j.line()
	before := threadOf(t, read(t, p, "box"), j.pid())
	if _, err := j.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	j.line()
	after := threadOf(t, read(t, p, "box"), j.pid())
	if after.IOBytes-before.IOBytes < 8<<20+64<<16 {
		t.Fatalf("%d bytes read and written, want those of the file and of the pipe", after.IOBytes-before.IOBytes)
	}
	switch got := after.WrittenBytes - before.WrittenBytes; {
	case got == 0:
		t.Skip("needs a disk below the temporary directory, and a kernel with CONFIG_TASK_IO_ACCOUNTING")
	case got < 8<<20 || got > 8<<20+64<<10:
		t.Errorf("%d bytes written to files, want 8 MiB", got)
	}
}
