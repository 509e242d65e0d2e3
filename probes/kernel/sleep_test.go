package kernel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/trimtab/trimtab/probes"
)

// slowFile answers each read after a while, as a network file system does.
type slowFile struct {
	fs.Inode
	delay time.Duration
}

var (
	_ fs.NodeOpener    = (*slowFile)(nil)
	_ fs.NodeReader    = (*slowFile)(nil)
	_ fs.NodeGetattrer = (*slowFile)(nil)
)

const slowFileBytes = 1 << 30

func (f *slowFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o444, slowFileBytes
	return 0
}

func (f *slowFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0 // no read-ahead: each read is one request
}

func (f *slowFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	time.Sleep(f.delay)
	return fuse.ReadResultData(make([]byte, len(dest))), 0
}

type slowRoot struct {
	fs.Inode
	delay time.Duration
}

func (r *slowRoot) OnAdd(ctx context.Context) {
	r.AddChild("data", r.NewPersistentInode(ctx, &slowFile{delay: r.delay}, fs.StableAttr{Mode: fuse.S_IFREG}), false)
}

var _ fs.NodeOnAdder = (*slowRoot)(nil)

// A read of a FUSE file waits for another process, somewhere: a network
// file system to whoever waits.
func TestReadsOfNetworkFileSystems(t *testing.T) {
	dir := slowMount(t, 50*time.Millisecond)
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-netfile")
	watch(t, p, b, "box")
	const code = "import os,sys\nfd=os.open(sys.argv[1],os.O_RDONLY)\nprint('go',flush=True)\nwhile True: os.pread(fd,4096,0)"
	j := b.start(code, filepath.Join(dir, "data"))
	j.line()
	th := over(t, p, "box", j.pid(), time.Second)
	if share(th, probes.StateNetFile) < 0.8 {
		t.Errorf("reads that take 50 ms each: %s", describe(th))
	}
	j.stop() // before its file system goes
}

// slowMount mounts the slow file system.
func slowMount(t *testing.T, delay time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	server, err := fs.Mount(dir, &slowRoot{delay: delay}, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "trimtab-slow"}})
	if err != nil {
		t.Skipf("needs FUSE: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A thread that maps memory while another one unmaps much of it waits for the
// lock of their address space, uninterruptibly and without I/O.
const lockSource = `
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void *unmap(void *unused)
{
	size_t n = 256 << 20;

	for (;;) {
		void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		munmap(p, n);
	}
	return unused;
}

int main(void)
{
	pthread_t t;

	puts("go");
	fflush(stdout);
	pthread_create(&t, NULL, unmap, NULL);
	for (;;)
		munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}
`

func TestWaitsForKernelLocks(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc: two threads that meet at a lock of the kernel are a C program")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock.c"), []byte(lockSource), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-pthread", "-o", filepath.Join(dir, "lock"), filepath.Join(dir, "lock.c")).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-lock")
	watch(t, p, b, "box")
	j := b.start("import os,sys\nos.execv(sys.argv[1],[sys.argv[1]])", filepath.Join(dir, "lock"))
	j.line()
	th := over(t, p, "box", j.pid(), time.Second)
	if share(th, probes.StateLock) < 0.2 {
		t.Errorf("a thread that meets another at a lock: %s", describe(th))
	}
}
