package cuda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// mapper maps each file as a loader maps a library's code, runs nothing of it, and stays.
const mapper = `
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct stat s;
		int fd = open(argv[i], O_RDONLY);
		if (fd < 0 || fstat(fd, &s) || mmap(NULL, s.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) {
			perror(argv[i]);
			return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	char c;
	return read(0, &c, 1) < 0; // until the test ends it
}
`

// stub has all that the driver exports that is known here, as the toolkit's stubs/libcuda.so does: each
// call says CUDA_ERROR_STUB_LIBRARY.
func stub() string {
	var code strings.Builder
	for _, f := range functions {
		if !strings.HasPrefix(f.name, "cu") || strings.HasPrefix(f.name, "cuda") {
			continue
		}
		fmt.Fprintf(&code, "int %s() { return 34; }\n", f.name)
		if f.suffix != "" {
			fmt.Fprintf(&code, "int %s%s() { return 34; }\n", f.name, f.suffix)
		}
	}
	return code.String()
}

// asItIs is the library itself: that it is found shows that what the program maps is looked at.
const asItIs = "as it is"

// malicious are files that somebody may name libcuda.so.1, made from a real library.
func malicious(t *testing.T, library string) map[string][]byte {
	t.Helper()
	whole, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols := f.SectionByType(elf.SHT_DYNSYM)
	if symbols == nil {
		t.Fatal("the library has no symbols")
	}
	changed := func(change func(b []byte)) []byte {
		b := bytes.Clone(whole)
		change(b)
		return b
	}
	random := make([]byte, 1<<20)
	source := rand.New(rand.NewPCG(21, 7))
	for i := range random {
		random[i] = byte(source.Uint32())
	}
	each := func(b []byte, put func(symbol []byte)) {
		for at := symbols.Offset + elf.Sym64Size; at < symbols.Offset+symbols.Size; at += elf.Sym64Size {
			put(b[at : at+elf.Sym64Size])
		}
	}
	le := binary.LittleEndian
	const shoff, shnum, value, size = 0x28, 0x3c, 8, 16 // of the header; of a symbol
	return map[string][]byte{
		asItIs:                        whole,
		"random":                      random,
		"random behind an ELF's mark": append([]byte("\x7fELF\x02\x01\x01"), random...),
		"names without ELF":           bytes.Repeat([]byte("cuLaunchKernel\x00cuMemcpyHtoDAsync_v2\x00"), 1<<15),
		"cut in the middle":           whole[:len(whole)/2],
		"a header alone":              whole[:64],
		"sections at the end of time": changed(func(b []byte) { le.PutUint64(b[shoff:], 1<<63-1) }),
		"65,535 sections":             changed(func(b []byte) { le.PutUint16(b[shnum:], 65535) }),
		"symbols beyond the file":     changed(func(b []byte) { each(b, func(s []byte) { le.PutUint64(s[value:], 1<<62) }) }),
		"symbols of endless size":     changed(func(b []byte) { each(b, func(s []byte) { le.PutUint64(s[size:], 1<<63) }) }),
		"symbols at the header":       changed(func(b []byte) { each(b, func(s []byte) { le.PutUint64(s[value:], 1) }) }),
		"names beyond the strings":    changed(func(b []byte) { each(b, func(s []byte) { le.PutUint32(s, 1<<31) }) }),
	}
}

// A container's libcuda is a stub, and another's is whatever somebody wrote: neither breaks the probe,
// and what the others' jobs do is counted to the call. Their own programs go on too.
func TestStubsAndMaliciousLibraries(t *testing.T) {
	r := newRig(t)
	good, stubs, hostile := uprobetest.Cgroup(t, "cuda-good"), uprobetest.Cgroup(t, "cuda-stub"), uprobetest.Cgroup(t, "cuda-hostile")
	for _, target := range []probes.Target{good, stubs, hostile} {
		r.watch(target)
	}
	job := r.cudaJob(good, false)
	before := r.process(good.Key, job.PID)

	dir := t.TempDir()
	stubbed := uprobetest.Start(t, stubs, uprobetest.Build(t, dir, "job", "job"))
	stubbed.Do("load %s", uprobetest.BuildCode(t, dir, "libcuda.so.1", stub(), "-shared", "-fPIC"))
	_, _, driver := libraries(t, false)
	program := uprobetest.BuildCode(t, t.TempDir(), "mapper", mapper)
	var whole *uprobetest.Job
	for name, data := range malicious(t, driver) {
		file := filepath.Join(t.TempDir(), "libcuda.so.1")
		if err := os.WriteFile(file, data, 0o755); err != nil {
			t.Fatal(err)
		}
		p := uprobetest.Start(t, hostile, program, file)
		if name == asItIs {
			whole = p
		}
	}
	r.found(stubs.Key, stubbed.PID, "cuLaunchKernel")
	r.found(hostile.Key, whole.PID, "cuLaunchKernel")
	stubbed.Do("call cuLaunchKernel 10 1")
	for range 30 { // looks at all of them end
		job.Do("call cudaLaunchKernel 10 1")
		r.read()
	}
	after := r.process(good.Key, job.PID)
	if got := after.Launches - before.Launches; got != 300 {
		t.Errorf("%d launches of the good job counted, want 300", got)
	}
	if p := r.process(stubs.Key, stubbed.PID); p == nil || p.Launches != 10 {
		t.Errorf("the stub's calls: %+v, want 10 launches that it was asked for", p)
	}
	stubbed.Do("call cuLaunchKernel 1 1") // and it lives
	if s := r.read()[hostile.Key]; s != nil && s.CUDA != nil {
		for _, p := range s.CUDA.Processes {
			if p.Launches > 0 || p.Copies != ([probes.NumDirections]uint64{}) {
				t.Errorf("calls are counted that nobody made: %+v", p)
			}
		}
	}
}
