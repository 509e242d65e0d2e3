package vgpu

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A program keeps the address of a module's variable, or asks for it again: it is one
// variable, held once, until its module is unloaded.
func TestVariablesOfModules(t *testing.T) {
	r := newRig(t, Options{Devices: 1})
	r.program = filepath.Join(t.TempDir(), "modules")
	if out, err := exec.Command("gcc", "-std=gnu11", "-Wall", "-Werror", "-o", r.program, "testdata/modules.c", r.Dir.Lib("libcuda.so.1")).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	f := r.run(t)
	if f["apart"] != 1 || f["same"] != 1 || f["stays"] != 1 || f["held"] != 3*2<<20 || f["kept"] != 0 {
		t.Errorf("%v: want an address for each of three variables, 2 MiB each (what an allocation takes at least), and nothing kept", f)
	}
}
