package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
)

func cgroupName(c runtime.Container) string { return filepath.Base(c.Cgroup.Dir("devices")) }

// nodesToRemove are the nodes that stand and that the target hides.
func (v *Visibility) nodesToRemove(root *os.File, target, before Hidden) (nodes []Node, notes []string, err error) {
	if root == nil || len(target.Minors) == 0 {
		return nil, nil, nil
	}
	majors, err := nvidiaMajors(v.o.ProcRoot)
	if err != nil {
		return nil, nil, err
	}
	dev, err := v.devDir(root)
	if err != nil {
		return nil, nil, fmt.Errorf("its nodes stay: %w", err)
	}
	defer dev.Close()
	nodes, notes = findNodes(dev, target, majors)
	nodes = slices.DeleteFunc(nodes, func(n Node) bool {
		return slices.ContainsFunc(before.Nodes, func(b Node) bool { return b.Name == n.Name })
	})
	return nodes, notes, nil
}

// furnish makes /dev and the file follow the rules, and stores the end of a change.
func (v *Visibility) furnish(c runtime.Container, root *os.File, before, target Hidden, all []Node, view runtime.GPUView, notes []string) ([]string, error) {
	target.File = before.File
	if root != nil {
		target.Nodes, notes = v.moveNodes(root, target, all, notes)
		sights, err := v.see(context.Background(), c, target, view)
		if err == nil {
			err = writeView(root, linesOf(sights))
		}
		target.File = target.File || err == nil
		if err != nil {
			notes = append(notes, "the container is not told what it sees: "+err.Error())
		}
	}
	v.o.Fault("furnished")
	v.Forget(c.Key())
	if len(target.Minors) == 0 && len(target.Nodes) == 0 && !target.File {
		return notes, v.ledger.put(c.Key(), nil)
	}
	// A record that covers too much undoes too much of nothing: it is asked each time.
	if err := v.ledger.put(c.Key(), &target); err != nil {
		notes = append(notes, "what is hidden is stored as it was while it changed: "+err.Error())
	}
	return notes, nil
}

// moveNodes removes the nodes of what is hidden and makes those of what is not; what
// it returns are those that are gone.
func (v *Visibility) moveNodes(root *os.File, target Hidden, all []Node, notes []string) ([]Node, []string) {
	if len(all) == 0 {
		return nil, notes
	}
	majors, err := nvidiaMajors(v.o.ProcRoot)
	if err != nil {
		return all, append(notes, err.Error())
	}
	dev, err := v.devDir(root)
	if err != nil {
		return all, append(notes, "its nodes stay as they are: "+err.Error())
	}
	defer dev.Close()
	var removed []Node
	for _, n := range all {
		minor, isGPU := gpuMinor(n.Name)
		hide := target.All || isGPU && slices.Contains(target.Minors, minor)
		if hide {
			err = removeNode(dev, n)
		} else {
			err = makeNode(dev, n, majors)
		}
		v.o.Fault("node")
		if err != nil {
			notes = append(notes, err.Error())
		}
		if hide == (err == nil) { // removed; or it could not be made, and is owed
			removed = append(removed, n)
		}
	}
	return removed, notes
}

// linesOf is the container's file.
func linesOf(sights []runtime.GPUSight) []string {
	var lines []string
	for _, s := range sights {
		switch {
		case !s.Visible:
		case s.UUID != "":
			lines = append(lines, s.UUID)
		default:
			lines = append(lines, strconv.Itoa(s.Minor))
		}
	}
	return lines
}

// Hiding lists the containers with anything of Hide's, by key; Minors may be empty.
func (v *Visibility) Hiding() map[string][]int {
	out := map[string][]int{}
	for _, key := range v.ledger.keys() {
		if h, ok := v.ledger.get(key); ok {
			out[key] = h.Minors
		}
	}
	return out
}

// Containers are those with a record, by key: id, name, init process, control group.
func (v *Visibility) Containers() map[string]runtime.Container {
	out := map[string]runtime.Container{}
	for _, key := range v.ledger.keys() {
		if h, ok := v.ledger.get(key); ok {
			out[key] = h.Container
		}
	}
	return out
}

