// Package workload starts the training jobs of test/workloads in Docker
// containers and follows what they print, so that a demo, a sweep or a test can
// say how fast a job ran by the job's own word. It uses the docker command and
// knows nothing of trimtab.
//
// The trap: importing PyTorch takes seconds of CPU. Start a job without a
// quota, wait for its first steps, then SetQuota; under a low quota from the
// start it would spend most of a minute before its first step.
package workload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Image is what test/image/build.sh builds.
const Image = "trimtab-train:1"

// stopTimeout bounds each docker command that ends something.
const stopTimeout = 30 * time.Second

// Options say what to start.
type Options struct {
	Name  string   // the container's; must be unused
	Image string   // Image if empty
	Args  []string // of the script
	// Script is a file of test/workloads, "dataloader.py".
	Script string
	// Command runs instead of a script, where there is one.
	Command []string
	// DockerArgs go to `docker run` before the image: labels, limits, mounts. Without
	// a --network among them the container has only loopback.
	DockerArgs []string
	// Dir holds the scripts; the checkout's test/workloads if empty.
	Dir string
}

// Job is a running workload. Its methods may be called concurrently.
type Job struct {
	Name string
	ID   string // Docker's full container ID

	logs *exec.Cmd
	done chan struct{} // closed when the job's output ended

	mu    sync.Mutex
	steps []Step
	tail  []string // the last other lines, for errors
	grown chan struct{}
}

// Now is CLOCK_MONOTONIC, the clock of the step lines.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("workload: clock_gettime(CLOCK_MONOTONIC): %v", err)) // every Linux has it
	}
	return time.Duration(ts.Nano())
}

// ProcessCPU is a process's user and system time so far, to the nanosecond: by its CPU clock,
// whose number clock_getcpuclockid(3) makes of its PID.
func ProcessCPU(pid int) (time.Duration, error) {
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Ready returns nil if jobs can be started here, else an error that begins with
// "needs ", fit for t.Skip.
func Ready(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("needs Docker: no docker command on PATH; run scripts/setup-host.sh")
	}
	if _, err := Docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		return fmt.Errorf("needs Docker: %w; run scripts/setup-host.sh", err)
	}
	if _, err := Docker(ctx, "image", "inspect", "--format", "{{.Id}}", Image); err != nil {
		return fmt.Errorf("needs the image %s: run test/image/build.sh", Image)
	}
	return nil
}

// Start runs the workload in a new container and follows its output. The caller
// must Stop it: a container that ended stays, so that its last lines can be read.
func Start(ctx context.Context, o Options) (*Job, error) {
	dir, err := scripts(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", o.Name, err)
	}
	image := o.Image
	if image == "" {
		image = Image
	}
	args := []string{"run", "--detach", "--name", o.Name, "--volume", dir + ":/workloads:ro", "--workdir", "/workloads"}
	if !slices.ContainsFunc(o.DockerArgs, isNetwork) {
		args = append(args, "--network", "none") // loopback is there; starts sooner, and needs no bridge
	}
	args = append(args, o.DockerArgs...)
	if args = append(args, image); o.Command != nil {
		args = append(args, o.Command...)
	} else {
		args = append(args, "python3", "-u", o.Script)
	}
	id, err := Docker(ctx, append(args, o.Args...)...)
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", o.Name, err)
	}
	j := &Job{Name: o.Name, ID: id, done: make(chan struct{}), grown: make(chan struct{})}
	if err := j.follow(); err != nil {
		return nil, errors.Join(fmt.Errorf("workload %s: %w", o.Name, err), j.Stop())
	}
	return j, nil
}

func isNetwork(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return name == "--network" || name == "--net"
}

