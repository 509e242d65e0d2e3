package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// utilisation is another witness of the device's activity, between now and the
// call of what it returns: nvidia-smi, polled, or what the virtual device itself
// counted. The share is of wall time, 0..1, of the busiest device.
func (c *check) utilisation(ctx context.Context) (end func() (share float64, who string, err error)) {
	if c.node != nil {
		before, at, err := c.busy(ctx)
		return func() (float64, string, error) {
			after, now, errNow := c.busy(ctx)
			if err != nil || errNow != nil {
				return 0, "", fmt.Errorf("vgpu-node show: %w", firstError(err, errNow))
			}
			return (after - before).Seconds() / (now - at).Seconds(), "the virtual device's own count", nil
		}
	}
	return c.poll(ctx)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// busy is how long the virtual device ran kernels so far.
func (c *check) busy(ctx context.Context) (time.Duration, time.Duration, error) {
	s, err := c.node.Show(ctx)
	if err != nil || len(s.Devices) == 0 {
		return 0, 0, firstError(err, fmt.Errorf("no device"))
	}
	return time.Duration(s.Devices[0].BusyNs), workload.Now(), nil
}

// poll asks nvidia-smi twice a second.
func (c *check) poll(ctx context.Context) func() (float64, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		sum []float64
		n   int
		err error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		for ctx.Err() == nil {
			all, err := smi(ctx)
			if err != nil {
				if ctx.Err() == nil {
					a.err = err
				}
				break
			}
			for len(a.sum) < len(all) {
				a.sum = append(a.sum, 0)
			}
			for i, v := range all {
				a.sum[i] += v
			}
			a.n++
			_ = workload.Sleep(ctx, 500*time.Millisecond)
		}
		done <- a
	}()
	return func() (best float64, who string, err error) {
		cancel()
		a := <-done
		if a.err != nil || a.n == 0 {
			return 0, "", firstError(a.err, fmt.Errorf("nvidia-smi gave nothing"))
		}
		for _, s := range a.sum {
			best = max(best, s/float64(a.n))
		}
		return best, fmt.Sprintf("nvidia-smi, %d times", a.n), nil
	}
}

// smi is the utilisation of each GPU, 0..1.
func smi(ctx context.Context) (all []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	for line := range strings.Lines(string(bytes.TrimSpace(out))) {
		v, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			return nil, fmt.Errorf("nvidia-smi said %q", strings.TrimSpace(line))
		}
		all = append(all, v/100)
	}
	return all, nil
}

// interval is the mean of ratios by their logarithms, with the bounds of its 95 % confidence interval.
func interval(ratios []float64) (mean, low, high float64) {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	low, high = stats.Interval95(logs)
	return math.Exp(stats.Mean(logs)), math.Exp(low), math.Exp(high)
}
