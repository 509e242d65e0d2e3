package main

import (
	"context"
	"os"

	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// makeNode makes the virtual GPUs of one job, in shared memory.
func (u *run) makeNode(ctx context.Context) error {
	dir, err := gpu.Build(ctx)
	if err != nil {
		return err
	}
	shm, err := os.MkdirTemp("/dev/shm", "trimtab-accuracy-*")
	if err != nil {
		return err
	}
	u.cleanup = append(u.cleanup, func() error { return os.RemoveAll(shm) })
	o := vgpu.Options{Devices: u.job.Devices}
	if u.job.Hopper {
		o.Spec = "hopper=1"
	}
	u.node, err = vgpu.NewNode(ctx, dir, shm, o)
	return err
}

// env gives the daemon the virtual GPUs that the job has.
func (u *run) env() []string {
	if u.node == nil {
		return nil
	}
	return u.node.Env()
}
