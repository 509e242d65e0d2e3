// Command optimality holds trimtab against the best static allocation that a
// search finds, and against rivals, on mixes of real containers: PyTorch DataLoader
// jobs and jobs on virtual GPUs that share this machine's CPUs. It needs root, Docker,
// the training image, a C++ compiler and bin/trimtab (`make bench-regret` makes them).
//
// A missed goal is a result: exit status 1 means that a mix could not be measured.
// Run it on a quiet machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/rivals"
	"github.com/trimtab/trimtab/test/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "regret: %v\n", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == rivalCommand {
		return runRival(ctx, args[1:])
	}
	o := options{began: time.Now()}
	flags := flag.NewFlagSet("regret", flag.ExitOnError)
	flags.StringVar(&o.binary, "trimtab", "bin/trimtab", "the `FILE` to measure")
	only := flags.String("only", "", "comma-separated mixes instead of all: "+strings.Join(mixNames(), ", "))
	names := flags.String("policies", "trimtab,free,proportional,percentile,burst,climb", "comma-separated trimtab and rivals: "+strings.Join(rivals.Names(), ", "))
	flags.IntVar(&o.repeats, "repeats", 3, "rounds: the default policy lives through each, the others through the first")
	flags.Float64Var(&o.seconds, "seconds", 24, "of one live run (of each phase)")
	flags.Float64Var(&o.slow, "slow", 28, "seconds of one live run of what moves step by step")
	flags.Float64Var(&o.measure, "measure", 8, "seconds at its end that count as steady state")
	flags.Float64Var(&o.still, "still", 5, "seconds of one measurement of limits that stand still")
	flags.Float64Var(&o.look, "look", 3, "seconds of one look at a static allocation, in the search")
	flags.IntVar(&o.looks, "looks", 5, "static allocations that the search looks at before its finals (half as many where jobs change)")
	flags.Float64Var(&o.minutes, "minutes", 0, "for all mixes: a mix whose part is over begins no further `ROUND`s (0: no bound)")
	flags.Float64Var(&o.speed, "speed", 120, "times as fast as published that the percentile recommender's clock runs")
	flags.BoolVar(&o.verbose, "v", false, "say what each policy changed, and when")
	flags.StringVar(&o.record, "record", "", "`FOLDER` for a recording of each live run of trimtab (trimtab replay)")
	dir := flags.String("out", ".cache/optimality-results", "`FOLDER` for each mix's figures as JSON and text, and a summary, written as each ends")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.policies = strings.Split(*names, ",")
	if o.repeats < 1 || o.seconds < o.measure+2 || o.slow < o.measure+2 || o.measure < 4 || o.still < 2 || o.look < 2 {
		return errors.New("-repeats from 1, -measure from 4, -look and -still from 2, -seconds and -slow at least two above -measure")
	}
	all, err := chosen(*only)
	if err != nil {
		return err
	}
	if err := ready(ctx, o); err != nil {
		return err
	}
	err = measureAll(ctx, o, all, *dir)
	fmt.Print(o.how())
	return err
}

func ready(ctx context.Context, o options) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: the daemon loads BPF programs")
	}
	if err := workload.Ready(ctx); err != nil {
		return err
	}
	if _, err := os.Stat(o.binary); err != nil {
		return fmt.Errorf("needs the binary: %w: run `make build`", err)
	}
	return nil
}

func measureAll(ctx context.Context, o options, all []mix, dir string) (err error) {
	var left time.Duration
	for _, m := range all {
		left += o.takes(m)
	}
	fmt.Fprintf(os.Stderr, "%d mixes, about %.0f minutes\n", len(all), left.Minutes())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var reports []report
	for _, m := range all {
		var deadline time.Time
		if o.minutes > 0 { // its part of what is left
			rest := time.Until(o.began.Add(seconds(60 * o.minutes)))
			deadline = time.Now().Add(time.Duration(float64(rest) * float64(o.takes(m)) / float64(left)))
			left -= o.takes(m)
		}
		s, errMix := measureMix(ctx, o, m, deadline)
		if len(s.runs) > 0 {
			rep := s.judge()
			rep.print(os.Stdout)
			reports = append(reports, rep)
			err = errors.Join(err, write(dir, o, reports))
		}
		if errMix != nil {
			err = errors.Join(err, fmt.Errorf("mix %s: %w", m.name, errMix))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}
