package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/runtime"
)

// rule reads a rule's text.
func rule(t interface{ Fatal(...any) }, text string) runtime.DeviceRule {
	r, err := runtime.ParseDeviceRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rulesFrom(t interface{ Fatal(...any) }, texts ...string) (out []runtime.DeviceRule) {
	for _, text := range texts {
		out = append(out, rule(t, text))
	}
	return out
}

// runcLike is a program as libcontainer/devicefilter makes it: half-word and shifted
// loads, one block for each rule, and no at the end.
func runcLike(rules ...runtime.DeviceRule) asm.Instructions {
	out := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Half),
		asm.LoadMem(asm.R3, asm.R1, 0, asm.Word),
		asm.RSh.Imm32(asm.R3, 16),
		asm.LoadMem(asm.R4, asm.R1, 4, asm.Word),
		asm.LoadMem(asm.R5, asm.R1, 8, asm.Word),
	}
	for i, r := range rules {
		next := fmt.Sprintf("block-%d", i+1)
		kind := int32(devChar)
		if r.Kind == "b" {
			kind = devBlock
		}
		block := asm.Instructions{
			asm.JNE.Imm(asm.R2, kind, next).WithSymbol(fmt.Sprintf("block-%d", i)),
			asm.Mov.Reg32(asm.R1, asm.R3),
			asm.And.Imm32(asm.R1, accessBits(r.Access)),
			asm.JNE.Reg(asm.R1, asm.R3, next),
		}
		if r.Major != runtime.AnyDevice {
			block = append(block, asm.JNE.Imm(asm.R4, int32(r.Major), next))
		}
		if r.Minor != runtime.AnyDevice {
			block = append(block, asm.JNE.Imm(asm.R5, int32(r.Minor), next))
		}
		out = append(out, append(block, asm.Mov.Imm32(asm.R0, 1), asm.Return())...)
	}
	return append(out, asm.Mov.Imm32(asm.R0, 0).WithSymbol(fmt.Sprintf("block-%d", len(rules))), asm.Return())
}

// resolved has jumps as the kernel takes them: by distance.
func resolved(t interface{ Fatal(...any) }, p asm.Instructions) []slot {
	at, distance := map[string]int{}, 0
	for _, in := range p {
		if s := in.Symbol(); s != "" {
			at[s] = distance
		}
		distance++
	}
	slots, err := slotsOf(p)
	if err != nil {
		t.Fatal(err)
	}
	for i, in := range p {
		if ref := in.Reference(); ref != "" {
			slots[i].offset = int16(at[ref] - i - 1)
		}
	}
	return slots
}

// allowedBy is what rules mean, in plain words: one of them fits.
func allowedBy(rules []runtime.DeviceRule, r request) bool {
	for _, rule := range rules {
		kind := map[string]uint32{"b": devBlock, "c": devChar, "a": r.kind}[rule.Kind]
		if kind == r.kind && r.access&^uint32(accessBits(rule.Access)) == 0 &&
			(rule.Major == runtime.AnyDevice || uint32(rule.Major) == r.major) && (rule.Minor == runtime.AnyDevice || uint32(rule.Minor) == r.minor) {
			return true
		}
	}
	return false
}

func drawRule(t *rapid.T) runtime.DeviceRule {
	return runtime.DeviceRule{Kind: rapid.SampledFrom([]string{"b", "c"}).Draw(t, "kind"), Major: rapid.SampledFrom([]int{runtime.AnyDevice, 1, 195, 511}).Draw(t, "major"),
		Minor: rapid.SampledFrom([]int{runtime.AnyDevice, 0, 1, 255}).Draw(t, "minor"), Access: rapid.SampledFrom([]string{"m", "r", "rw", "rwm"}).Draw(t, "access")}
}

// TestAllowing: the program with rules in front allows what the rules or the program
// allow, and nothing else.
func TestAllowing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOfN(rapid.Custom(drawRule), 0, 5).Draw(t, "before")
		added := rapid.SliceOfN(rapid.Custom(drawRule), 0, 4).Draw(t, "added")
		old := numbered(t, runcLike(before...))
		code, err := allowing(added, old)
		if err != nil {
			t.Fatal(err)
		}
		program := resolved(t, code)
		r := request{kind: rapid.SampledFrom([]uint32{devBlock, devChar}).Draw(t, "asked kind"), access: uint32(rapid.IntRange(1, 7).Draw(t, "asked access")),
			major: rapid.SampledFrom([]uint32{1, 2, 195, 511}).Draw(t, "asked major"), minor: rapid.SampledFrom([]uint32{0, 1, 2, 255}).Draw(t, "asked minor")}
		got, err := decide(program, r)
		if err != nil {
			t.Fatal(err)
		}
		if want := allowedBy(before, r) || allowedBy(added, r); got != want {
			t.Errorf("%+v: %v, want %v", r, got, want)
		}
	})
}

