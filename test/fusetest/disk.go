package fusetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// diskCommand is the first argument of the process that serves a disk.
const diskCommand = "fusetest-disk"

// Fault is what a disk does. The zero value is a disk that works.
type Fault struct {
	// SyncDelay is how long each fsync takes more.
	SyncDelay time.Duration
	// SyncFails: each fsync gives EIO, though what was written may be read.
	SyncFails bool
	// ReadOnly: whatever would change something gives EROFS, as on a file system that the
	// kernel made read-only after an error. A remount could not do it here: it is refused
	// while files are open for writing.
	ReadOnly bool
	// Silent: whoever looks up a file, or asks what it is, waits, as for another machine that is gone.
	Silent bool
}

// Disk shows a directory at another place, by FUSE, with the faults that it is told. A
// full disk needs none: fill what is below.
type Disk struct {
	Dir  string
	cmd  *exec.Cmd
	to   io.WriteCloser
	from *bufio.Scanner
}

// OpenDisk mounts the directory below at dir. Its program's main must call [Main] first.
func OpenDisk(dir, below string) (*Disk, error) {
	d := &Disk{Dir: dir, cmd: exec.Command("/proc/self/exe", diskCommand, dir, below)}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for whoever uses it
	var err error
	if d.to, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	from, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.from = bufio.NewScanner(from)
	if !d.from.Scan() {
		return nil, errors.Join(errors.New("needs FUSE and root"), d.to.Close(), d.cmd.Wait())
	}
	return d, nil
}

// Set gives the disk a fault in place of the one that it had.
func (d *Disk) Set(f Fault) error {
	if _, err := fmt.Fprintln(d.to, int64(f.SyncDelay), f.SyncFails, f.ReadOnly, f.Silent); err != nil {
		return err
	}
	if !d.from.Scan() {
		return errors.New("the disk's server ended")
	}
	return nil
}

// Close takes the disk away; what is below stays.
func (d *Disk) Close() error {
	err := syscall.Unmount(d.Dir, syscall.MNT_DETACH)
	return errors.Join(err, d.to.Close(), d.cmd.Wait())
}

// serveDisk mounts a disk and obeys what comes by standard input, until that ends.
func serveDisk(dir, below string) error {
	root := &fs.LoopbackRoot{Path: below}
	state := &atomic.Pointer[Fault]{}
	state.Store(&Fault{})
	top := &diskNode{LoopbackNode: fs.LoopbackNode{RootData: root}, fault: state}
	root.RootNode = top
	_, err := fs.Mount(dir, top, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "disk", Name: "disk", AllowOther: true}})
	if err != nil {
		return err
	}
	fmt.Println(sayDone)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var delay int64
		f := &Fault{}
		if _, err := fmt.Sscan(strings.TrimSpace(lines.Text()), &delay, &f.SyncFails, &f.ReadOnly, &f.Silent); err != nil {
			return err
		}
		f.SyncDelay = time.Duration(delay)
		state.Store(f)
		fmt.Println(sayDone)
	}
	return nil
}

// diskNode is a file or directory of a disk.
type diskNode struct {
	fs.LoopbackNode
	fault *atomic.Pointer[Fault]
}

// WrapChild makes what is below of the same kind.
func (n *diskNode) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &diskNode{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, fault: n.fault}
}

// answers waits for a disk that does.
func (n *diskNode) answers() {
	for n.fault.Load().Silent {
		time.Sleep(10 * time.Millisecond)
	}
}

// Lookup obeys Silent.
func (n *diskNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.answers()
	return n.LoopbackNode.Lookup(ctx, name, out)
}

// Getattr obeys Silent.
func (n *diskNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.answers()
	return n.LoopbackNode.Getattr(ctx, f, out)
}

// change is what an operation that changes something meets.
func (n *diskNode) change() syscall.Errno {
	if n.fault.Load().ReadOnly {
		return syscall.EROFS
	}
	return 0
}

// sync is what an fsync meets.
func (n *diskNode) sync() syscall.Errno {
	now := n.fault.Load()
	time.Sleep(now.SyncDelay)
	if now.SyncFails || now.ReadOnly {
		return syscall.EIO
	}
	return 0
}

// Fsync is slow or fails.
func (n *diskNode) Fsync(ctx context.Context, f fs.FileHandle, flags uint32) syscall.Errno {
	if e := n.sync(); e != 0 {
		return e
	}
	file, ok := f.(fs.FileFsyncer)
	if !ok {
		return syscall.EBADF
	}
	return file.Fsync(ctx, flags)
}

// dirHandle is an open directory, whose fsync meets the faults too.
type dirHandle struct {
	openDir
	node *diskNode
}

// openDir is what go-fuse's own is.
type openDir interface {
	fs.DirStream
	fs.FileReaddirenter
	fs.FileReleasedirer
	fs.FileSeekdirer
	fs.FileFsyncdirer
}

// Fsyncdir is slow or fails.
func (h dirHandle) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	if e := h.node.sync(); e != 0 {
		return e
	}
	return h.openDir.Fsyncdir(ctx, flags)
}

// OpendirHandle opens a directory.
func (n *diskNode) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, out, e := n.LoopbackNode.OpendirHandle(ctx, flags)
	if dir, ok := h.(openDir); ok && e == 0 {
		return dirHandle{dir, n}, out, 0
	}
	return h, out, e
}

// Write obeys ReadOnly.
func (n *diskNode) Write(ctx context.Context, f fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if e := n.change(); e != 0 {
		return 0, e
	}
	file, ok := f.(fs.FileWriter)
	if !ok {
		return 0, syscall.EBADF
	}
	return file.Write(ctx, data, off)
}

// Open obeys ReadOnly.
func (n *diskNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0 {
		if e := n.change(); e != 0 {
			return nil, 0, e
		}
	}
	return n.LoopbackNode.Open(ctx, flags)
}

// Create obeys ReadOnly.
func (n *diskNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if e := n.change(); e != 0 {
		return nil, nil, 0, e
	}
	return n.LoopbackNode.Create(ctx, name, flags, mode, out)
}

// Mkdir obeys ReadOnly.
func (n *diskNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if e := n.change(); e != 0 {
		return nil, e
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

// Unlink obeys ReadOnly.
func (n *diskNode) Unlink(ctx context.Context, name string) syscall.Errno {
	if e := n.change(); e != 0 {
		return e
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

// Rmdir obeys ReadOnly.
func (n *diskNode) Rmdir(ctx context.Context, name string) syscall.Errno {
	if e := n.change(); e != 0 {
		return e
	}
	return n.LoopbackNode.Rmdir(ctx, name)
}

// Rename obeys ReadOnly.
func (n *diskNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if e := n.change(); e != 0 {
		return e
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

// Setattr obeys ReadOnly.
func (n *diskNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if e := n.change(); e != 0 {
		return e
	}
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}
