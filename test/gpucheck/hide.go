package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// visibilityOf hides and shows as the daemon does, with its records on disk.
func visibilityOf(j *job) (*device.Visibility, error) {
	s, err := statefile.Open(filepath.Join(j.dir, "state"))
	if err != nil {
		return nil, err
	}
	return device.NewVisibility(device.Options{Records: statefile.OpenEach[device.Hidden](s, "gpu-hidden")}), nil
}

// idler is a container that is granted the devices and uses none.
func idler() work {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		sleep = "/bin/sleep" // the container's start says that there is none
	}
	return work{args: []string{sleep, "600"}}
}

// refused asks whether a device in use is left alone. The virtual libraries open none.
func (c *check) refused(ctx context.Context, j *job) {
	if c.node != nil {
		c.report.row(note, "access", "a device in use is not hidden", "", "not tried: the virtual GPU has no device nodes")
		return
	}
	v, err := visibilityOf(j)
	var minors []int
	if err == nil {
		minors, err = visible(ctx, v, j.c)
	}
	if err == nil {
		_, err = v.Hide(ctx, j.c, runtime.GPUView{Hidden: minors})
	}
	c.report.judge(errors.Is(err, device.ErrInUse), "access", "a device in use is not hidden", "the job trains on it", fmt.Sprint(err))
}

// hideAndShow hides all GPUs from a container that does not use them, as `trimtab gpu
// hide` does, and shows them again. On a device an open from within is the witness;
// without one the container's rules alone tell.
func (c *check) hideAndShow(ctx context.Context) (err error) {
	j, err := c.start(ctx, "hide", idler())
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, j.stop()) }()
	v, err := visibilityOf(j)
	if err != nil {
		return err
	}
	minors, err := visible(ctx, v, j.c)
	if err != nil || len(minors) == 0 {
		return firstError(err, errors.New("the container sees no GPU to hide"))
	}
	turn := func(what string, hidden []int) {
		notes, err := v.Hide(ctx, j.c, runtime.GPUView{Hidden: hidden})
		left, errSee := visible(ctx, v, j.c)
		want := len(minors) - len(hidden)
		witness, opens := c.opens(ctx, j, minors)
		ok := err == nil && errSee == nil && len(left) == want && (c.node != nil || opens == want)
		text := fmt.Sprintf("%d of %d visible", len(left), len(minors))
		for _, n := range notes {
			text += "; " + n
		}
		if err := firstError(err, errSee); err != nil {
			text += "; " + err.Error()
		}
		c.report.judge(ok, "access", what, witness, text)
	}
	turn("hidden on purpose", minors)
	turn("shown again", nil)
	return nil
}

// visible are the GPUs that a container may open by its rules.
func visible(ctx context.Context, v *device.Visibility, c runtime.Container) (minors []int, err error) {
	visibilityOf, err := v.See(ctx, c, runtime.GPUView{})
	for _, s := range visibilityOf {
		if s.Visible {
			minors = append(minors, s.Minor)
		}
	}
	return minors, err
}

// opens tries to open each device from within the container.
func (c *check) opens(ctx context.Context, j *job, minors []int) (witness string, n int) {
	if c.node != nil {
		return "", 0
	}
	for _, minor := range minors {
		if j.runs(ctx, "sh", "-c", fmt.Sprintf(": < /dev/nvidia%d", minor)) == nil {
			n++
		}
	}
	return fmt.Sprintf("%d of %d open from within", n, len(minors)), n
}