// follow reads the container's output until it ends, or until Stop.
func (j *Job) follow() error {
	j.logs = exec.Command("docker", "logs", "--follow", j.ID)
	out, w := io.Pipe()
	j.logs.Stdout, j.logs.Stderr = w, w // one writer: os/exec then uses one goroutine for both
	if err := j.logs.Start(); err != nil {
		return fmt.Errorf("docker logs: %w", err)
	}
	go func() { w.CloseWithError(j.logs.Wait()) }()
	go func() {
		defer close(j.done)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			j.line(sc.Text())
		}
		// A line too long to scan would leave the writer blocked.
		_, _ = io.Copy(io.Discard, out)
	}()
	return nil
}

// keptLines bounds what an error shows of a job's other output.
const keptLines = 20

func (j *Job) line(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := ParseStep(text)
	if !ok {
		if j.tail = append(j.tail, text); len(j.tail) > keptLines {
			j.tail = j.tail[1:]
		}
		return
	}
	j.steps = append(j.steps, s)
	close(j.grown)
	j.grown = make(chan struct{})
}

// Steps returns the step lines so far.
func (j *Job) Steps() []Step {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Step(nil), j.steps...)
}

// Rate is Rate of this job's lines so far.
func (j *Job) Rate(from, to time.Duration) (perSecond float64, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Rate(j.steps, from, to)
}

// RateFor waits for d and returns the rate over it.
func (j *Job) RateFor(ctx context.Context, d time.Duration) (perSecond float64, n int, err error) {
	from := Now()
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-j.done:
		return 0, 0, j.ended("while its rate was measured")
	case <-time.After(d):
	}
	perSecond, n = j.Rate(from, Now())
	return perSecond, n, nil
}

// WaitSteps returns once the job has done n steps, or with an error that shows
// the job's last lines if it ended before.
func (j *Job) WaitSteps(ctx context.Context, n int64) error {
	for {
		j.mu.Lock()
		reached := len(j.steps) > 0 && j.steps[len(j.steps)-1].N >= n
		grown := j.grown
		j.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("workload %s: waiting for step %d: %w", j.Name, n, ctx.Err())
		case <-j.done:
			return j.ended(fmt.Sprintf("before step %d", n))
		}
	}
}

// Done is closed when the job's output has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

func (j *Job) ended(when string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Errorf("workload %s ended %s; its last lines: %s", j.Name, when, strings.Join(j.tail, " | "))
}

// SetQuota sets the container's CPU quota with `docker update`, as its owner
// would; cpus of 0 or less takes the quota away.
func (j *Job) SetQuota(ctx context.Context, cpus float64) error {
	quota := "-1"
	if cpus > 0 {
		quota = strconv.FormatInt(int64(cpus*100_000+0.5), 10)
	}
	return j.Update(ctx, "--cpu-period", "100000", "--cpu-quota", quota)
}

// Update runs `docker update` with the given flags on the container.
func (j *Job) Update(ctx context.Context, flags ...string) error {
	_, err := Docker(ctx, append(append([]string{"update"}, flags...), j.ID)...)
	return err
}

// Stop kills and removes the container and ends the following of its output. It
// is idempotent, and takes no context: it must also work when the caller's ended.
func (j *Job) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_, err := Docker(ctx, "rm", "--force", j.ID)
	if err != nil && (strings.Contains(err.Error(), "No such container") || strings.Contains(err.Error(), "already in progress")) {
		err = nil // stopped before, or by somebody else
	}
	if j.logs != nil && j.logs.Process != nil {
		select {
		case <-j.done:
		case <-ctx.Done():
			_ = j.logs.Process.Kill()
			<-j.done
		}
	}
	return err
}

// scripts finds the workloads beside this source file.
func scripts(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	_, file, _, ok := goruntime.Caller(0)
	if !ok {
		return "", errors.New("where the workloads lie is unknown: set Options.Dir")
	}
	return filepath.Join(filepath.Dir(file), "..", "workloads"), nil
}

// Docker runs one docker command and returns its output, trimmed.
func Docker(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// Sleep waits; it ends early with the context, whose error it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
