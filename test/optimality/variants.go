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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/rivals"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// Names of what is measured beside policies and rivals.
const (
	nameStatic = "equal" // the owner's equal shares, nobody tunes
	nameBest   = "best"  // the best static allocation that was found
)

// kind says how a variant is run.
type kind int

const (
	kindAlloc kind = iota // an allocation that stands from the beginning
	kindRival
	kindTrimtab
)

func kindOf(name string) kind {
	switch name {
	case nameStatic, nameBest:
		return kindAlloc
	}
	for _, r := range rivals.Names() {
		if r == name {
			return kindRival
		}
	}
	return kindTrimtab
}

// start sets a variant to work on a bed; stop ends it and says how many changes of
// knobs it made. All that it changed is still in place then.
func (s *session) start(ctx context.Context, name string, repeat int) (stop func() (changes int, told string, err error), err error) {
	switch kindOf(name) {
	case kindAlloc:
		return func() (int, string, error) { return 0, "", nil }, nil
	case kindRival:
		return startRival(ctx, name, s.o.speed, s.bed)
	}
	return s.startTrimtab(ctx, name, repeat)
}

// onlyOurs keeps the daemon's hands off everything but the mix.
const onlyOurs = "match: [{name: '" + prefix + "*'}, {name: '*', mode: 'off'}]\n"

func (s *session) startTrimtab(ctx context.Context, policy string, repeat int) (func() (int, string, error), error) {
	var env []string
	if s.bed.node != nil {
		env = s.bed.node.Env()
	}
	began := time.Now()
	d, err := daemontest.Start(ctx, daemontest.Options{Binary: s.o.binary, Config: onlyOurs, Env: env})
	if err != nil {
		return nil, err
	}
	return func() (int, string, error) {
		records, err := d.History(context.WithoutCancel(ctx))
		changes, told := 0, ""
		for _, r := range records {
			if r.UnixNs < began.UnixNano() {
				continue // an earlier run's, in the same store
			}
			after := time.Unix(0, r.UnixNs).Sub(began).Seconds()
			switch r.Kind {
			case state.RecordChange, state.RecordLoan, state.RecordRollback:
				changes++
				told += fmt.Sprintf("%6.1f s  %s %s\n", after, r.Name, r.Text)
			case state.RecordTrial, state.RecordRefused, state.RecordYield:
				told += fmt.Sprintf("%6.1f s  %s %s\n", after, r.Name, r.Text)
			}
		}
		if err == nil && changes == 0 {
			told += whyNot(ctx, d)
		}
		if s.o.record != "" {
			err = errors.Join(err, d.Record(context.WithoutCancel(ctx), filepath.Join(s.o.record, fmt.Sprintf("%s-%s-%d.trimtab", s.mix.name, policy, repeat))))
		}
		return changes, told, errors.Join(err, d.Close())
	}, nil
}

// whyNot is what the daemon says of containers that it did not change.
func whyNot(ctx context.Context, d *daemontest.Daemon) string {
	text, err := d.Run(ctx, "ps")
	if err != nil {
		return err.Error()
	}
	return text
}

// rivalCommand makes this program a rival; the rest are its name, the prefix, the speed.
const rivalCommand = "rival"

// runRival is the rival's process: rates come in, changes go out.
func runRival(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("rival NAME PREFIX SPEED")
	}
	speed, err := strconv.ParseFloat(args[2], 64)
	if err != nil {
		return err
	}
	r, err := rivals.New(args[0], speed)
	if err != nil {
		return err
	}
	o := rivals.Options{Prefix: args[1], Told: os.Stdout}
	if rivals.SeesRates(args[0]) {
		o.Rates = readRates(os.Stdin)
	}
	return rivals.Drive(ctx, r, o)
}

// readRates follows lines "NAME RATE".
func readRates(in io.Reader) func() map[string]float64 {
	var mu sync.Mutex
	rates := map[string]float64{}
	go func() {
		for sc := bufio.NewScanner(in); sc.Scan(); {
			name, text, _ := strings.Cut(sc.Text(), " ")
			if rate, err := strconv.ParseFloat(text, 64); err == nil {
				mu.Lock()
				rates[name] = rate
				mu.Unlock()
			}
		}
	}()
	return func() map[string]float64 {
		mu.Lock()
		defer mu.Unlock()
		out := make(map[string]float64, len(rates))
		for k, v := range rates {
			out[k] = v
		}
		return out
	}
}

// startRival runs a rival in a process of its own, and feeds it rates if it may see them.
func startRival(ctx context.Context, name string, speed float64, b *bed) (func() (int, string, error), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, rivalCommand, name, prefix, fmt.Sprint(speed))
	var out, fails strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &fails
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("rival %s: %w", name, err)
	}
	feeding, stopFeeding := context.WithCancel(ctx)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if rivals.SeesRates(name) {
			b.feed(feeding, in)
		}
	}()
	return func() (int, string, error) {
		stopFeeding()
		<-fed
		err := cmd.Process.Signal(syscall.SIGTERM)
		_ = in.Close() // its end is the signal's
		if wait := cmd.Wait(); wait != nil {
			err = errors.Join(err, fmt.Errorf("rival %s: %w: %s", name, wait, strings.TrimSpace(fails.String())))
		}
		changes := 0
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "change ") {
				changes++
			}
		}
		return changes, out.String(), err
	}, nil
}

// feed writes each enrolled job's rate over the last second or so, once a second.
func (b *bed) feed(ctx context.Context, to io.Writer) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := workload.Now()
		for i, j := range b.jobs {
			if rate, n := j.Rate(now-rollWindow, now); n > 0 && !b.mix.jobs[i].stranger {
				if _, err := fmt.Fprintf(to, "%s %g\n", j.Name, rate); err != nil {
					return // it has ended
				}
			}
		}
	}
}
