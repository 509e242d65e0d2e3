// Command accuracy says how often trimtab's verdicts are right: it runs jobs
// whose bottleneck is known by construction under a real daemon, and compares
// each window's verdict with the truth, the rate with the job's own count of
// steps, and what the policy would have done with what would have helped. Run it
// as root from the checkout, on a quiet machine (`make accuracy` builds first):
//
//	go run ./test/accuracy [-only GLOB] [-family GLOB] [-neighbour=false] [-seconds SCALE] [-record DIR] [-json FILE]
//	go run ./test/accuracy -replay DIR    the same report from recordings, in seconds
//	go run ./test/accuracy -list          the catalogue
//
// It ends with one line; docs/accuracy.md says what its numbers mean. Exit status
// 1 means that a job could not be run: a wrong verdict is a result.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/workload"
)

type options struct {
	only, family string
	neighbour    bool
	seconds      float64
	record       string
	replay       string
	json         string
	// sensitivity is a file for what each constant does to the recordings, tuned a folder of more
	// of them, of containers that were tuned.
	sensitivity, tuned string
	binary             string
	tune, list         bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "*", "run jobs whose name matches `GLOB`")
	flag.StringVar(&o.family, "family", "*", "run families whose name matches `GLOB`")
	flag.BoolVar(&o.neighbour, "neighbour", true, "run phases beside a neighbour too")
	flag.Float64Var(&o.seconds, "seconds", 1, "multiply each phase's seconds by `SCALE`")
	flag.StringVar(&o.record, "record", "", "keep recordings and facts in `DIR`, for the replay tests")
	flag.StringVar(&o.replay, "replay", "", "run nothing: read recordings and facts from `DIR`")
	flag.StringVar(&o.sensitivity, "sensitivity", "", "with -replay: write what doubling and halving each constant does to `FILE` (make sensitivity)")
	flag.StringVar(&o.tuned, "tuned", "cmd/trimtab/testdata/recordings", "with -sensitivity: the `DIR` of recordings of tuned containers")
	flag.StringVar(&o.json, "json", "", "also write the cases as JSON to `FILE`")
	flag.StringVar(&o.binary, "trimtab", "bin/trimtab", "the `FILE` to judge")
	flag.BoolVar(&o.tune, "tune", false, "with -record: label the jobs to be tuned, and judge nothing: for the replay tests of cmd/trimtab")
	flag.BoolVar(&o.list, "list", false, "list the catalogue and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.main(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "accuracy: %v\n", err)
		os.Exit(1)
	}
}

func (o options) main(ctx context.Context, w io.Writer) error {
	var cases []Case
	var err error
	switch {
	case o.list:
		list(w)
		return nil
	case o.tune && o.record == "":
		return errors.New("-tune judges nothing: say with -record where the recordings go")
	case o.replay != "":
		if o.sensitivity != "" {
			return writeSensitivity(o.replay, o.tuned, o.sensitivity)
		}
		if cases, err = readCases(policies.DefaultConstants(), o.replay); err != nil {
			return err
		}
		for _, c := range cases {
			printCase(w, c)
		}
	default:
		cases, err = o.live(ctx, w)
	}
	if o.tune {
		return err
	}
	total := report(w, cases)
	if o.json != "" {
		err = errors.Join(err, writeJSON(o.json, total, cases))
	}
	return err
}

// live runs the jobs that were asked for, one after another. A job that cannot be
// run is an error in the end; the others are judged.
func (o options) live(ctx context.Context, w io.Writer) ([]Case, error) {
	if err := workload.Ready(ctx); err != nil {
		return nil, err
	}
	dir := o.record
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "trimtab-accuracy-*"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	r := runner{binary: o.binary, dir: dir, scale: o.seconds, tune: o.tune}
	var cases []Case
	var errs []error
	ran := 0
	for _, f := range families() {
		for _, j := range f.Jobs {
			if !matches(o.family, f.Name) || !matches(o.only, j.Name) {
				continue
			}
			ran++
			got, err := o.one(ctx, r, j, f)
			if ctx.Err() != nil {
				return cases, errors.Join(append(errs, ctx.Err())...)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", j.Name, err))
				fmt.Fprintf(w, "FAIL %s: %v\n", j.Name, err)
				continue
			}
			for _, c := range got {
				printCase(w, c)
			}
			cases = append(cases, got...)
		}
	}
	if ran == 0 {
		return nil, fmt.Errorf("no job matches -only %q -family %q: see -list", o.only, o.family)
	}
	return cases, errors.Join(errs...)
}

// jobTimeout bounds one job, whatever hangs.
const jobTimeout = 4 * time.Minute

func (o options) one(ctx context.Context, r runner, j Job, f Family) ([]Case, error) {
	if !o.neighbour {
		j.Phases = slices.DeleteFunc(slices.Clone(j.Phases), func(p Phase) bool { return p.Neighbour == quiet })
	}
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	if err := r.record(ctx, j); err != nil || o.tune {
		return nil, err
	}
	return readCase(policies.DefaultConstants(), filepath.Join(r.dir, j.Name+".trimtab"), f, j.Virtual())
}

func matches(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return ok && err == nil
}

// readCase judges one recording by the facts beside it.
func readCase(k *policies.Constants, file string, f Family, virtual bool) ([]Case, error) {
	facts, err := readFacts(file[:len(file)-len(".trimtab")] + ".facts.json")
	if err != nil {
		return nil, err
	}
	seen, err := replayFile(file, k)
	if err != nil {
		return nil, err
	}
	return score(facts, seen, f, virtual), nil
}

// readCases judges all recordings of a directory.
func readCases(k *policies.Constants, dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.trimtab"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no recordings: make some with -record", dir)
	}
	var out []Case
	for _, file := range files {
		name := filepath.Base(file[:len(file)-len(".trimtab")])
		j, f, ok := find(name)
		if !ok {
			return nil, fmt.Errorf("%s: no job of the catalogue has this name: remove the recording, or name it after its job", file)
		}
		cases, err := readCase(k, file, f, j.Virtual())
		if err != nil {
			return nil, err
		}
		out = append(out, cases...)
	}
	return out, nil
}

func list(w io.Writer) {
	for _, f := range families() {
		aside := ""
		if f.HeldOut {
			aside = " (set aside)"
		}
		fmt.Fprintf(w, "%s%s: %s\n", f.Name, aside, f.Why)
		for _, j := range f.Jobs {
			for _, p := range j.Phases {
				fmt.Fprintf(w, "  %-26s %-14s %-22s %s\n", j.Name, p.Name, p.Truth.Is, j.Why)
			}
		}
	}
}

func writeJSON(file string, total Sum, cases []Case) error {
	text, err := json.MarshalIndent(struct {
		Total Sum    `json:"total"`
		Cases []Case `json:"cases"`
	}{total, cases}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
