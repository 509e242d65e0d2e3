package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// other is one neighbour.
type other struct {
	n      neighbour
	name   string
	job    *workload.Job
	read   func() (workload.CPUState, error)
	held   func() (int64, error)
	busy   bool
	sample []reading
}

// reading is one neighbour at one instant.
type reading struct {
	at, used time.Duration
	steps    int64
	held     int64 // bytes
}

func (x *other) start(ctx context.Context, busy bool) (err error) {
	o := workload.Options{Name: x.name, Script: "fair.py", Args: slices.Clone(x.n.args), DockerArgs: slices.Clone(x.n.docker)}
	if busy {
		o.Args, x.busy = append(o.Args, "--busy"), true
	}
	if x.n.enrolled {
		o.DockerArgs = append(o.DockerArgs, "--label", "trimtab.mode=tune")
	}
	if x.job, err = launch(ctx, o); err != nil {
		return err
	}
	if x.held, err = x.job.MemoryUse(ctx); err != nil {
		return err
	}
	x.read, err = x.job.CPUStates(ctx)
	return err
}

// tell has a neighbour begin its work, or end it, and tells it again until it does: one that
// has just started does not listen yet.
func (x *other) tell(ctx context.Context, busy bool) error {
	signal := "USR2"
	if busy {
		signal = "USR1"
	}
	for range 10 {
		if out, err := exec.CommandContext(ctx, "docker", "kill", "--signal", signal, x.name).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for range 10 {
			before := len(x.job.Steps())
			if err := workload.Sleep(ctx, 3*step); err != nil {
				return err
			}
			if works := len(x.job.Steps()) > before; works == busy {
				x.busy = busy
				return nil
			}
		}
	}
	return fmt.Errorf("%s does not hear signal %s", x.name, signal)
}
