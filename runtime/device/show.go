package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
)

// nodesToRemove are the nodes that stand, and that the target hides and nothing hid before.
func (v *Visibility) nodesToRemove(root *os.File, target, before Hidden) (nodes []Node, notes []string, err error) {
	if len(target.Minors) == 0 {
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
	var names []string
	for _, minor := range target.Minors {
		names = append(names, "nvidia"+strconv.Itoa(minor))
	}
	if target.All {
		names = append(names, controlNodes...)
	}
	for _, name := range names {
		n, ok, err := nodeOf(dev, name, majors)
		if err != nil {
			notes = append(notes, err.Error())
		}
		if ok && !slices.ContainsFunc(before.Nodes, func(b Node) bool { return b.Name == name }) {
			nodes = append(nodes, n)
		}
	}
	return nodes, notes, nil
}

// inside is what became of a container's files.
type inside struct {
	nodes []Node // found, or gone
	notes []string
	file  bool // the file tells what it sees
}

// findInside finds the nodes that a change removes. Unreached: none of its files can be.
func (v *Visibility) findInside(ctx context.Context, c runtime.Container, before, target Hidden) (found inside, unreached error) {
	return inFiles(ctx, v, c, func(_ context.Context, root *os.File) (in inside, _ error) {
		var err error
		if in.nodes, in.notes, err = v.nodesToRemove(root, target, before); err != nil {
			in.notes = append(in.notes, err.Error())
		}
		return in, nil
	})
}

// createDeviceNodes makes /dev and the file follow the rules, and settles the change.
func (v *Visibility) createDeviceNodes(ctx context.Context, target Hidden, view runtime.GPUView, notes []string) ([]string, error) {
	visibilities, err := v.see(ctx, target.Container, target, view)
	if err != nil {
		notes = append(notes, "the container is not told what it sees: "+err.Error())
	}
	made, unreached := v.createInside(ctx, target, viewText(visibilities), err == nil)
	if unreached != nil {
		// What was begun there may yet be done: it is all in the record.
		target.File = true
		return v.settle(target, append(notes, "its nodes and /run/trimtab/gpus may not follow: "+unreached.Error()))
	}
	target.Nodes, target.File = made.nodes, target.File || made.file
	return v.settle(target, append(notes, made.notes...))
}

func (v *Visibility) createInside(ctx context.Context, target Hidden, text string, tell bool) (inside, error) {
	return inFiles(ctx, v, target.Container, func(ctx context.Context, root *os.File) (in inside, _ error) {
		in.nodes, in.notes = v.moveNodes(ctx, root, target, target.Nodes)
		if !tell || ctx.Err() != nil {
			return in, nil
		}
		err := writeView(root, text)
		if in.file = err == nil; err != nil {
			in.notes = append(in.notes, "the container is not told what it sees: "+err.Error())
		}
		return in, nil
	})
}

// settle stores the end of a change.
func (v *Visibility) settle(target Hidden, notes []string) ([]string, error) {
	v.o.Fault("furnished")
	key := target.Container.Key()
	v.Forget(key)
	if len(target.Minors) == 0 && len(target.Nodes) == 0 && !target.File {
		return notes, v.ledger.put(key, nil)
	}
	// A record that covers too much undoes too much of nothing: it is asked each time.
	if err := v.ledger.put(key, &target); err != nil {
		notes = append(notes, "what is hidden is stored as it was while it changed: "+err.Error())
	}
	return notes, nil
}

// moveNodes removes the nodes of what is hidden and makes those of what is not; what
// it returns are those that are gone.
func (v *Visibility) moveNodes(ctx context.Context, root *os.File, target Hidden, all []Node) (removed []Node, notes []string) {
	if len(all) == 0 {
		return nil, nil
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
	for _, n := range all {
		if ctx.Err() != nil { // nobody waits for it any more, and others may be at it
			return all, append(notes, "its nodes: "+ctx.Err().Error())
		}
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
		if hide == (err == nil) && !errors.Is(err, errTaken) { // removed; or it could not be made, and is pending
			removed = append(removed, n)
		}
	}
	return removed, notes
}

// viewText is the container's file.
func viewText(visibilities []runtime.GPUVisibility) (text string) {
	for _, s := range visibilities {
		if s.Visible {
			text += cmp.Or(s.UUID, strconv.Itoa(s.Minor)) + "\n"
		}
	}
	return text
}

// Hiding lists the containers with anything of Hide's, by key; Minors may be empty.
func (v *Visibility) Hiding() map[string][]int {
	out := map[string][]int{}
	for key, h := range v.ledger.copy() {
		out[key] = h.Minors
	}
	return out
}

// Unsettled tells whether a change of what is hidden from a container failed, or was cut
// off, and could not be undone: Restore is pending. One that is under way does not count.
func (v *Visibility) Unsettled(key string) bool {
	turn, ok := v.ledger.turns.Try(key)
	if !ok {
		return false
	}
	defer turn.Give()
	h, _ := v.ledger.get(key)
	return h.Unsettled
}

// Containers are those with a record, by key: id, name, init process, control group.
func (v *Visibility) Containers() map[string]runtime.Container {
	out := map[string]runtime.Container{}
	for key, h := range v.ledger.copy() {
		out[key] = h.Container
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
// is pending, and Restore may be called again.
func (v *Visibility) Restore(ctx context.Context, key string) (did bool, notes []string, err error) {
	turn, err := v.ledger.turns.Take(ctx, key)
	if err != nil {
		return false, nil, err
	}
	defer turn.Give()
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
	back, err := v.restoreFiles(ctx, h)
	left := Hidden{Container: c, Nodes: back.nodes, Unsettled: true} // what is pending
	switch {
	case errors.Is(err, runtime.ErrGone):
	case err != nil && (len(h.Nodes) > 0 || h.File):
		left.Nodes, left.File = h.Nodes, h.File
		err = fmt.Errorf("container %q: its GPU rules are back, its nodes and its file are not: %w", c.Name, err)
		return true, nil, errors.Join(err, v.ledger.put(key, &left))
	case len(left.Nodes) > 0:
		err = fmt.Errorf("container %q: its GPU rules are back, its nodes are not all: %s", c.Name, strings.Join(back.notes, "; "))
		return true, nil, errors.Join(err, v.ledger.put(key, &left))
	}
	return len(h.Minors)+len(h.Nodes) > 0, back.notes, v.ledger.put(key, nil)
}

// restoreFiles puts back the container's files.
func (v *Visibility) restoreFiles(ctx context.Context, h Hidden) (inside, error) {
	return inFiles(ctx, v, h.Container, func(ctx context.Context, root *os.File) (in inside, _ error) {
		in.nodes, in.notes = v.moveNodes(ctx, root, Hidden{}, h.Nodes)
		if !h.File || ctx.Err() != nil {
			return in, nil
		}
		if err := removeView(root); err != nil {
			in.notes = append(in.notes, err.Error())
		}
		return in, nil
	})
}

// Yielded tells which hidden devices somebody else has allowed again. Only a proof
// counts.
func (v *Visibility) Yielded(ctx context.Context, key string) []int {
	turn, ok := v.ledger.turns.Try(key)
	if !ok {
		return nil
	}
	defer turn.Give()
	h, ok := v.ledger.get(key)
	if !ok || len(h.Minors) == 0 || v.gone(h.Container) {
		return nil
	}
	if !h.Open && !v.rulesMoved(key, h) {
		return nil
	}
	var out []int
	for _, minor := range h.Minors {
		if access, err := tryOpen(ctx, h.Container, []int{minor}); access == AccessAllowed && err == nil {
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

// Unreadable tells of what is hidden and cannot be read back: nothing of it is undone,
// and nothing more is hidden there.
func (v *Visibility) Unreadable() error {
	err := v.ledger.err
	for _, key := range slices.Sorted(maps.Keys(v.ledger.unread)) {
		err = errors.Join(err, fmt.Errorf("container %s: %w", key, v.ledger.unread[key]))
	}
	if err != nil {
		err = fmt.Errorf("what is hidden of GPUs cannot be read, so it is not restored: %w", err)
	}
	return err
}

// restoreTimeout bounds one container's restore: its files, and two questions to systemd.
const restoreTimeout = 20 * time.Second

// RestoreAll restores every container that has a record; nil: all were.
func (v *Visibility) RestoreAll(ctx context.Context, each func(key, name string, did bool, notes []string, err error)) error {
	if v.ledger.err != nil {
		return v.Unreadable()
	}
	type answer struct {
		did   bool
		notes []string
		err   error
	}
	hidden := v.ledger.copy()
	keys := slices.Sorted(maps.Keys(hidden))
	answers := make([]answer, len(keys))
	var wait sync.WaitGroup
	for i, key := range keys { // beside each other: one that hangs holds up no other
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
			defer cancel()
			a := &answers[i]
			a.did, a.notes, a.err = v.Restore(ctx, key)
		})
	}
	wait.Wait()
	var all error
	for _, key := range slices.Sorted(maps.Keys(v.ledger.unread)) {
		err := fmt.Errorf("what is hidden from it cannot be read: %w; restart the container, then remove the file", v.ledger.unread[key])
		each(key, key, false, nil, err)
		all = errors.Join(all, err)
	}
	for i, a := range answers {
		each(keys[i], hidden[keys[i]].Container.Name, a.did, a.notes, a.err)
		all = errors.Join(all, a.err)
	}
	return all
}
