package fusetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// serve mounts a layer and obeys what comes by standard input, until that ends.
func serve(dir string, files []string) error {
	root := &directory{files: map[string][]byte{}}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		root.files[filepath.Base(name)] = b
	}
	_, err := fs.Mount(dir, root, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "layer", Name: "layer", AllowOther: true}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "fusetest:", err)
		return nil // the test is skipped
	}
	fmt.Println(sayDone)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == sayHang {
			root.gate.close()
			for _, child := range root.Children() {
				child.NotifyContent(0, 0)
			}
		} else {
			root.gate.open()
		}
		fmt.Println(sayDone)
	}
	root.gate.open()
	return nil
}

// gate is open until it is closed; who comes then waits until it opens.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil: open
	met    bool          // somebody waits
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.met = make(chan struct{}), false
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	closed := g.closed
	if closed != nil && !g.met {
		g.met = true
		fmt.Println(sayMet)
	}
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

// directory is the layer's root.
type directory struct {
	fs.Inode
	files map[string][]byte
	gate  gate
}

// OnAdd puts the files into it.
func (d *directory) OnAdd(ctx context.Context) {
	for name, data := range d.files {
		f := &file{data: data, gate: &d.gate}
		d.AddChild(name, d.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG}), true)
	}
}

// file is one file of the layer.
type file struct {
	fs.Inode
	data []byte
	gate *gate
}

// Getattr always answers.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o755, uint64(len(f.data))
	return 0
}

// Open waits where the layer does not answer.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.gate.pass()
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

// Flush is a close; it waits where the layer does not answer.
func (f *file) Flush(context.Context, fs.FileHandle) syscall.Errno {
	f.gate.pass()
	return 0
}

// Read waits where the layer does not answer.
func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	f.gate.pass()
	from := min(at, int64(len(f.data)))
	return fuse.ReadResultData(f.data[from:min(from+int64(len(dest)), int64(len(f.data)))]), 0
}
