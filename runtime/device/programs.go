package device

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
)

// program is one device program that holds for a control group.
type program struct {
	id    ebpf.ProgramID
	name  string
	here  bool // attached to the group itself, not to one above
	code  asm.Instructions
	slots []slot
	err   error // why it cannot be read
}

// systemdProgram is what systemd calls its own (bpf-devices.c). It is systemd's to
// replace: one that was put in its place would stay beside the next.
const systemdProgram = "sd_devices"

// programCache keeps what was read of programs, which never change. It is safe for
// concurrent use.
type programCache struct {
	mu    sync.Mutex
	known map[ebpf.ProgramID]program
}

func newProgramCache() *programCache { return &programCache{known: map[ebpf.ProgramID]program{}} }

// maxKnown bounds the cache: a host has few device programs at a time.
const maxKnown = 512

// of lists all programs that a request of dir's processes must pass, those of the
// groups above included. None: everything is allowed as far as v2 goes.
func (c *programCache) of(dir string) ([]program, error) {
	group, err := openGroup(dir)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	all, err := query(group, unix.BPF_F_QUERY_EFFECTIVE)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	own, err := query(group, 0)
	if err != nil {
		return nil, err
	}
	var out []program
	for _, id := range all {
		p := c.get(id)
		p.here = slices.Contains(own, id)
		out = append(out, p)
	}
	return out, nil
}

func openGroup(dir string) (*os.File, error) {
	group, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if isGone(err) {
		return nil, fmt.Errorf("its control group is gone: %w", runtime.ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	return group, nil
}

func query(group *os.File, flags uint32) ([]ebpf.ProgramID, error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: int(group.Fd()), Attach: ebpf.AttachCGroupDevice, QueryFlags: flags})
	if isGone(err) {
		return nil, fmt.Errorf("its control group is gone: %w", runtime.ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("device programs of %s: %w (trimtab needs CAP_NET_ADMIN to ask for them)", group.Name(), err)
	}
	var out []ebpf.ProgramID
	for _, p := range result.Programs {
		out = append(out, p.ID)
	}
	return out, nil
}

func (c *programCache) get(id ebpf.ProgramID) program {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.known[id]; ok {
		return p
	}
	if len(c.known) >= maxKnown {
		clear(c.known)
	}
	p := readProgram(id)
	if p.err == nil {
		c.known[id] = p
	}
	return p
}

// readProgram asks the kernel for a program's instructions.
func readProgram(id ebpf.ProgramID) program {
	p := program{id: id}
	handle, err := ebpf.NewProgramFromID(id)
	if err != nil {
		p.err = fmt.Errorf("device program %d: %w (trimtab needs CAP_SYS_ADMIN to read it)", id, err)
		return p
	}
	defer handle.Close()
	info, err := handle.Info()
	if err == nil {
		p.name = info.Name
		p.code, err = info.Instructions()
	}
	if err == nil {
		p.slots, err = slotsOf(p.code)
	}
	if err != nil {
		p.err = fmt.Errorf("device program %d %q: %w", id, p.name, err)
	}
	return p
}

// refusing returns the first program that refuses a request; nil: all let it pass.
// A program that refuses settles it, whatever another that cannot be read says.
func refusing(programs []program, r request) (*program, error) {
	var unread error
	for i, p := range programs {
		if p.err != nil {
			unread = p.err
			continue
		}
		allowed, err := decide(p.slots, r)
		if err != nil {
			unread = fmt.Errorf("device program %d %q: %w", p.id, p.name, err)
			continue
		}
		if !allowed {
			return &programs[i], nil
		}
	}
	return nil, unread
}

// maxInstructions bounds a replacement: runc's programs have about a hundred, and one
// that grew far beyond has been put in front of again and again.
const maxInstructions = 4096

// replace puts a program in place of another of a control group in one step: there is
// no instant without a program (fail open) or with neither rule set. BPF_F_REPLACE
// exists since kernel 5.6. The program lives as long as the group, without trimtab.
func replace(dir string, old program, code asm.Instructions) error {
	if len(code) > maxInstructions {
		return fmt.Errorf("device program %d %q has grown to %d instructions: restart the container", old.id, old.name, len(code))
	}
	group, err := openGroup(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	replacement, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "trimtab_devices", Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, Instructions: code, License: "Apache"})
	if err != nil {
		return fmt.Errorf("device program for %s: %w", dir, err)
	}
	defer replacement.Close()
	handle, err := ebpf.NewProgramFromID(old.id)
	if err != nil {
		return fmt.Errorf("device program %d of %s: %w", old.id, dir, err)
	}
	defer handle.Close()
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: replacement, Attach: ebpf.AttachCGroupDevice,
		Flags: unix.BPF_F_ALLOW_MULTI, Anchor: link.ReplaceProgram(handle)})
	switch {
	case isGone(err) && !dirStands(dir):
		return fmt.Errorf("its control group is gone: %w", runtime.ErrGone)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("device program %d %q was replaced by somebody else in the meantime: %w", old.id, old.name, err)
	case err != nil:
		return fmt.Errorf("device program %d %q of %s cannot be replaced: %w", old.id, old.name, dir, err)
	}
	return nil
}

func dirStands(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}
