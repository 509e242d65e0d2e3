package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// hook lets a control group open NVIDIA's devices behind systemd's back, as NVIDIA's
// hook does: v1's list gets a rule; on v2 each device program of the group, systemd's own
// included, is replaced by itself with a rule in front (libnvidia-container, nvcgo).
// systemd's next write drops it.
func hook(dir string) error {
	if list, err := os.OpenFile(filepath.Join(dir, "devices.allow"), os.O_WRONLY, 0); err == nil {
		defer list.Close()
		_, err = list.WriteString("c 195:* rw")
		return err
	}
	n := 0
	err := eachProgram(dir, func(group *os.File, old *ebpf.Program, name string, code asm.Instructions) error {
		n++
		return inFront(group, old, name, code)
	})
	fmt.Println(n, "programs")
	return err
}

// programsOf prints the code of each device program of a group but systemd's. A program
// that trimtab replaced keeps trimtab's name.
func programsOf(dir string) error {
	return eachProgram(dir, func(_ *os.File, _ *ebpf.Program, name string, code asm.Instructions) error {
		if name == "sd_devices" {
			return nil
		}
		fmt.Println("program")
		for _, in := range code {
			fmt.Println(in.OpCode, in.Dst, in.Src, in.Offset, in.Constant)
		}
		return nil
	})
}

// eachProgram visits the device programs of a group, of which there must be one.
func eachProgram(dir string, visit func(group *os.File, p *ebpf.Program, name string, code asm.Instructions) error) error {
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	attached, err := link.QueryPrograms(link.QueryOptions{Target: int(group.Fd()), Attach: ebpf.AttachCGroupDevice})
	if err != nil {
		return fmt.Errorf("device programs: %w", err)
	}
	if len(attached.Programs) == 0 {
		return fmt.Errorf("%s has no device program: nothing refuses a device", dir)
	}
	for _, p := range attached.Programs {
		if err := visitProgram(group, p.ID, visit); err != nil {
			return fmt.Errorf("device program %d: %w", p.ID, err)
		}
	}
	return nil
}

func visitProgram(group *os.File, id ebpf.ProgramID, visit func(*os.File, *ebpf.Program, string, asm.Instructions) error) error {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return err
	}
	code, err := info.Instructions()
	if err != nil {
		return err
	}
	return visit(group, p, info.Name, code)
}

func inFront(group *os.File, old *ebpf.Program, name string, rest asm.Instructions) error {
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 4, asm.Word), // the request's major number
		asm.JNE.Imm(asm.R2, 195, "rest"),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	}
	for i, in := range rest { // without names and debug information of the old program
		plain := asm.Instruction{OpCode: in.OpCode, Dst: in.Dst, Src: in.Src, Offset: in.Offset, Constant: in.Constant}
		if i == 0 {
			plain = plain.WithSymbol("rest")
		}
		code = append(code, plain)
	}
	with, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, Instructions: code, License: "Apache"})
	if err != nil {
		return err
	}
	defer with.Close()
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: with, Attach: ebpf.AttachCGroupDevice,
		Flags: unix.BPF_F_ALLOW_MULTI, Anchor: link.ReplaceProgram(old)})
}
