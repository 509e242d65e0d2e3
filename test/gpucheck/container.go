package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
	"github.com/trimtab/trimtab/test/workload"
)

// job is a training process in its container.
type job struct {
	c    runtime.Container
	site *site
	dir  string
	done chan struct{} // closes once it ended and all its words were read

	mu    sync.Mutex
	steps []workload.Step
	notes []string
	tail  []string // its last words
}

// start makes the container and waits until trimtab's engine knows it.
func (c *check) start(ctx context.Context, name string, work work) (*job, error) {
	c.started++
	id := fmt.Sprintf("trimtab-gpucheck-%d-%d", os.Getpid(), c.started)
	j := &job{site: c.site, dir: filepath.Join(c.tmp, id), done: make(chan struct{})}
	j.c.Name, j.c.ID.Container = name, id
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return nil, err
	}
	pipe := filepath.Join(j.dir, "words")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", pipe, err)
	}
	out, err := os.OpenFile(pipe, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = c.site.run(ctx, ctrd.Container{ID: id, Labels: map[string]string{"nerdctl/name": name, "trimtab.mode": "tune"}, Spec: c.spec(id, work)}, pipe)
	if err != nil {
		return nil, errors.Join(err, out.Close(), c.site.remove(id), os.RemoveAll(j.dir))
	}
	go j.follow(out, id)
	known, err := c.site.await(ctx, id, j.done)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("container %s: %w: %s", name, err, j.said()), j.stop())
	}
	j.c = known
	return j, nil
}

// stepping starts a job, and waits until it has made so many steps.
func (c *check) stepping(ctx context.Context, name string, work work, steps int) (*job, error) {
	j, err := c.start(ctx, name, work)
	if err != nil {
		return nil, err
	}
	if err := j.waitSteps(ctx, steps, startPatience); err != nil {
		return nil, errors.Join(err, j.stop())
	}
	return j, nil
}

// Bounds of what a job may make the check keep.
const (
	maxTail  = 20
	maxSteps = 1 << 20
)

// spoken is what a job says, until it ended and nothing more has come for a while. Its
// pipe has no end by itself: it is open for writing here too.
type spoken struct {
	pipe  *os.File
	ended <-chan struct{}
}

const lull = 200 * time.Millisecond

// Read implements io.Reader.
func (w spoken) Read(into []byte) (int, error) {
	for {
		if err := w.pipe.SetReadDeadline(time.Now().Add(lull)); err != nil {
			return 0, err
		}
		last := false
		select {
		case <-w.ended:
			last = true
		default:
		}
		n, err := w.pipe.Read(into)
		switch {
		case n > 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case last:
			return 0, io.EOF
		}
	}
}

func (j *job) follow(pipe *os.File, id string) {
	defer close(j.done)
	defer pipe.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.site.wait(id)
	}()
	lines := bufio.NewScanner(spoken{pipe, ended})
	lines.Buffer(nil, 1<<20) // a warning of PyTorch's may be long
	for lines.Scan() {
		j.line(lines.Text())
	}
}

func (j *job) line(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if step, ok := workload.ParseStep(text); ok {
		if len(j.steps) < maxSteps {
			j.steps = append(j.steps, step)
		}
		return
	}
	if note, ok := strings.CutPrefix(text, "note "); ok && len(j.notes) < maxTail {
		j.notes = append(j.notes, note)
	}
	if j.tail = append(j.tail, text); len(j.tail) > maxTail {
		j.tail = j.tail[1:]
	}
}

// said is what a job that went wrong said last.
func (j *job) said() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.tail, "\n")
}

// note waits for a note that begins so, and returns the rest of it.
func (j *job) note(ctx context.Context, begins string, patience time.Duration) (string, error) {
	deadline := time.After(patience)
	for {
		j.mu.Lock()
		for _, n := range j.notes {
			if rest, ok := strings.CutPrefix(n, begins); ok {
				j.mu.Unlock()
				return strings.TrimSpace(rest), nil
			}
		}
		j.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-j.done:
			return "", fmt.Errorf("the job ended before it said %q: %s", begins, j.said())
		case <-deadline:
			return "", fmt.Errorf("the job did not say %q within %s: %s", begins, patience, j.said())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waitSteps waits until the job has printed so many step lines.
func (j *job) waitSteps(ctx context.Context, n int, patience time.Duration) error {
	deadline := time.After(patience)
	for {
		j.mu.Lock()
		have := len(j.steps)
		j.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-j.done:
			return fmt.Errorf("the job ended after %d steps: %s", have, j.said())
		case <-deadline:
			return fmt.Errorf("the job made %d steps within %s: %s", have, patience, j.said())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ratePatience is how long a job that a busy machine holds up may take to make the steps that tell its rate.
const ratePatience = time.Minute

// rateFor is the job's own rate over the coming d, steps/s; over longer, where it made less than two steps.
func (j *job) rateFor(ctx context.Context, d time.Duration) (float64, error) {
	from := workload.Now()
	for more := d; ; more = d / 2 {
		if err := workload.Sleep(ctx, more); err != nil {
			return 0, err
		}
		to := workload.Now()
		if rate := j.rateBetween(from, to); rate > 0 {
			return rate, nil
		}
		if to-from > d+ratePatience {
			return 0, fmt.Errorf("the job made less than two steps in %s: %s", to-from, j.said())
		}
	}
}

// rateLast is the job's own rate over the last d, steps/s.
func (j *job) rateLast(d time.Duration) (float64, error) {
	to := workload.Now()
	rate := j.rateBetween(to-d, to)
	if rate == 0 {
		return 0, fmt.Errorf("the job made less than two steps in %s: %s", d, j.said())
	}
	return rate, nil
}

// rateBetween is the job's own rate between two instants, steps/s; 0: less than two steps.
func (j *job) rateBetween(from, to time.Duration) float64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	rate, n := workload.Rate(j.steps, from, to)
	if n < 2 {
		return 0
	}
	return rate
}

// signal signals the container's first process.
func (j *job) signal(ctx context.Context, sig unix.Signal) error {
	return j.site.signal(ctx, j.c.ID.Container, sig)
}

// runs tries a command in the container.
func (j *job) runs(ctx context.Context, command ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	args := append([]string{"--root", filepath.Join(j.site.ctrd.RuncRoot(), namespace), "exec", j.c.ID.Container}, command...)
	return exec.CommandContext(ctx, j.site.runc, args...).Run()
}

// stop ends the container and waits.
func (j *job) stop() error {
	err := j.site.remove(j.c.ID.Container)
	select {
	case <-j.done:
	case <-time.After(20 * time.Second):
		err = errors.Join(err, fmt.Errorf("container %s does not end", j.c.Name))
	}
	return errors.Join(err, os.RemoveAll(j.dir))
}

// capabilities that a training process has: few.
func capabilities() *specs.LinuxCapabilities {
	all := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"}
	return &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
}
