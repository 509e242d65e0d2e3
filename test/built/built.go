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
	"syscall"
)

// ErrNoCompiler: there is no C compiler, and so no trimtab-nvml.
var ErrNoCompiler = errors.New("needs gcc, for trimtab-nvml: apt-get install gcc libc6-dev")

// noCompiler is the exit status of scripts/build-nvml.sh where it finds none.
const noCompiler = 3

// shared is where what is built lies, below the module's folder, for those who come later: go links nothing
// anew that is up to date, and linking takes seconds.
const shared = ".cache/built"

// Trimtab builds the daemon into a folder, and beside it trimtab-nvml where there is a C compiler.
// It returns the daemon's path.
func Trimtab(ctx context.Context, dir string) (string, error) {
	err := into(ctx, dir, "trimtab", func(root, file string) error {
		return run(ctx, root, "go", "build", "-trimpath", "-o", file, "./cmd/trimtab")
	})
	if err != nil {
		return "", err
	}
	if err := NVMLChild(ctx, dir); err != nil && !errors.Is(err, ErrNoCompiler) {
		return "", err
	}
	return filepath.Join(dir, "trimtab"), nil
}

// NVMLChild builds trimtab-nvml into a folder. Its error is [ErrNoCompiler] where there is none.
func NVMLChild(ctx context.Context, dir string) error {
	err := into(ctx, dir, "trimtab-nvml", func(root, file string) error {
		return run(ctx, root, filepath.Join(root, "scripts/build-nvml.sh"), file)
	})
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == noCompiler {
		return ErrNoCompiler
	}
	return err
}

// into has a program built where all tests have it built, one at a time, and copies it into a folder.
func into(ctx context.Context, dir, name string, build func(root, file string) error) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	root := strings.TrimSpace(string(out))
	at := filepath.Join(root, shared)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(at, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	file := filepath.Join(at, name)
	if err := build(root, file); err != nil {
		return err
	}
	// By another process: a program that this one has open for writing could not be started.
	return run(ctx, root, "cp", file, filepath.Join(dir, name))
}

// run runs a command in the module's folder.
func run(ctx context.Context, root, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // the script sets its own
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
