// Command known starts real programs again and again under one daemon, and says how soon each start has
// the CPU that the first run of it settled to, whether that was right for this run too, and how
// soon it was put right where it was not. It needs root, Docker, the image of the zoo and bin/trimtab
// (`make bench-known`).
//
// A missed goal is a result, and exit status 2 says that there is one; 1 means that something could
// not be measured. Run it on a quiet machine: what is not idle is not lent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	image = "trimtab-zoo:1"
	own   = 0.4 // CPUs of each program's quota
	name  = "trimtab-known"
)

// Goals, and how near to each other two quotas are the same.
const (
	within    = 3 * time.Second
	reverted  = 20 * time.Second
	goalRight = 0.90
	goalWrong = 0.05
	near      = 1.35
)

// program is one of the zoo's, whose quota starves it.
type program struct {
	name    string
	command []string
}

func programs() (out []program) {
	for _, p := range []string{"xgb", "forest", "mlp", "grid", "pool", "words", "vision"} {
		out = append(out, program{p, []string{"python3", "-u", "/zoo/" + p + ".py"}})
	}
	for _, p := range []string{"liblinear", "libsvm", "fasttext", "weka", "rforest", "rboost", "lammps", "ffmpeg", "brain", "tfjs", "perlfann", "godeep", "torchrun"} {
		out = append(out, program{p, []string{"python3", "-u", "/zoo/others.py", p}})
	}
	return out
}

func main() { os.Exit(mainWithExitCode()) }

func mainWithExitCode() int {
	binary := flag.String("trimtab", "bin/trimtab", "the binary")
	only := flag.String("only", "", "programs, with commas; all if empty")
	starts := flag.Int("starts", 5, "starts of each program after the first")
	learn := flag.Duration("learn", 60*time.Second, "how long the first run of each lasts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, *binary, *only, *starts, *learn)
	fmt.Print(r.summary())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "known:", err)
		return 1
	case !r.met():
		return 2
	}
	return 0
}

// result is what became of all starts.
type result struct {
	starts, right, wrong, late, full int
	slowest                          time.Duration // of the right ones
	// Seconds of full speed that each first run lost before it was lent CPU, and each later start.
	unknown, known []float64
}

func (r result) met() bool {
	n := float64(r.starts)
	return n > 0 && float64(r.right) >= goalRight*n && float64(r.wrong) <= goalWrong*n && r.late == 0
}

func (r result) summary() string {
	return fmt.Sprintf("%d starts: right within %s %d (goal: %.0f %%), slowest %s; known and not lent, so no CPU was idle, %d; wrong %d (goal: at most %.0f %%), of them not put right within %s %d\n"+
		"lost of full speed: %.2f s by a start of a known job, %.2f s by the first of each (means; goal: half)\n",
		r.starts, within, r.right, 100*goalRight, r.slowest.Round(10*time.Millisecond), r.full, r.wrong, 100*goalWrong, reverted, r.late, mean(r.known), mean(r.unknown))
}

func mean(all []float64) (m float64) {
	for _, v := range all {
		m += v / float64(len(all))
	}
	return m
}

// lost is the seconds of full speed that a job lost that had its own quota until an instant, and
// then what it settles to. One that never had more lost it as long as it was watched.
func lost(s seen, watched time.Duration, settled float64) float64 {
	at := s.at
	if at == 0 {
		at = watched
	}
	return at.Seconds() * max(0, 1-own/settled)
}

func measure(ctx context.Context, binary, only string, starts int, learn time.Duration) (r result, err error) {
	d, err := daemontest.Start(ctx, daemontest.Options{Binary: binary})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, p := range programs() {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		if e := each(ctx, d, p, starts, learn, &r); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.name, e)) // the others are measured all the same
		}
		if ctx.Err() != nil {
			break
		}
	}
	return r, err
}

// each runs one program until it has settled, then starts it again.
func each(ctx context.Context, d *daemontest.Daemon, p program, starts int, learn time.Duration, r *result) (err error) {
	first, err := started(ctx, d, p, 0, func(r run) (seen, error) {
		return r.watch(ctx, learn, func(quota float64) bool { return quota > own*1.05 })
	})
	if err != nil {
		return err
	}
	fmt.Printf("%-10s the first run was lent CPU after %s, and settled to %.2f CPUs\n", p.name, first.at.Round(10*time.Millisecond), first.quota)
	if first.quota < own*1.05 {
		return fmt.Errorf("its first run was lent nothing (%s), so that a second one could get nothing: is a CPU idle?", first.c.WhyNot)
	}
	r.unknown = append(r.unknown, lost(first, learn, first.quota))
	for i := range starts {
		if err := workload.Sleep(ctx, 3*time.Second); err != nil { // the daemon has seen that it ended
			return err
		}
		var last seen
		s, err := started(ctx, d, p, i+1, func(of run) (seen, error) {
			s, err := of.watch(ctx, within+2*time.Second, func(quota float64) bool { return like(quota, first.quota) })
			if err == nil {
				last, err = of.watch(ctx, reverted+3*time.Second, func(float64) bool { return false })
			}
			return s, err
		})
		if err != nil {
			return err
		}
		r.known = append(r.known, lost(s, within+2*time.Second, first.quota))
		fmt.Printf("%-10s start %d: %s\n", p.name, i+1, r.take(s, last, first.quota))
	}
	return nil
}

