// Program chaos breaks what trimtab works with, and holds trimtab to its laws meanwhile: a
// real engine of its own, real containers, a real daemon, and a fault every few seconds.
//
// Each step draws a fault from its seed and number; both are printed, so that a step can be
// had again, though not the machine's timing. After each step, and within many, the laws of
// laws.go are held against what stands in the kernel and on disk. What is wrong is read
// again for more than a second before it is called a violation.
//
// The machine's own engine is never touched. Its clock is set only where -clock allows it, in a
// guest: a time namespace leaves CLOCK_REALTIME as it is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/workload"
)

// options are the command line's.
type options struct {
	length  time.Duration
	seed    uint64
	jobs    int
	only    string
	each    bool // each fault once, before they are drawn
	binary  string
	storage string
	train   string // a tar of the training image's root file system; "": no training job
	churn   int    // containers an hour, and no faults; 0: faults
	brk     string // break a law on purpose
	clock   bool   // the machine's clock may be set
	keep    string // where the daemon's log goes if a law was broken
}

// Exit codes.
const (
	exitViolation = 1
	exitTrouble   = 2 // the harness's own
)

func main() {
	fusetest.Main()
	asChild(os.Args)
	var o options
	flag.DurationVar(&o.length, "for", time.Hour, "how long")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "what faults are drawn from")
	flag.IntVar(&o.jobs, "jobs", 3, "how many jobs are tuned")
	flag.StringVar(&o.only, "only", "", "only faults whose names have this in them, or one of several with commas between")
	flag.BoolVar(&o.each, "each", false, "each fault once, in an order of the seed's, before they are drawn; it takes longer than -for where that needs it")
	flag.StringVar(&o.binary, "trimtab", "bin/trimtab", "the program")
	flag.StringVar(&o.storage, "storage", "overlay2", "the engine's storage driver")
	flag.StringVar(&o.train, "train", "", "the tar of the training image that test/image/build.sh keeps; without one no job trains")
	flag.IntVar(&o.churn, "churn", 0, "so many containers an hour come and go, nothing is broken, and a table of what the daemon holds is printed")
	flag.StringVar(&o.brk, "break", "", "break a law on purpose, to see it told: limit, original, process or tick")
	flag.BoolVar(&o.clock, "clock", false, "set the machine's clock by up to 40 days, and back: for a guest of its own")
	flag.StringVar(&o.keep, "log", ".cache/chaos/daemon.log", "where the daemon's log goes if a law was broken")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(chaos(ctx, o, os.Stdout))
}

// chaos runs all, and returns the exit code.
func chaos(ctx context.Context, o options, out io.Writer) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(out, "chaos: needs root: it runs an engine and a daemon of its own")
		return exitTrouble
	}
	w, err := newWorld(ctx, o, out)
	var steps int
	if err == nil {
		steps, err = w.live(ctx)
	}
	w.keepLog()
	err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
	fmt.Fprintf(out, "chaos: steps %d faults %d violations %d\n", steps, w.faults, len(w.violations))
	switch {
	case len(w.violations) > 0:
		return exitViolation
	case err != nil:
		fmt.Fprintln(out, "chaos:", err)
		return exitTrouble
	}
	return 0
}

// live makes jobs, breaks things until the time is up, and ends with all as its owner set it.
func (w *world) live(ctx context.Context) (steps int, err error) {
	w.say("seed %d, for %s; the clock is set: %v", w.o.seed, w.o.length, w.o.clock)
	if w.o.train == "" {
		w.say("no job trains: test/image/build.sh keeps the image's tar in .cache/image where it builds it (--force)")
	}
	if _, err := w.startJob(ctx, neighbour()); err != nil {
		return 0, err
	}
	watching, stop := context.WithCancel(ctx)
	x, ended := &watch{w: w}, make(chan struct{})
	go func() { defer close(ended); x.run(watching) }()
	if w.o.churn > 0 {
		steps, err = w.soak(ctx)
	} else {
		steps, err = w.steps(ctx)
	}
	stop()
	<-ended
	if err != nil && ctx.Err() == nil {
		return steps, fmt.Errorf("step %d of seed %d: %w", steps, w.o.seed, err)
	}
	w.say("ticks: %d looks at a daemon that was ready, the oldest %s; rights: judged for %s, not for %s",
		x.looks, x.age.Round(time.Millisecond), x.rights.judged.Round(time.Second), x.rights.unsure.Round(time.Second))
	if w.o.churn == 0 {
		w.say("%d knobs of trimtab's stood when faults came; %d owners' writes met one of trimtab's, and were made again", w.stood, w.lost)
	}
	return steps, w.end(context.WithoutCancel(ctx))
}

