package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
)

// namePrefix begins the names of all containers that the benchmark starts.
const namePrefix = "trimtab-bench-"

// hostConfig keeps the daemon's hands off every container but the benchmark's own.
const hostConfig = "match: [{name: '" + namePrefix + "*'}, {name: '*', mode: 'off'}]\n"

func (b *bench) daemon(ctx context.Context, more string, env ...string) (*daemontest.Daemon, error) {
	return daemontest.Start(ctx, daemontest.Options{Binary: b.binary, Config: hostConfig + more, Env: env})
}

// job starts the PyTorch job and waits for its first steps.
func (b *bench) job(ctx context.Context, what, mode string, args ...string) (*workload.Job, error) {
	return b.begin(ctx, workload.Options{Name: b.name(what), Script: "dataloader.py", Args: args}, mode)
}

// begin starts a training job and waits for its first steps.
func (b *bench) begin(ctx context.Context, o workload.Options, mode string) (*workload.Job, error) {
	o.DockerArgs = append(o.DockerArgs, "--label", "trimtab.mode="+mode)
	j, err := workload.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := j.WaitSteps(ctx, 10); err != nil {
		return nil, errors.Join(err, j.Stop())
	}
	return j, nil
}

// joinClose adds the error of an ending to that of the work.
func joinClose(err *error, end func() error) { *err = errors.Join(*err, end()) }

// childArgs are the arguments of docker run for a container that runs this
// program as a child.
func childArgs(name, mode string, run ...string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"--name", name, "--network", "none", "--label", "trimtab.mode=" + mode,
		"--volume", self + ":/bench:ro", "--entrypoint", "/bench", workload.Image}
	return append(args, run...), nil
}

// removeContainer works also when the run's context has ended.
func removeContainer(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := workload.Docker(ctx, "rm", "--force", name)
	if err != nil && strings.Contains(err.Error(), "No such container") {
		return nil
	}
	return err
}