// numbered is a program as it is read back from a kernel: jumps by distance, no names.
func numbered(t interface{ Fatal(...any) }, p asm.Instructions) asm.Instructions {
	var out asm.Instructions
	for _, s := range resolved(t, p) {
		out = append(out, asm.Instruction{OpCode: s.op, Dst: s.dst, Src: s.src, Offset: s.offset, Constant: s.constant})
	}
	return out
}

func TestDecideRefusesToGuess(t *testing.T) {
	for name, p := range map[string]asm.Instructions{
		"helper":       {asm.FnGetCurrentUidGid.Call(), asm.Return()},
		"stack":        {asm.LoadMem(asm.R0, asm.R10, -8, asm.Word), asm.Return()},
		"beyond":       {asm.LoadMem(asm.R0, asm.R1, 12, asm.Word), asm.Return()},
		"no end":       {asm.Mov.Imm(asm.R0, 1)},
		"for ever":     {asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Offset: -1}},
		"division":     {asm.Mov.Imm(asm.R0, 1), asm.Div.Imm(asm.R0, 1), asm.Return()},
		"store":        {asm.StoreMem(asm.R1, 0, asm.R0, asm.Word), asm.Return()},
		"map":          {asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R0, Src: asm.PseudoMapFD, Constant: 3}, asm.Return()},
		"double words": {asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord), asm.Return()},
	} {
		slots, err := slotsOf(p)
		if err == nil {
			_, err = decide(slots, openRequest(195, 0))
		}
		if !errors.Is(err, errProgram) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wide := asm.Instructions{asm.LoadImm(asm.R0, 1<<33, asm.DWord), asm.Return()}
	slots, err := slotsOf(wide)
	if err != nil {
		t.Fatal(err)
	}
	if yes, err := decide(slots, openRequest(195, 0)); err != nil || !yes {
		t.Errorf("a wide constant: %v, %v", yes, err)
	}
}

// TestDecideNeverPanics: programs come from whoever may load them.
func TestDecideNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var program []slot
		for range rapid.IntRange(1, 12).Draw(t, "length") {
			program = append(program, slot{op: asm.OpCode(rapid.Uint8().Draw(t, "op")), dst: asm.Register(rapid.IntRange(0, 15).Draw(t, "dst")),
				src: asm.Register(rapid.IntRange(0, 15).Draw(t, "src")), offset: rapid.Int16Range(-4, 20).Draw(t, "offset"), constant: rapid.Int64().Draw(t, "constant")})
		}
		if _, err := decide(program, openRequest(195, 0)); err != nil && !errors.Is(err, errProgram) {
			t.Error(err)
		}
	})
}

// unifiedGroup makes a control group in the host's v2 tree.
func unifiedGroup(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "trimtab-test-")
		if err != nil {
			t.Skipf("needs root: and a control group of its own: %v", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	t.Skip("needs a cgroup2 file system")
	return ""
}

// attach puts a program on a group as runc does, and leaves it there.
func attach(t testing.TB, dir string, code asm.Instructions) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, Instructions: code, License: "Apache"})
	if err != nil {
		t.Skipf("needs root: and to load device programs: %v", err)
	}
	defer p.Close()
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: p, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI})
	if err != nil {
		t.Fatal(err)
	}
}

// openedIn is what the kernel itself says to a process that opens nodes in a group.
func openedIn(t *testing.T, dir string, numbers ...[2]int) []bool {
	t.Helper()
	nodes := t.TempDir()
	if dev, err := os.MkdirTemp("/dev", "trimtab-test-"); err == nil { // where nodev is not in force
		nodes = dev
		t.Cleanup(func() { os.RemoveAll(dev) })
	}
	var paths []string
	for i, n := range numbers {
		path := filepath.Join(nodes, fmt.Sprint(i))
		if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(uint32(n[0]), uint32(n[1])))); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOpenHelper$")
	cmd.Env = append(os.Environ(), "TRIMTAB_TEST_OPEN="+strings.Join(paths, ":"))
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helper: %v: %s", err, out)
	}
	var answer []bool
	line, _, _ := strings.Cut(string(out), "\n")
	if err := json.Unmarshal([]byte(line), &answer); err != nil {
		t.Fatalf("helper: %v: %s", err, out)
	}
	return answer
}