// steps breaks things until the time is up, and what is to come in any case has come.
func (w *world) steps(ctx context.Context) (steps int, err error) {
	all := w.chosen()
	first := w.first(all)
	for end := time.Now().Add(w.o.length); (time.Now().Before(end) || len(first) > 0) && ctx.Err() == nil && err == nil; steps++ {
		w.step.Store(int64(steps + 1))
		from := all
		if len(first) > 0 {
			from = first[:1]
		}
		err = w.one(ctx, from)
		if w.refused++; errors.Is(err, errEngine) && w.refused < maxRefused {
			w.say("step %d:   %v", steps+1, err)
			err = nil
			continue
		}
		w.refused, first = 0, first[min(1, len(first)):]
	}
	return steps, err
}

// chosen are the faults that the command line allows.
func (w *world) chosen() (out []fault) {
	for _, f := range faults() {
		wanted := slices.ContainsFunc(strings.Split(w.o.only, ","), func(part string) bool { return strings.Contains(f.name, part) })
		if wanted && (w.o.clock || f.name != clockName) {
			out = append(out, f)
		}
	}
	return out
}

// first are those that come once before any is drawn, in an order of the seed's.
func (w *world) first(all []fault) []fault {
	if !w.o.each {
		return nil
	}
	out := slices.Clone(all)
	w.random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Times of a step.
const (
	untilChanged = 12 * time.Second // trimtab is given to change something before a fault
	betweenSteps = 2 * time.Second
	maxRefused   = 10              // steps in a row, for which an engine may come back
	maxSoon      = 5               // jobs of a step that trimtab is quicker with than the harness
	jobLives     = 2 * time.Minute // less than the memory of what failed, so that trials come anew
)

// one is one step: jobs as they should be, something of trimtab's in force, a fault, a look.
func (w *world) one(ctx context.Context, all []fault) error {
	step := int(w.step.Load())
	r := rand.New(rand.NewPCG(w.o.seed, uint64(step)))
	w.random = r
	if err := w.lives(ctx); err != nil {
		return err
	}
	if w.upSince.Load() == 0 { // a disk that it refused is well again
		if err := w.start(ctx); err != nil {
			return err
		}
	}
	if err := w.staff(ctx); err != nil {
		return err
	}
	stand := w.look(step)
	for end := time.Now().Add(untilChanged); stand == 0 && r.IntN(8) > 0 && time.Now().Before(end) && ctx.Err() == nil; {
		_ = workload.Sleep(ctx, time.Second)
		stand = w.look(step)
	}
	w.stood += stand
	if ctx.Err() != nil {
		return nil
	}
	if w.o.brk != "" && step == 2 {
		if err := w.breakLaw(ctx); err != nil {
			return err
		}
	}
	f := draw(all, r)
	if f.name != calmName {
		w.faults++
	}
	w.say("step %d: %s (%d knobs of trimtab's stand)", step, f.name, stand)
	what, err := f.run(ctx, w, r)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if what != "" {
		w.say("step %d:   %s", step, what)
	}
	w.look(step)
	pause(ctx, r, betweenSteps)
	w.look(step)
	return nil
}

// staff replaces jobs whose time is over, and starts what is missing.
func (w *world) staff(ctx context.Context) error {
	for _, j := range w.tuned() {
		if !j.until.IsZero() && time.Now().After(j.until) {
			if err := w.removeJob(ctx, j); err != nil {
				return err
			}
		}
	}
	for soon := 0; len(w.tuned()) < w.o.jobs; {
		j, err := w.startJob(ctx, w.spec(w.tuned()))
		if errors.Is(err, errSoon) && soon < maxSoon {
			w.say("%v", err)
			soon++
			continue
		}
		if err != nil {
			return err
		}
		j.until = time.Now().Add(jobLives/2 + time.Duration(w.random.Int64N(int64(jobLives))))
	}
	return nil
}

// end stops the daemon and restores without it: all must be the owner's then, in the
// kernel, on disk, and in the engine's record.
func (w *world) end(ctx context.Context) error {
	if w.upSince.Load() == 0 {
		if err := w.start(ctx); err != nil {
			return err
		}
	}
	step := int(w.step.Load())
	w.look(step)
	w.down()
	if err := w.daemon.Stop(); err != nil {
		w.violate(step, []breach{{lawLives, "daemon", "its stop: " + tail(err.Error())}})
	}
	if _, err := w.offline(ctx); err != nil {
		w.violate(step, []breach{{lawRestored, "restore --offline", err.Error()}})
	}
	w.wantRestored(step, "the end")
	var found []breach
	for _, j := range w.all() {
		text, err := w.docker(ctx, "inspect", "--format", "{{.HostConfig.CpuQuota}} {{.HostConfig.CpuPeriod}} {{.HostConfig.CpuShares}} {{.HostConfig.Memory}}", j.id)
		if err != nil {
			return err
		}
		var got hostConfig
		if _, err := fmt.Sscan(text, &got.quota, &got.period, &got.shares, &got.memory); err != nil {
			return err
		}
		if got != j.record {
			found = append(found, breach{lawRestored, j.name, fmt.Sprintf("docker inspect says %+v, its owner said %+v", got, j.record)})
		}
	}
	w.violate(step, found)
	w.say("the end: %d jobs restored", len(w.all()))
	return nil
}
