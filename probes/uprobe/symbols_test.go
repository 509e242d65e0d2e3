package uprobe

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes/uprobe/uprobetest"
)

func probed() interest {
	return interest{
		prefixes: []string{"probed", "mark"}, wanted: func(s string) bool { return strings.HasPrefix(s, "probed") || s == "mark" },
		marks: map[string]bool{"mark": true},
	}
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func symbolNames(t *testing.T, path string) ([]string, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found, err := findSymbols(f, probed(), soon())
	var names []string
	for _, s := range found {
		names = append(names, s.Name)
	}
	return names, err
}

func TestFindSymbols(t *testing.T) {
	dir := t.TempDir()
	code := `int probed_a(void) { return 1; }
		int probed_b(void) { return 2; }
		int probed_alias(void) __attribute__((alias("probed_b")));
		int probed_data = 3; int mark = 4;
		static __attribute__((used)) int probed_local(void) { return 5; }
		extern int probed_undefined(void);
		int other(void) { return probed_undefined(); }`
	shared := []string{"-shared", "-fPIC"}
	for _, tc := range []struct {
		name  string
		flags []string
		want  []string
		err   error
	}{
		{"full", shared, []string{"mark", "probed_a", "probed_alias", "probed_local"}, nil},
		{"stripped", append(shared, "-s"), []string{"mark", "probed_a", "probed_alias"}, nil},
		{"hidden", append(shared, "-fvisibility=hidden"), []string{"mark", "probed_a", "probed_alias", "probed_local"}, nil},
		{"hidden and stripped", append(shared, "-fvisibility=hidden", "-s"), nil, errNoSymbols},
	} {
		got, err := symbolNames(t, uprobetest.BuildCode(t, dir, "lib.so", code, tc.flags...))
		if diff := cmp.Diff(tc.want, got); diff != "" || !errors.Is(err, tc.err) {
			t.Errorf("%s: %v %s", tc.name, err, diff)
		}
	}
}

// A program too large for one chunk, whose names lie across the chunks' borders.
func TestFindSymbolsAcrossChunks(t *testing.T) {
	var code strings.Builder
	var want []string
	for i := range 400 {
		fmt.Fprintf(&code, "int probed_%s_%03d(void) { return %d; }\n", strings.Repeat("x", 200), i, i)
		want = append(want, fmt.Sprintf("probed_%s_%03d", strings.Repeat("x", 200), i))
		for k := range 5 {
			fmt.Fprintf(&code, "int other_%s_%d_%d(void) { return %d; }\n", strings.Repeat("y", 900), i, k, i)
		}
	}
	got, err := symbolNames(t, uprobetest.BuildCode(t, t.TempDir(), "lib.so", code.String(), "-shared", "-fPIC", "-s"))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

// The place is where the function's code is, past an ENDBR64, which costs a step.
func TestFindSymbolsPlace(t *testing.T) {
	code := `__asm__(".globl probed_endbr\n.type probed_endbr,@function\nprobed_endbr: endbr64\n push %rbp\n pop %rbp\n ret\n"
		".globl probed_push\n.type probed_push,@function\nprobed_push: push %r12\n pop %r12\n ret\n"
		".globl probed_sub\n.type probed_sub,@function\nprobed_sub: sub $8,%rsp\n add $8,%rsp\n ret\n");`
	if !amd64() {
		t.Skip("needs amd64: instructions are its")
	}
	path := uprobetest.BuildCode(t, t.TempDir(), "lib.so", code, "-shared", "-fPIC")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found, err := findSymbols(bytes.NewReader(file), probed(), soon())
	if err != nil || len(found) != 3 {
		t.Fatalf("%+v, %v", found, err)
	}
	for i, want := range []struct {
		code    byte
		stepped bool
	}{{0x55, false}, {0x41, false}, {0x48, true}} {
		if s := found[i]; file[s.Offset] != want.code || s.Stepped != want.stepped {
			t.Errorf("%+v: code %#x, want %+v", s, file[s.Offset], want)
		}
	}
}

func amd64() bool {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Machine == elf.EM_X86_64
}

// Whatever a container maps must be an error at worst.
func FuzzFindSymbols(f *testing.F) {
	if b, err := readCapped("/proc/self/exe", 4096); err == nil {
		f.Add(b)
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	program, _ := priceProgram(1, false)
	f.Add(program)
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := findSymbols(bytes.NewReader(b), probed(), soon())
		for _, s := range found {
			if err != nil || s.Offset > uint64(len(b)) {
				t.Errorf("%+v in %d bytes, %v", s, len(b), err)
			}
		}
	})
}

func TestExecutableMaps(t *testing.T) {
	maps := "55e0-55e1 r--p 00000000 fe:00 11 /usr/bin/python3\n" +
		"55e1-55e2 r-xp 00001000 fe:00 11 /usr/bin/python3\n" +
		"7f00-7f01 r-xp 00000000 fe:00 12    /usr/lib/lib other.so (deleted)\n" +
		"7f02-7f03 r-xp 00000000 fe:00 13 /opt/libtorch_cpu.so\n" +
		"7f04-7f05 r-xp 00000000 00:00 0 [vdso]\n7f06-7f07 rwxp 00000000 00:00 0 \n\nnonsense\n"
	want := []mapping{
		{"55e1-55e2", "fe:00", 11, "/usr/bin/python3"}, {"7f02-7f03", "fe:00", 13, "/opt/libtorch_cpu.so"},
		{"7f00-7f01", "fe:00", 12, "/usr/lib/lib other.so (deleted)"},
	}
	if diff := cmp.Diff(want, executableMaps([]byte(maps), []string{"torch"}), cmp.AllowUnexported(mapping{})); diff != "" {
		t.Error(diff)
	}
}

func TestRemoteDevices(t *testing.T) {
	mounts := "22 1 0:50 / / rw shared:1 master:2 - overlay overlay rw\n" +
		"23 22 0:171 / /data rw,nosuid - fuse.sshfs host:/ rw\n24 22 254:1 /x /y rw - ext4 /dev/vda1 rw\nnonsense\n" +
		"25 22 0:16 / /home rw - nfs4 host:/ rw\n26 22 0:17 / /n rw - nfsd nfsd rw\n27 22 0:18 / /l rw - lustre x rw\n28 22 0:19 / /f rw - fuse f rw\n"
	want := map[string]string{"00:ab": "fuse", "00:10": "nfs4", "00:12": "lustre", "00:13": "fuse"}
	if diff := cmp.Diff(want, remoteDevices([]byte(mounts))); diff != "" {
		t.Error(diff)
	}
}

func TestReadStat(t *testing.T) {
	root := t.TempDir()
	for pid, tc := range map[int32]struct {
		text string
		want stat
	}{
		1: {"1 (sh) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99 1", stat{0, 4242, 99}},
		2: {"2 (a) b) (c) R 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 77 98 1", stat{0, 77, 98}},
		3: {"3 (sh) S 0 1", stat{}},
		4: {"", stat{}},
	} {
		dir := filepath.Join(root, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := readStat(root, pid); got != tc.want || (err == nil) != (tc.want.startTick > 0) {
			t.Errorf("%q: %+v, %v", tc.text, got, err)
		}
	}
}

// Names that begin as those of interest do are free to make, and dear to compare.
func TestNamesAreBounded(t *testing.T) {
	compared := 0
	in := interest{prefixes: []string{"p"}, wanted: func(string) bool { compared++; return false }}
	s := &search{interest: in, until: soon(), hits: maxNameHits}
	table := bytes.Repeat([]byte("\x00p"), 1<<20)
	if _, err := s.namesIn(bytes.NewReader(table), uint64(len(table))); err != nil {
		t.Fatal(err)
	}
	if compared != maxNameHits {
		t.Errorf("%d names were compared, want %d", compared, maxNameHits)
	}
	s = &search{interest: in, until: time.Now().Add(-time.Second), hits: maxNameHits}
	if _, err := s.namesIn(bytes.NewReader(table), uint64(len(table))); !errors.Is(err, errOutOfTime) {
		t.Errorf("after its time: %v", err)
	}
}
