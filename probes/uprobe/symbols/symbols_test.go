package symbols

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/test/uprobetest"
)

func probed() Want {
	return Want{Names: []string{"probed*"}, Marks: []string{"mark"}}
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func symbolNames(t *testing.T, path string) ([]string, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found, err := Find(f, probed(), soon())
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
		{"full", shared, []string{"mark", "probed_a", "probed_alias", "probed_b", "probed_local"}, nil},
		{"stripped", append(shared, "-s"), []string{"mark", "probed_a", "probed_alias", "probed_b"}, nil},
		{"hidden", append(shared, "-fvisibility=hidden"), []string{"mark", "probed_a", "probed_alias", "probed_b", "probed_local"}, nil},
		{"hidden and stripped", append(shared, "-fvisibility=hidden", "-s"), nil, ErrNone},
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
	found, err := Find(bytes.NewReader(file), probed(), soon())
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
	if b, err := os.ReadFile("/proc/self/exe"); err == nil {
		f.Add(b[:4096])
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add(sectioned(3, elf.Section64{Off: headerBytes, Size: 64}))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := Find(bytes.NewReader(b), probed(), soon())
		for _, s := range found {
			if err != nil || s.Offset > 0 && s.Offset >= uint64(len(b)) {
				t.Errorf("%+v in %d bytes, %v", s, len(b), err)
			}
		}
	})
}

// A name that is the end of another is kept as that: NCCL's weak names and the runtime's.
func TestNameWithinANamesEnd(t *testing.T) {
	code := `int pncclSend(void) { return 1; }
		__attribute__((weak, alias("pncclSend"))) int ncclSend(void);`
	path := uprobetest.BuildCode(t, t.TempDir(), "lib.so", code, "-shared", "-fPIC", "-s")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(file, []byte("\x00ncclSend\x00")) {
		t.Skip("needs a linker that merges names")
	}
	found, err := Find(bytes.NewReader(file), Want{Names: []string{"ncclSend", "ncclRecv"}}, soon())
	if err != nil || len(found) != 1 || found[0].Name != "ncclSend" {
		t.Errorf("%+v, %v", found, err)
	}
}

// A table that is all names of interest is read no further than a few of them, and for no longer
// than its time.
func TestNamesAreBounded(t *testing.T) {
	table := bytes.Repeat([]byte("\x00pp"), 1<<20)
	for _, name := range []string{"pp", "p*"} {
		names, err := newSearch(Want{Names: []string{name}}, soon()).namesIn(bytes.NewReader(table), uint64(len(table)))
		if err != nil || len(names) != maxSymbols {
			t.Errorf("%s: %d names, %v", name, len(names), err)
		}
	}
	late := newSearch(Want{Names: []string{"pp"}}, time.Now().Add(-time.Second))
	if _, err := late.namesIn(bytes.NewReader(table), uint64(len(table))); !errors.Is(err, ErrOutOfTime) {
		t.Errorf("after its time: %v", err)
	}
}

func TestWant(t *testing.T) {
	want := Want{Names: []string{"cuA", "torch*"}, Marks: []string{"mark"}}
	for name, wanted := range map[string]bool{"cuA": true, "xcuA": true, "cuAB": false, "torch": true, "torch1": true, "xtorch": false, "mark": true, "marks": false, "*": false, "": false} {
		table := []byte("\x00" + name + "\x00")
		got, err := newSearch(want, soon()).namesIn(bytes.NewReader(table), uint64(len(table)))
		if err != nil || (len(got) == 1) != wanted {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}

// Names across the edge of what is read at once are found, each at its place, however long.
func TestNamesAcrossChunks(t *testing.T) {
	long := "cuA" + strings.Repeat("b", maxNameBytes-10)
	for _, name := range []string{"cuAbcd", long} {
		for _, want := range []string{name, "cuA*"} {
			for at := chunkBytes - 2*maxNameBytes; at < chunkBytes+maxNameBytes; at += 7 {
				table := bytes.Repeat([]byte("x"), 2*chunkBytes)
				table[0] = 0
				copy(table[at-1:], "\x00"+name+"\x00")
				got, err := newSearch(Want{Names: []string{want}}, soon()).namesIn(bytes.NewReader(table), uint64(len(table)))
				if err != nil || got[uint32(at)] != name || len(got) != 1 {
					t.Fatalf("%s: one of %d bytes at %d: %d found, %v", want[:4], len(name), at, len(got), err)
				}
			}
		}
	}
}
