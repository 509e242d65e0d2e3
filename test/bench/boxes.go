package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// A box is a container without an engine's shim, of which a thousand would take
// 13 GB: a cgroup in every hierarchy, a network namespace, one process or two
// (testdata/box.c). Every second box works ten times a second.
const (
	boxEvery = 100 * time.Millisecond
	boxBurn  = 20 * time.Microsecond
)

// boxes are those of one run, oldest first.
type boxes struct {
	program string
	tree    tree
	all     []box
	stdin   *os.File // its end ends every box
	release *os.File
}

type box struct {
	id  string // 64 hex digits, as an engine's; trimtab's keys have the first 16
	pid int
	cmd *exec.Cmd
}

// newBoxes builds the program and the parent cgroups.
func newBoxes(ctx context.Context, dir string) (*boxes, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil, errors.New("needs gcc: apt-get install gcc libc6-dev")
	}
	b := &boxes{program: filepath.Join(dir, "box")}
	if out, err := exec.CommandContext(ctx, "gcc", "-O2", "-Wall", "-o", b.program, "test/bench/testdata/box.c").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build test/bench/testdata/box.c: %w\n%s", err, out)
	}
	var err error
	if b.tree, err = newTree(fmt.Sprintf("%s%d", namePrefix, os.Getpid())); err != nil {
		return nil, err
	}
	if b.stdin, b.release, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, b.tree.remove())
	}
	return b, nil
}

// grow adds boxes until there are n.
func (b *boxes) grow(ctx context.Context, n int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	more := n - len(b.all)
	for len(b.all) < n && ctx.Err() == nil {
		if err := b.add(w); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	if err := errors.Join(ctx.Err(), w.Close()); err != nil {
		return err
	}
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	// The boxes hold the other end: it ends only with them.
	if _, err := io.ReadFull(r, make([]byte, more)); err != nil {
		return fmt.Errorf("%d boxes did not all start: %w", more, err)
	}
	return nil
}

func (b *boxes) add(ready *os.File) error {
	i := len(b.all)
	id := fmt.Sprintf("%016x%048x", i+1, os.Getpid())
	procs, err := b.tree.add(id)
	if err != nil {
		return err
	}
	every := time.Duration(0)
	if i%2 == 0 {
		every = boxEvery
	}
	cmd := exec.Command(b.program, append([]string{strconv.FormatInt(every.Microseconds(), 10), strconv.FormatInt(boxBurn.Microseconds(), 10)}, procs...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = b.stdin, ready, os.Stderr
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start a box: %w", err), b.tree.drop(id))
	}
	b.all = append(b.all, box{id: id, pid: cmd.Process.Pid, cmd: cmd})
	return nil
}

// close ends all boxes and removes their cgroups.
func (b *boxes) close() error {
	errs := []error{b.release.Close(), b.stdin.Close()}
	for _, x := range b.all {
		if err := x.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("box %s: %w", x.id, err))
		}
	}
	for _, x := range b.all {
		errs = append(errs, b.tree.drop(x.id))
	}
	return errors.Join(append(errs, b.tree.remove())...)
}

// tree is one parent cgroup in each hierarchy.
type tree struct{ parents []string }

func newTree(name string) (tree, error) {
	mode, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		return tree{}, err
	}
	roots := []string{cgroup.DefaultRoot}
	if mode != runtime.CgroupV2 {
		if roots, err = v1Roots(); err != nil {
			return tree{}, err
		}
	}
	var t tree
	for _, root := range roots {
		dir := filepath.Join(root, name)
		t.parents = append(t.parents, dir)
		if err := makeParent(root, dir, mode == runtime.CgroupV2); err != nil {
			return tree{}, errors.Join(err, t.remove())
		}
	}
	return t, nil
}

// v1Roots are the hierarchies of a host with v1 ones; names that are links to
// another ("cpu" to "cpu,cpuacct") count once.
func v1Roots() ([]string, error) {
	entries, err := os.ReadDir(cgroup.DefaultRoot)
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, e := range entries {
		if e.IsDir() {
			roots = append(roots, filepath.Join(cgroup.DefaultRoot, e.Name()))
		}
	}
	return roots, nil
}

func makeParent(root, dir string, v2 bool) error {
	if v2 {
		// Which of them the host has is its own affair; what is absent is not read either.
		enable(root)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if v2 {
		enable(dir)
	}
	return inheritCpuset(root, dir)
}

func enable(dir string) {
	for _, controller := range []string{"+cpu", "+cpuset", "+io", "+memory", "+pids"} {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controller), 0)
	}
}

// inheritCpuset gives a v1 cpuset what its parent has: without, nothing may join it.
func inheritCpuset(from, to string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if _, err := os.Stat(filepath.Join(to, "notify_on_release")); err != nil {
			return nil // v2: inherited
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			return nil // another controller's
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add makes a box's cgroups and returns the files by which to join them.
func (t tree) add(id string) (procs []string, err error) {
	for _, parent := range t.parents {
		dir := filepath.Join(parent, id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(err, t.drop(id))
		}
		if err := inheritCpuset(parent, dir); err != nil {
			return nil, errors.Join(err, t.drop(id))
		}
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
	}
	return procs, nil
}

func (t tree) drop(id string) error {
	var errs []error
	for _, parent := range t.parents {
		errs = append(errs, removeCgroup(filepath.Join(parent, id)))
	}
	return errors.Join(errs...)
}

func (t tree) remove() error {
	var errs []error
	for _, dir := range t.parents {
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

// removeCgroup waits for the last process to leave.
func removeCgroup(dir string) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
}

// shortID is the part of an ID that tells boxes apart.
func (x box) shortID() string { return strings.TrimLeft(x.id[:16], "0") }
