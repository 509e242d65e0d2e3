// Package gpu builds the C++ trainer and the plain CUDA program beside the virtual GPU's
// libraries, so that a container that is given the one has the other. What each set of
// options makes true stands at the top of trainer.cpp, trainer.py, numpy_trainer.py and plain.c.
package gpu

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/trimtab/trimtab/test/vgpu"
)

// The programs' names in the folder that Build returns. TrainerStatic has CUDA's
// runtime and NCCL within the binary. Plain needs no library of the virtual GPU's but libcuda.
const (
	Trainer       = "trainer"
	TrainerStatic = "trainer-static"
	Plain         = "plain"
)

// Script starts a binary where a Python script is expected: its first argument is
// the binary's path, the others are the binary's.
const Script = "gpu/run.py"

// Build builds the virtual GPU and the trainers, as far as they are out of date.
// vgpu.ErrNoCompiler means that nothing can be built here.
func Build(ctx context.Context) (vgpu.Dir, error) {
	dir, err := vgpu.Build(ctx)
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath("g++"); err != nil {
		return "", vgpu.ErrNoCompiler
	}
	src := filepath.Join(string(dir), "..", "..", "workloads", "gpu")
	out, err := exec.CommandContext(ctx, "flock", dir.Lib(".lock"), "make", "-s", "-C", src, "VGPU="+string(dir)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("trainers: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return dir, nil
}
