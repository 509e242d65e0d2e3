// Command fairness holds trimtab to the rights of a loan's neighbours: whoever they are, they
// get what the owners' values gave them within five seconds. Each run measures a neighbour
// first while nothing is lent, then while a loan stands, and compares the two. It needs root,
// Docker, the training image and bin/trimtab (`make bench-fairness` makes them).
//
// A missed goal is a result, and exit status 2 says that there is one; 1 means that something
// could not be measured. Run it on a quiet machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/trimtab/trimtab/test/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := command(ctx, os.Args[1:])
	stop()
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "fairness: %v\n", err)
		os.Exit(1)
	case missed > 0:
		os.Exit(2)
	}
}

type options struct {
	binary  string
	runs    int
	record  string // folder for recordings; "": none
	verbose bool
}

func command(ctx context.Context, args []string) (missed int, err error) {
	var o options
	flags := flag.NewFlagSet("fairness", flag.ExitOnError)
	flags.StringVar(&o.binary, "trimtab", "bin/trimtab", "the `FILE` to measure")
	flags.IntVar(&o.runs, "runs", 20, "of each case")
	only := flags.String("only", "", "cases instead of all, with semicolons between")
	flags.StringVar(&o.record, "record", "", "`FOLDER` for a recording of each case (trimtab replay)")
	flags.BoolVar(&o.verbose, "v", false, "tell each run")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	all, err := chosen(*only)
	if err != nil {
		return 0, err
	}
	if os.Geteuid() != 0 {
		return 0, errors.New("needs root: the daemon loads BPF programs")
	}
	if err := workload.Ready(ctx); err != nil {
		return 0, err
	}
	fmt.Printf("%-18s %-22s %9s %9s %9s %9s %9s  %s\n", "CASE", "WHAT IS COMPARED", "LEAST", "MEDIAN", "TOGETHER", "NOBODY", "LOAN BACK", "RUNS THAT HOLD")
	for _, c := range all {
		results, errCase := measure(ctx, o, c)
		if len(results) > 0 {
			missed += report(c, results)
		}
		if errCase != nil {
			err = errors.Join(err, fmt.Errorf("case %s: %w", c.name, errCase))
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Print(howText)
	return missed, err
}

const howText = `
How: a borrower with a quota of 0.4 CPUs wants two, and is lent what is idle. Least: the least that a neighbour had in any 5 s from the fifth second
after it woke (or after the loan came), over what it had while the borrower was not enrolled, in the same run, or over its share by weight, if that is less and
it has no quota; of several neighbours the worst. Together: the same of all their sum, in the worst run. Nobody: the least that a neighbour had in 5 s of any
run while nothing was lent: what this machine's noise makes of it. A run holds where both are 0.97, or what nobody's are where that is less.
Work per CPU second is moved by others on the same hardware from one minute to the next: there all runs hold where the interval of their means reaches 0.97.
A run in which others took 5 % of the host's CPU time more than in the quietest stretch of the case is made again, three times at most; "disturbed" counts those that stayed so.
Loan back: seconds until the borrower's quota was cut, or its limit since the host was short of memory, the longest.
`
