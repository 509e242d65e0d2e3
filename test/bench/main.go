// Command bench measures on real jobs what trimtab costs and what it gains, and
// prints one table: figure, spread, goal, and how it was measured. It needs root,
// Docker, the training image and bin/trimtab (`make bench` makes all of them).
//
// A missed goal is a result: exit status 1 means that a row could not be measured.
// Run it on a quiet machine; on a busy one the spread says so.
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

	"github.com/trimtab/trimtab/test/workload"
)

// group is a set of rows that one set-up measures.
type group struct {
	name    string
	measure func(context.Context, *bench) ([]Row, error)
}

func groups() []group {
	return []group{
		{"programs", measurePrograms},
		{"uprobes", measureUprobes},
		{"loss", measureLoss},
		{"launches", measureLaunches},
		{"steps", measureSteps},
		{"storm", measureStorm},
		{"idle", measureIdle},
		{"scale", measureScale},
		{"held", measureHeld},
		{"react", measureReact},
		{"reach", measureReach},
		{"fidelity", measureFidelity},
	}
}

func main() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], childPrefix) {
		if err := child(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var b bench
	flag.StringVar(&b.binary, "trimtab", "bin/trimtab", "the `FILE` to measure")
	flag.BoolVar(&b.quick, "quick", false, "fewer repetitions: half the time, wide intervals")
	only := flag.String("only", "", "comma-separated groups instead of all: "+strings.Join(groupNames(), ", "))
	file := flag.String("json", "", "also write the rows as JSON to `FILE`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	rows, err := b.run(ctx, *only)
	stop()
	printTable(os.Stdout, rows)
	if *file != "" {
		err = errors.Join(err, writeJSON(*file, rows))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nbench: %v\n", err)
		os.Exit(1)
	}
}

func groupNames() (names []string) {
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}

// bench is one run.
type bench struct {
	binary string
	quick  bool
	start  time.Time
	names  int
}

func (b *bench) run(ctx context.Context, only string) ([]Row, error) {
	b.start = time.Now()
	chosen, err := choose(only)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root: the daemon loads BPF programs")
	}
	if err := workload.Ready(ctx); err != nil {
		return nil, err
	}
	if _, err := os.Stat(b.binary); err != nil {
		return nil, fmt.Errorf("needs the binary: %w: run `make build`", err)
	}
	var rows []Row
	var errs []error
	for _, g := range chosen {
		b.say("%s", g.name)
		start := time.Now()
		measured, err := g.measure(ctx, b)
		b.say("%s took %.0f s", g.name, time.Since(start).Seconds())
		rows = append(rows, measured...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.say("done")
	return rows, errors.Join(errs...)
}

func choose(only string) ([]group, error) {
	if only == "" {
		return groups(), nil
	}
	var chosen []group
	for name := range strings.SplitSeq(only, ",") {
		found := false
		for _, g := range groups() {
			if g.name == name {
				chosen, found = append(chosen, g), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only %s: there is: %s", name, strings.Join(groupNames(), ", "))
		}
	}
	return chosen, nil
}

// say tells how far the run is, on standard error: the table alone is the output.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%5.1f s] %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// pick returns the full run's number, or the quick run's.
func pick[T any](b *bench, full, quick T) T {
	if b.quick {
		return quick
	}
	return full
}

// name returns an unused container name; config.go's rule knows the prefix.
func (b *bench) name(what string) string {
	b.names++
	return fmt.Sprintf("%s%d-%d-%s", namePrefix, os.Getpid(), b.names, what)
}