// started starts a program, looks at it, and ends it.
func started(ctx context.Context, d *daemontest.Daemon, p program, number int, look func(run) (seen, error)) (seen, error) {
	r, err := start(ctx, d, p, number)
	if err != nil {
		return seen{}, err
	}
	s, err := look(r)
	return s, errors.Join(err, r.end(ctx))
}

func like(a, b float64) bool { return a > 0 && b > 0 && math.Abs(math.Log(a/b)) <= math.Log(near) }

// seen is what a container came to.
type seen struct {
	at    time.Duration // when it had what was asked for; 0: it had not
	quota float64       // at the end
	c     state.Container
}

// take counts one start. What it took over from earlier runs is wrong if it is not what the first settled to, or
// did not stand, and late if that was not put right in the end.
func (r *result) take(s, last seen, want float64) string {
	r.starts++
	took := s.c.LastRuns != nil && len(s.c.LastRuns.Took) > 0
	wrong := took && (!like(s.quota, last.quota) || !like(s.quota, want))
	if wrong {
		r.wrong++
	}
	if wrong && !like(last.quota, want) {
		r.late++
	}
	switch {
	case s.at > 0 && s.at <= within:
		r.right++
		r.slowest = max(r.slowest, s.at)
	case !took && (s.c.LastRuns == nil || s.c.LastRuns.Doubt == ""): // it was known, and asked for
		r.full++
	}
	why := s.c.WhyNot
	if s.c.LastRuns != nil && s.c.LastRuns.Doubt != "" {
		why = s.c.LastRuns.Doubt
	}
	return fmt.Sprintf("%.2f CPUs after %s, %.2f of %.2f after %s; wrong: %t; %s", s.quota, s.at.Round(10*time.Millisecond), last.quota, want, reverted, wrong, why)
}

// watch looks at the container until an instant after its begin. done is asked of the quota that stands in
// its control group: the API tells of it a reading later.
func (r run) watch(ctx context.Context, until time.Duration, done func(quota float64) bool) (s seen, err error) {
	for time.Since(r.began) < until {
		if err := workload.Sleep(ctx, 50*time.Millisecond); err != nil {
			return s, err
		}
		values, err := cgroup.ReadValues(r.cgroup)
		if err != nil {
			return s, fmt.Errorf("it ended: %w", err)
		}
		if s.quota, _ = values[runtime.KnobCPUQuota].CPUs(); s.at == 0 && done(s.quota) {
			s.at = time.Since(r.began)
		}
	}
	if s.c, err = r.daemon.Container(ctx, name); err != nil { // once: answers cost the daemon what it is to be quick with
		return s, fmt.Errorf("the daemon never told of the container: %w", err)
	}
	return s, nil
}

// run is one start of a program.
type run struct {
	daemon *daemontest.Daemon
	began  time.Time
	cgroup runtime.Cgroup
}

// start runs a program, with a number that differs from start to start.
func start(ctx context.Context, d *daemontest.Daemon, p program, number int) (r run, err error) {
	folder, err := filepath.Abs("test/zoo/programs")
	if err != nil {
		return r, err
	}
	npm, err := filepath.Abs(".cache/zoo-npm") // filled by make
	if err != nil {
		return r, err
	}
	args := append([]string{"run", "-d", "--name", name, "--network", "none", "--label", "trimtab.mode=tune", "--cpus", fmt.Sprint(own), "--env", fmt.Sprintf("RUN=%d", number),
		"-v", folder + ":/zoo:ro", "-v", npm + ":/npm:ro", image}, p.command...)
	if _, err := workload.Docker(ctx, args...); err != nil {
		return r, err
	}
	r = run{daemon: d, began: time.Now()}
	pid, err := workload.Docker(ctx, "inspect", "-f", "{{.State.Pid}}", name)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(pid); err == nil {
			r.cgroup, err = cgroup.Locate("/proc", cgroup.DefaultRoot, n)
		}
	}
	if err != nil {
		return r, errors.Join(err, r.end(ctx))
	}
	return r, nil
}

func (r run) end(ctx context.Context) error {
	_, err := workload.Docker(context.WithoutCancel(ctx), "rm", "-f", name)
	return err
}