// Left is the container with the GPUs that Hide left it: what a check of its access
// has to ask about. With none it holds no GPU.
func (v *Visibility) Left(c runtime.Container) runtime.Container {
	h, _ := v.ledger.get(c.Key())
	return h.seen(c)
}

// Restore undoes all that Hide did to a container, from the record alone: the engine
// is not needed. Did is false where there was nothing. An error leaves the record: it
// is owed, and Restore may be called again.
func (v *Visibility) Restore(ctx context.Context, key string) (did bool, notes []string, err error) {
	turn := v.ledger.turn(key)
	turn.Lock()
	defer turn.Unlock()
	h, ok := v.ledger.get(key)
	if !ok {
		return false, nil, nil
	}
	c := h.Container
	if v.gone(c) {
		return false, nil, v.ledger.put(key, nil) // what was set went with it
	}
	err = v.rewrite(ctx, h, Hidden{}, false)
	if errors.Is(err, runtime.ErrGone) {
		return false, nil, v.ledger.put(key, nil)
	}
	if err != nil {
		return false, nil, fmt.Errorf("container %q: its GPU rules are not all back: %w", c.Name, err)
	}
	v.o.Fault("restored")
	v.Forget(key)
	root, err := v.inside(c)
	if errors.Is(err, runtime.ErrGone) {
		return true, nil, v.ledger.put(key, nil)
	}
	if err != nil {
		return true, []string{"its nodes and its file stay as they are: " + err.Error()}, v.ledger.put(key, nil)
	}
	defer root.Close()
	_, notes = v.moveNodes(root, Hidden{}, h.Nodes, nil)
	if h.File {
		if err := removeView(root); err != nil {
			notes = append(notes, err.Error())
		}
	}
	return len(h.Minors) > 0, notes, v.ledger.put(key, nil)
}

// Yielded tells which hidden devices somebody else has allowed again. Only a proof
// counts.
func (v *Visibility) Yielded(ctx context.Context, key string) []int {
	turn := v.ledger.turn(key)
	if !turn.TryLock() {
		return nil
	}
	defer turn.Unlock()
	h, ok := v.ledger.get(key)
	if !ok || len(h.Minors) == 0 || v.gone(h.Container) {
		return nil
	}
	if !h.Open && !v.rulesMoved(key, h) {
		return nil
	}
	var out []int
	for _, minor := range h.Minors {
		if access, err := v.allowed(ctx, h.Container, minor); access == AccessAllowed && err == nil {
			out = append(out, minor)
		}
	}
	return out
}

// rulesMoved spares the tries while nothing changed.
func (v *Visibility) rulesMoved(key string, h Hidden) bool {
	r, err := v.read(h.Container)
	if err != nil {
		return false
	}
	now := r.signature(nil)
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.hidden[key]
	v.hidden[key] = now
	return s != now
}

// Signal sends a signal to a container's init process, and to no other that bears its number.
func (v *Visibility) Signal(c runtime.Container, s unix.Signal) error {
	fd, err := unix.PidfdOpen(c.InitPID, 0)
	if err != nil {
		return fmt.Errorf("container %q: its init process: %w", c.Name, err)
	}
	defer unix.Close(fd)
	if v.gone(c) {
		return fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil {
		return fmt.Errorf("container %q: %s to its init process: %w", c.Name, s, err)
	}
	return nil
}

// restoreTimeout bounds one container's restore.
const restoreTimeout = 15 * time.Second

// RestoreAll restores every container that has a record; nil: all were.
func (v *Visibility) RestoreAll(ctx context.Context, each func(key, name string, did bool, notes []string, err error)) error {
	if v.ledger.err != nil && v.ledger.store != nil {
		return fmt.Errorf("what is hidden of GPUs cannot be read, so nothing of it was restored: %w", v.ledger.err)
	}
	var all error
	for _, key := range v.ledger.keys() {
		h, _ := v.ledger.get(key)
		ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
		did, notes, err := v.Restore(ctx, key)
		cancel()
		each(key, h.Container.Name, did, notes, err)
		all = errors.Join(all, err)
	}
	return all
}
