// Package userland finds NVIDIA's own libraries for tests: those that
// scripts/cuda-userland.sh unpacked (make test-cuda-userland), and the names that a driver
// exported which a device was seen with.
package userland

import (
	"debug/elf"
	"embed"
	"os"
	"os/exec"
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

// Command runs a program with the generation's own C library, where it brought one, and the
// libraries in folders before it.
func (g Generation) Command(program string, folders ...string) []string {
	loader := g.Library("ld-linux-x86-64.so")
	if loader == "" {
		return []string{program}
	}
	path := strings.Join(append(folders, filepath.Dir(g.Library("libc.so"))), ":")
	return []string{loader, "--library-path", path, program}
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

//go:embed testdata
var testdata embed.FS

// Compiled is a program of testdata's (train.cu) as an object file, made by NVIDIA's compiler for
// the oldest generation that has one. The others' runtimes take it too.
func Compiled(t testing.TB, source string) string {
	t.Helper()
	for _, g := range Generations(t) {
		nvcc := filepath.Join(g.dir, "usr/lib/nvidia-cuda-toolkit/bin/nvcc")
		if _, err := os.Stat(nvcc); err != nil {
			continue
		}
		from := Source(t, source)
		object := from + ".o"
		cmd := exec.Command(nvcc, "-ccbin", compiler(t), "-allow-unsupported-compiler", "-arch=sm_80",
			"-I"+filepath.Join(g.dir, "usr/include"), "-c", "-o", object, from)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(nvcc)+":"+filepath.Join(g.dir, "usr/bin")+":"+os.Getenv("PATH"))
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nvcc: %v: %s", err, said)
		}
		return object
	}
	t.Skip("needs NVIDIA's compiler: make test-cuda-userland fetches it")
	return ""
}

// NeedsProof skips where NVIDIA's runtime would not trust the virtual driver: it asks a driver to
// prove itself, and the answer is not in this tree (test/vgpu/README.md).
func NeedsProof(t testing.TB, libcuda string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(filepath.Dir(libcuda), "driver_valid.o")); err != nil {
		t.Skip("needs test/vgpu/driver_valid.c: the proof that NVIDIA's runtime asks of a driver is not in this tree")
	}
}

// Source is a source of testdata's (reduce.cc) as a file.
func Source(t testing.TB, name string) string {
	t.Helper()
	code, err := testdata.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, code, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Linked is a program of an object file and libraries, at a path of the test's own. What the
// libraries want of a newer C library is left to the loader.
func Linked(t testing.TB, object string, libraries ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-Wl,--allow-shlib-undefined", "-o", program, object}, libraries...)
	if said, err := exec.Command(compiler(t), append(args, "-ldl", "-lrt", "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("link: %v: %s", err, said)
	}
	return program
}

// Folder is a folder that holds these shared libraries alone, under the names that programs look
// for. Static ones are left out.
func Folder(t testing.TB, libraries ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range libraries {
		if filepath.Ext(path) == ".a" {
			continue
		}
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := f.DynString(elf.DT_SONAME)
		_ = f.Close() // it was only read
		if err != nil || len(name) != 1 {
			t.Fatalf("%s: its name: %v %v", path, name, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name[0])); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func compiler(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("needs g++: builds programs of NVIDIA's libraries")
	}
	return path
}

// Seen are names that a library exported which is not at hand: of the driver 580.159.04, of CUDA
// 13.0's runtime and of NCCL 2.28.3, as nm told them beside an H100 on 2026-11-26. library is
// "libcuda", "libcudart" or "libnccl".
func Seen(t testing.TB, library string) []string {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + library + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}
