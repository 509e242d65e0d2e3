// Package userland finds NVIDIA's own libraries for tests: those that
// scripts/cuda-userland.sh unpacked (make test-cuda-userland), and the names that a driver
// exported which a device was seen with.
package userland

import (
	"debug/elf"
	"embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// folderEnv names the folder that scripts/cuda-userland.sh filled.
const folderEnv = "TRIMTAB_USERLAND"

// Generation is the libraries of one of Debian's suites.
type Generation struct {
	Name string // "bookworm"
	dir  string
}

// Generations are all that were unpacked. Without any the test is skipped, which says how to get them.
func Generations(t testing.TB) []Generation {
	t.Helper()
	folder := os.Getenv(folderEnv)
	marks, err := filepath.Glob(filepath.Join(folder, "*", ".complete"))
	if folder == "" || err != nil || len(marks) == 0 {
		t.Skip("needs NVIDIA's libraries: make test-cuda-userland fetches them from Debian's non-free part")
	}
	forgetNodes(t)
	out := make([]Generation, 0, len(marks))
	for _, m := range marks {
		dir := filepath.Dir(m)
		out = append(out, Generation{filepath.Base(dir), dir})
	}
	return out
}

// forgetNodes removes the device nodes that NVIDIA's libraries make on a machine without a
// driver, as root: others take them for a device.
func forgetNodes(t testing.TB) {
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		return // they are the driver's
	}
	before, _ := filepath.Glob("/dev/nvidia*") // the pattern is well-formed
	t.Cleanup(func() {
		after, _ := filepath.Glob("/dev/nvidia*")
		for _, node := range after {
			if !slices.Contains(before, node) {
				if err := os.Remove(node); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Library is the file of one, by its name without a version ("libcuda.so"); "" where the generation has none.
func (g Generation) Library(name string) string {
	found := ""
	_ = filepath.WalkDir(g.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasPrefix(e.Name(), name) {
			found = path
		}
		return nil
	})
	return found
}

// Command runs a program with the generation's own C library, where it brought one.
func (g Generation) Command(program string) []string {
	loader := g.Library("ld-linux-x86-64.so")
	if loader == "" {
		return []string{program}
	}
	return []string{loader, "--library-path", filepath.Dir(g.Library("libc.so")), program}
}

// Functions are the names of all functions that a library exports, sorted.
func Functions(t testing.TB, library string) []string {
	t.Helper()
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatalf("%s: %v", library, err)
	}
	var names []string
	for _, s := range all {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

//go:embed testdata/*.txt
var seen embed.FS

// Seen are names that a library exported which is not at hand: of the driver 580.159.04, of CUDA
// 13.0's runtime and of NCCL 2.28.3, as nm told them beside an H100 on 2026-11-26. library is
// "libcuda", "libcudart" or "libnccl".
func Seen(t testing.TB, library string) []string {
	t.Helper()
	text, err := seen.ReadFile("testdata/" + library + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}
