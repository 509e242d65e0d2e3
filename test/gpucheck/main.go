// Command gpucheck is `make gpu-check`: it runs training on a real NVIDIA device,
// in a container of a containerd of its own, and holds what trimtab says of it against other
// witnesses: PyTorch's profiler, nvidia-smi, the job's own step log. With -virtual
// the same road is taken on trimtab's virtual GPU, which shows that the check
// works and nothing about any device.
//
// Exit status: 0 all well, 1 problems, 2 misuse, 3 something that it needs is missing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// Exit statuses.
const (
	exitProblems = 1
	exitUsage    = 2
	exitMissing  = 3
)

// insideEnv marks the process that has mounts of its own.
const insideEnv = "TRIMTAB_GPUCHECK_INSIDE"

// options are the command line.
type options struct {
	virtual, short bool
	dir            string // containerd, its shim, runc, train.py, vgpu, trimtab
	report         string
	only           string
	job            string // names of jobs, by comma; "": all
	record         string // folder of recordings
}

func main() {
	symbols.ChildMain()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func parse(args []string) (options, error) {
	var o options
	here, err := os.Executable()
	if err != nil {
		return o, err
	}
	fs := flag.NewFlagSet("gpucheck", flag.ContinueOnError)
	fs.BoolVar(&o.virtual, "virtual", false, "use trimtab's virtual GPU: checks the check, says nothing about a device")
	fs.BoolVar(&o.short, "short", false, "less of everything: under a minute on the virtual GPU; figures of no worth")
	fs.StringVar(&o.dir, "dir", filepath.Dir(here), "`DIR` that holds containerd, its shim, runc, trimtab, train.py and vgpu, as make gpu-bundle packs them")
	fs.StringVar(&o.report, "report", "", "write one page to `FILE` too, for an issue or docs/gpu.md, and all that was printed beside it, to the file of that name that ends with .log")
	fs.StringVar(&o.only, "only", "", "only `PARTS`, by comma: "+partNames())
	fs.StringVar(&o.job, "job", "", "of the parts jobs, launches, rate and programs only `JOBS`, by comma")
	fs.StringVar(&o.record, "record", "", "keep a recording of each job in `DIR`, for trimtab replay")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("gpucheck takes no arguments, got %q", fs.Args())
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return o, err
	}
	return o, checkParts(o.only)
}

func run(ctx context.Context, args []string) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		return exitUsage
	}
	if os.Getenv(insideEnv) == "" {
		if lacks := missing(ctx, o); len(lacks) > 0 {
			sayMissing(o, lacks)
			return exitMissing
		}
		return enter(ctx, args)
	}
	if o.virtual {
		fmt.Println("gpu-check: VIRTUAL GPU: this shows that the check works. It says nothing about any real device.")
	}
	c, err := newCheck(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		return exitProblems
	}
	defer c.close()
	return c.all(ctx)
}

// sayMissing names all that is missing, with the fix, and where it is looked for.
func sayMissing(o options, lacks []string) {
	what := "a real device"
	if o.virtual {
		what = "the virtual GPU"
	}
	fmt.Printf("gpu-check: cannot run on %s: %d things are missing here\n", what, len(lacks))
	for _, l := range lacks {
		fmt.Println("  missing:", l)
	}
	if !o.virtual {
		fmt.Println("  (gpucheck -virtual takes the same road on trimtab's virtual GPU)")
	}
	fmt.Println("gpu-check: not run")
}

// enter starts the check anew with mounts of its own: what it mounts for containers
// goes with it, however it ends.
func enter(ctx context.Context, args []string) int {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check: a mount namespace of its own:", err)
		return exitMissing
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
		case <-ended:
		}
	}()
	err := cmd.Wait()
	close(ended)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "gpu-check:", err)
	return exitProblems
}
