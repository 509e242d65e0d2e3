package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workload"
)

// prefix begins the name of every container, so that a run can be told from
// whatever else the machine does.
const prefix = "acc-"

// runner runs jobs, one at a time, each under a daemon of its own.
type runner struct {
	binary string
	dir    string  // where recordings and facts go
	scale  float64 // of phases' lengths
	tune   bool    // label the jobs to be tuned, and keep no facts
}

// run is one job's run.
type run struct {
	runner
	job     Job
	parts   map[string]*workload.Job // by container name
	names   []string                 // in the order of job.Parts
	beside  *workload.Job
	node    *vgpu.Node // nil for a real job
	facts   Facts
	cleanup []func() error
}

func (j Job) container(p Part) string {
	if p.Name == "" {
		return prefix + j.Name
	}
	return prefix + j.Name + "-" + p.Name
}

// record runs one job and leaves NAME.trimtab and NAME.facts.json in the directory.
func (r runner) record(ctx context.Context, j Job) (err error) {
	u := &run{runner: r, job: j, parts: map[string]*workload.Job{}, facts: Facts{Job: j.Name, Steps: map[string][]Count{}}}
	defer func() {
		for i := len(u.cleanup) - 1; i >= 0; i-- {
			err = errors.Join(err, u.cleanup[i]())
		}
	}()
	if err := u.start(ctx); err != nil {
		return err
	}
	if err := u.enter(ctx, j.Phases[0]); err != nil { // its resources stand before the daemon looks
		return err
	}
	d, err := daemontest.Start(ctx, daemontest.Options{Binary: r.binary, Env: u.env()})
	if d != nil {
		u.cleanup = append(u.cleanup, d.Close) // also one that runs and did not answer
	}
	if err != nil {
		return err
	}
	if err := u.pass(ctx); err != nil {
		return err
	}
	u.countSteps()
	if err := d.Stop(); err != nil {
		return err
	}
	if err := d.Record(ctx, filepath.Join(r.dir, j.Name+".trimtab")); err != nil {
		return err
	}
	if r.tune {
		return nil // what is true of it changes as it is tuned
	}
	return u.facts.write(filepath.Join(r.dir, j.Name+".facts.json"))
}

// countSteps keeps each part's own steps, or else the leader's.
func (u *run) countSteps() {
	leader := thin(u.leader().Steps())
	for i, name := range u.names {
		counts := thin(u.parts[name].Steps())
		if len(counts) < 2 {
			counts = leader
		}
		if len(counts) > 1 && !u.job.Parts[i].Unwatched {
			u.facts.Steps[name] = counts
		}
	}
}

// start starts the job's containers and waits for their steps.
func (u *run) start(ctx context.Context) error {
	var network []string
	if u.job.Network {
		args, remove, err := makeNetwork(ctx, prefix+u.job.Name)
		if err != nil {
			return err
		}
		u.cleanup = append(u.cleanup, remove)
		network = args
	}
	if u.job.Virtual() {
		if err := u.makeNode(ctx); err != nil {
			return err
		}
	}
	for _, p := range u.job.Parts {
		name := u.job.container(p)
		args, err := u.dockerArgs(ctx, p, network)
		if err != nil {
			return err
		}
		w, err := u.container(ctx, workload.Options{Name: name, Script: p.Script, Args: p.Args, DockerArgs: args})
		if err != nil {
			return err
		}
		u.parts[name] = w
		u.names = append(u.names, name)
		if p.IngressMbit > 0 {
			if err := shape(ctx, w, p.IngressMbit); err != nil {
				return err
			}
		}
	}
	return u.waitSteps(ctx)
}

// container starts one container, which the run's end stops. One of the same name
// that a killed run left is removed first: the prefix makes it ours.
func (u *run) container(ctx context.Context, o workload.Options) (*workload.Job, error) {
	_ = exec.CommandContext(ctx, "docker", "rm", "--force", o.Name).Run() // mostly there is none
	w, err := workload.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	u.cleanup = append(u.cleanup, w.Stop)
	return w, nil
}