// TestOpenHelper is the process that openedIn starts.
func TestOpenHelper(t *testing.T) {
	paths := os.Getenv("TRIMTAB_TEST_OPEN")
	if paths == "" {
		return
	}
	var answer []bool
	for path := range strings.SplitSeq(paths, ":") {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK, 0)
		if err == nil {
			unix.Close(fd)
		}
		answer = append(answer, !errors.Is(err, unix.EPERM))
	}
	text, _ := json.Marshal(answer)
	fmt.Println(string(text))
}

// TestKernelAgrees: what is read back from the kernel and run here answers as the
// kernel does to a real open.
func TestKernelAgrees(t *testing.T) {
	dir := unifiedGroup(t)
	attach(t, dir, runcLike(rulesFrom(t, "c *:* m", "c 1:* rwm", "c 195:0 rw", "c 195:255 rw", "c 509:* rw", "c 195:2 r")...))
	numbers := [][2]int{{195, 0}, {195, 1}, {195, 2}, {195, 255}, {509, 0}, {509, 77}, {510, 0}, {1, 3}}
	programs, err := newProgramCache().of(dir)
	if err != nil || len(programs) == 0 {
		t.Fatal(programs, err)
	}
	for i, kernel := range openedIn(t, dir, numbers...) {
		n := numbers[i]
		who, err := refusing(programs, openRequest(n[0], n[1]))
		if err != nil || (who == nil) != kernel {
			t.Errorf("%v: here %v (%v), in the kernel %v", n, who == nil, err, kernel)
		}
	}
}

// TestReplace: rules come in front of a program in one step, and all that the program
// allowed is still allowed.
func TestReplace(t *testing.T) {
	dir := unifiedGroup(t)
	attach(t, dir, runcLike(rulesFrom(t, "c *:* m", "c 1:* rwm")...))
	cache := newProgramCache()
	before, err := cache.of(dir)
	if err != nil {
		t.Fatal(err)
	}
	own := before[len(before)-1]
	for _, p := range before {
		if p.here {
			own = p
		}
	}
	code, err := allowing(rulesFrom(t, "c 195:0 rwm", "c 195:255 rwm"), own.code)
	if err != nil {
		t.Fatal(err)
	}
	if err := replace(dir, own, code); err != nil {
		t.Fatal(err)
	}
	after, err := cache.of(dir)
	if err != nil || len(after) != len(before) {
		t.Fatalf("%d programs became %d, %v", len(before), len(after), err)
	}
	want := []bool{true, false, true, true}
	for i, got := range openedIn(t, dir, [2]int{195, 0}, [2]int{195, 1}, [2]int{195, 255}, [2]int{1, 3}) {
		if got != want[i] {
			t.Errorf("node %d: opened %v, want %v", i, got, want[i])
		}
	}
	if err := replace(dir, own, code); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a program that is no longer there was replaced: %v", err)
	}
}

type asmInstruction = asm.Instruction

// attachNamed is attach for a program that goes by a name, as systemd's.
func attachNamed(t *testing.T, dir, name string, code asm.Instructions) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.CGroupDevice, Instructions: code, License: "Apache"})
	if err != nil {
		t.Skipf("needs root: and to load device programs: %v", err)
	}
	defer p.Close()
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: p, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI}); err != nil {
		t.Fatal(err)
	}
}

// systemdReplaces attaches systemd's new program and detaches its old one.
func systemdReplaces(t *testing.T, dir string, code asm.Instructions) {
	t.Helper()
	replaceNamed(t, dir, systemdProgram, code)
}

// replaceNamed attaches a program and detaches the group's own one of that name; "":
// any that is not systemd's.
func replaceNamed(t *testing.T, dir, name string, code asm.Instructions) {
	t.Helper()
	before, err := newProgramCache().of(dir)
	if err != nil {
		t.Fatal(err)
	}
	attachNamed(t, dir, name, code)
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	for _, p := range before {
		if !p.here || (p.name == systemdProgram) != (name == systemdProgram) {
			continue
		}
		handle, err := ebpf.NewProgramFromID(p.id)
		if err != nil {
			t.Fatal(err)
		}
		if err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: int(group.Fd()), Program: handle, Attach: ebpf.AttachCGroupDevice}); err != nil {
			t.Fatal(err)
		}
		handle.Close()
	}
}
