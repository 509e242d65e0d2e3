// Package built builds trimtab's programs for tests, as `make build` does.
package built

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoCompiler: there is no C compiler, and so no trimtab-nvml.
var ErrNoCompiler = errors.New("needs gcc, for trimtab-nvml: apt-get install gcc libc6-dev")

// noCompiler is the exit status of scripts/build-nvml.sh where it finds none.
const noCompiler = 3

// Trimtab builds the daemon into a folder, and beside it trimtab-nvml where there is a C compiler.
// It returns the daemon's path.
func Trimtab(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "trimtab")
	if err := run(ctx, "go", "build", "-trimpath", "-o", path, "./cmd/trimtab"); err != nil {
		return "", err
	}
	if err := NVMLChild(ctx, dir); err != nil && !errors.Is(err, ErrNoCompiler) {
		return "", err
	}
	return path, nil
}

// NVMLChild builds trimtab-nvml into a folder. Its error is [ErrNoCompiler] where there is none.
func NVMLChild(ctx context.Context, dir string) error {
	err := run(ctx, "scripts/build-nvml.sh", filepath.Join(dir, "trimtab-nvml"))
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == noCompiler {
		return ErrNoCompiler
	}
	return err
}

// run runs a command in the module's folder.
func run(ctx context.Context, name string, args ...string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	dir := strings.TrimSpace(string(root))
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // the script sets its own
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
