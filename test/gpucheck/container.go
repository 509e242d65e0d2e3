package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/workload"
)

// runcTool runs runc with a state directory of the check's own.
type runcTool struct {
	path, state string
}

func (r runcTool) do(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.path, append([]string{"--root", r.state}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("runc %s: %w", args[0], err)
	}
	return out, nil
}

// job is a training process in its container.
type job struct {
	c    runtime.Container
	runc runcTool
	dir  string // the OCI bundle
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	steps []workload.Step
	notes []string
	tail  []string // its last words
}

// start makes the container and waits until its init process runs.
func (c *check) start(ctx context.Context, name string, work work) (*job, error) {
	c.started++
	id := fmt.Sprintf("trimtab-gpucheck-%d-%d", os.Getpid(), c.started)
	j := &job{runc: c.runc, dir: filepath.Join(c.tmp, id), done: make(chan struct{})}
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return nil, err
	}
	spec, err := json.Marshal(c.spec(id, work))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(j.dir, "config.json"), spec, 0o600); err != nil {
		return nil, err
	}
	j.cmd = exec.Command(c.runc.path, "--root", c.runc.state, "run", "--bundle", j.dir, id)
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.cmd.Stderr = j.cmd.Stdout
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go j.follow(out)
	j.c = runtime.Container{ID: runtime.ID{Engine: engineName, Container: id}, Name: name, State: runtime.StateRunning,
		Labels: map[string]string{"trimtab.mode": "tune"}, GPUs: []string{"all"}, GPUVia: "devices"}
	if err := j.identify(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("container %s: %w: %s", name, err, j.said()), j.stop())
	}
	return j, nil
}

// identify waits for the container and reads what names it.
func (j *job) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		var state struct {
			PID    int    `json:"pid"`
			Status string `json:"status"`
		}
		if out, err := j.runc.do(ctx, "", "state", j.c.ID.Container); err == nil && json.Unmarshal(out, &state) == nil && state.Status == "running" {
			return j.place(state.PID)
		}
		select {
		case <-j.done:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return errors.New("it did not start within 20 s")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (j *job) place(pid int) (err error) {
	j.c.InitPID = pid
	if j.c.Cgroup, err = cgroup.Locate("/proc", cgroup.DefaultRoot, pid); err != nil {
		return err
	}
	if j.c.ID.Boot, err = cgroup.BootID("/proc"); err != nil {
		return err
	}
	j.c.ID.StartTick, err = cgroup.StartTick("/proc", pid)
	return err
}

// Bounds of what a job may make the check keep.
const (
	maxTail  = 20
	maxSteps = 1 << 20
)

func (j *job) follow(out io.Reader) {
	defer close(j.done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20) // a warning of PyTorch's may be long
	for lines.Scan() {
		j.line(lines.Text())
	}
	_ = j.cmd.Wait() // how it ended shows in what it said
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

// rateFor is the job's own rate over the coming d, steps/s.
func (j *job) rateFor(ctx context.Context, d time.Duration) (float64, error) {
	from := workload.Now()
	if err := sleep(ctx, d); err != nil {
		return 0, err
	}
	to := workload.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	rate, n := workload.Rate(j.steps, from, to)
	if n < 2 {
		return 0, fmt.Errorf("the job made %d steps in %s", n, d)
	}
	return rate, nil
}

// all signals every process of the container.
func (j *job) all(ctx context.Context, sig unix.Signal) error {
	_, err := j.runc.do(ctx, "", "kill", j.c.ID.Container, strconv.Itoa(int(sig)))
	return err
}

// stop ends the container and waits.
func (j *job) stop() error {
	_, err := j.runc.do(context.Background(), "", "delete", "--force", j.c.ID.Container)
	select {
	case <-j.done:
	case <-time.After(20 * time.Second):
		err = errors.Join(err, fmt.Errorf("container %s does not end", j.c.Name))
	}
	return errors.Join(err, os.RemoveAll(j.dir))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// capabilities that a training process has: few.
func capabilities() *specs.LinuxCapabilities {
	all := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"}
	return &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
}
