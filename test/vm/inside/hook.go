package main

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// hook lets a control group open NVIDIA's devices behind systemd's back, as NVIDIA's
// hook does: each device program of the group, systemd's own included, is replaced by
// itself with a rule in front (libnvidia-container, nvcgo). systemd's next write drops it.
func hook(dir string) error {
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
		if err := inFront(group, p.ID); err != nil {
			return fmt.Errorf("device program %d: %w", p.ID, err)
		}
	}
	fmt.Println(len(attached.Programs), "programs")
	return nil
}

func inFront(group *os.File, id ebpf.ProgramID) error {
	old, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer old.Close()
	info, err := old.Info()
	if err != nil {
		return err
	}
	rest, err := info.Instructions()
	if err != nil {
		return err
	}
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
	with, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: info.Name, Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, Instructions: code, License: "Apache"})
	if err != nil {
		return err
	}
	defer with.Close()
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: with, Attach: ebpf.AttachCGroupDevice,
		Flags: unix.BPF_F_ALLOW_MULTI, Anchor: link.ReplaceProgram(old)})
}