func (u *run) dockerArgs(ctx context.Context, p Part, network []string) ([]string, error) {
	args, err := diskArgs(ctx, p)
	if err != nil {
		return nil, err
	}
	args = append(args, p.Docker...)
	if u.node != nil {
		args = append(args, u.node.DockerArgs()...)
	}
	if len(network) > 0 {
		args = append(append(args, network...), "--network-alias", p.Name)
	}
	if p.Unwatched {
		return args, nil
	}
	mode := "observe"
	if u.tune {
		mode = "tune"
	}
	args = append(args, "--label", "trimtab.mode="+mode)
	if u.tune {
		args = append(args, "--label", "trimtab.knobs=cpu,memory")
	}
	if len(u.job.Parts) > 1 {
		args = append(args, "--label", "trimtab.job="+u.job.Name)
	}
	return args, nil
}

// importsTake is how long a job without steps may take to begin.
const importsTake = 8 * time.Second

func (u *run) waitSteps(ctx context.Context) error {
	if u.job.Steps < 0 {
		return workload.Sleep(ctx, importsTake)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	n := max(5, u.job.Steps)
	if u.job.Steps > 0 {
		n = u.job.Steps
	}
	return u.leader().WaitSteps(ctx, n)
}

// leader is the first part that is judged. Its steps are the job's: ranks step
// together, and not each of them prints.
func (u *run) leader() *workload.Job {
	for i, p := range u.job.Parts {
		if !p.Unwatched {
			return u.parts[u.names[i]]
		}
	}
	return nil
}

// pass goes through the phases and writes down when each stood.
func (u *run) pass(ctx context.Context) error {
	for i, p := range u.job.Phases {
		if i > 0 {
			if err := u.enter(ctx, p); err != nil {
				return err
			}
		}
		from := workload.Now()
		if p.AtS > 0 {
			if from = u.firstStep() + seconds(p.AtS); from > workload.Now() {
				if err := workload.Sleep(ctx, from-workload.Now()); err != nil {
					return err
				}
			}
		}
		length := seconds(p.Seconds * u.scale)
		if i+1 < len(u.job.Phases) && u.job.Phases[i+1].AtS > 0 {
			length = u.firstStep() + seconds(u.job.Phases[i+1].AtS) - workload.Now()
		}
		if err := workload.Sleep(ctx, length); err != nil {
			return err
		}
		u.note(p, from)
	}
	return nil
}

func (u *run) note(p Phase, from time.Duration) {
	f := FactPhase{Name: p.Name, FromNs: int64(from), ToNs: int64(workload.Now()), SettleNs: int64(settle), Truths: map[string]Truth{}}
	if p.SettleS > 0 {
		f.SettleNs = int64(seconds(p.SettleS))
	}
	for _, part := range u.job.Parts {
		if !part.Unwatched {
			f.Truths[u.job.container(part)] = p.truth(part.Name)
		}
	}
	u.facts.Phases = append(u.facts.Phases, f)
}

// enter brings about what a phase begins with.
func (u *run) enter(ctx context.Context, p Phase) error {
	for i, part := range u.job.Parts {
		w := u.parts[u.names[i]]
		if part.Unwatched {
			continue
		}
		if p.CPUs != 0 {
			if err := w.SetQuota(ctx, p.CPUs); err != nil {
				return err
			}
		}
		if p.MemoryMiB > 0 {
			limit := fmt.Sprintf("%dm", p.MemoryMiB)
			if err := w.Update(ctx, "--memory", limit, "--memory-swap", limit); err != nil {
				return err
			}
		}
	}
	for _, set := range p.Device {
		key, value, _ := strings.Cut(set, "=")
		if err := u.node.Set(ctx, -1, key, value); err != nil {
			return err
		}
	}
	return u.neighbour(ctx, p.Neighbour)
}

// neighbour starts or ends the second job.
func (u *run) neighbour(ctx context.Context, n Neighbour) error {
	if u.beside != nil {
		if err := u.beside.Stop(); err != nil {
			return err
		}
		u.beside = nil
	}
	if n == nobody {
		return nil
	}
	o := workload.Options{Name: prefix + "neighbour", Script: "neighbour.py", Args: []string{"--processes", "4"}}
	if n == quiet {
		o.Args[1] = "2"
		o.DockerArgs = []string{"--cpu-shares", "2"}
	}
	w, err := u.container(ctx, o)
	if err != nil {
		return err
	}
	u.beside = w
	return w.WaitSteps(ctx, 1)
}

// firstStep is the clock of what the job changes itself.
func (u *run) firstStep() time.Duration {
	if steps := u.leader().Steps(); len(steps) > 0 {
		return steps[0].At - steps[0].Mean
	}
	return workload.Now()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
