package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/cuda"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/agent"
)

// blockLength of a job whose launches are probed in each second block. It is shorter than
// the time after which the probe judges whether it is hit too often.
const blockLength = 400 * time.Millisecond

// counter probes a job's launches, and nothing else of it.
type counter struct {
	key   string
	find  *uprobe.Finder
	calls *cuda.Probe
}

func newCounter(j *job) (*counter, error) {
	n := &counter{key: j.c.Key(), find: uprobe.NewFinder()}
	var err error
	if n.calls, err = cuda.New(n.find); err != nil {
		return nil, errors.Join(err, n.find.Close())
	}
	if err := n.calls.Watch(agent.Target(j.c)); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// turn puts the probe in or takes it out, and returns the launches counted so far.
func (n *counter) turn(ctx context.Context, in bool) (launches uint64, err error) {
	share := 0.0
	if in {
		share = 1
	}
	n.calls.SetDutyCycle(n.key, cuda.HookLaunch, share)
	read, err := n.read(ctx)
	for _, p := range read.Processes {
		launches += p.Launches
	}
	return launches, err
}

// read returns what was counted so far.
func (n *counter) read(ctx context.Context) (read probes.CUDA, err error) {
	sample := probes.Sample{}
	err = n.calls.Read(ctx, map[string]*probes.Sample{n.key: &sample})
	if sample.CUDA != nil {
		read = *sample.CUDA
	}
	return read, err
}

// first waits until launches are counted: the libraries are read by then.
func (n *counter) first(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < readPatience; {
		if launches, err := n.turn(ctx, true); err != nil || launches > 0 {
			return err
		}
		if err := workload.Sleep(ctx, blockLength); err != nil {
			return err
		}
	}
	return fmt.Errorf("no launch was counted within %s", readPatience)
}

func (n *counter) close() error { return errors.Join(n.calls.Close(), n.find.Close()) }

// costOf measures what counting its launches costs a job. They are probed in short blocks, each
// held against the blocks before and after it: in longer turns the machine's pace drifts.
func (c *check) costOf(ctx context.Context, t truth, blocks int) (err error) {
	j, err := c.stepping(ctx, t.name, t.work, 20)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, j.stop()) }()
	ratios, perSecond, err := c.probedBlocks(ctx, j, blocks)
	if err != nil {
		return err
	}
	share, err := c.countedShare(ctx, j, perSecond)
	if err != nil {
		return err
	}
	if len(ratios) < 2 {
		c.report.row(note, "rate", t.name+": while each launch is counted", "", fmt.Sprintf("not told: too few steps in %s", blockLength))
		return nil
	}
	mean, low, high := interval(ratios)
	c.report.row(note, "rate", t.name+": while each launch is counted", fmt.Sprintf("%d blocks of %s", len(ratios), blockLength),
		fmt.Sprintf("%.4f (95 %%: %.4f to %.4f); %.0f ns for each of %.0f launches/s", mean, low, high, (1/mean-1)/perSecond*1e9, perSecond))
	whole := func(ratio float64) float64 { return 1 - share*(1-ratio) }
	c.report.judge(whole(high) >= 1-costLimit, "rate", t.name+": under the budget", fmt.Sprintf("%.1f %% of the launches are counted", 100*share),
		fmt.Sprintf("%.4f (95 %%: %.4f to %.4f)", whole(mean), whole(low), whole(high)))
	return nil
}

// probedBlocks returns the job's rate in each probed block as a share of its rate beside it,
// and the launches that were counted a second.
func (c *check) probedBlocks(ctx context.Context, j *job, blocks int) (ratios []float64, perSecond float64, err error) {
	n, err := newCounter(j)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = firstError(err, n.close()) }()
	if err := n.first(ctx); err != nil {
		return nil, 0, err
	}
	const settle = 10 // until one of two levels of probes is left
	rates, counted := make([]float64, 0, 2*blocks+1), 0.0
	for i := range 2*blocks + 1 + settle {
		in := i%2 == 1
		before, err := n.turn(ctx, in)
		if err != nil {
			return nil, 0, err
		}
		from := workload.Now()
		if err := workload.Sleep(ctx, blockLength); err != nil {
			return nil, 0, err
		}
		to := workload.Now()
		after, err := n.turn(ctx, false)
		if err != nil {
			return nil, 0, err
		}
		if i < settle {
			continue
		}
		if in {
			counted += float64(after-before) / (to - from).Seconds() / float64(blocks)
		}
		rates = append(rates, j.rateBetween(from, to))
	}
	for i := 1; i+1 < len(rates); i += 2 {
		if r := rates[i] / math.Sqrt(rates[i-1]*rates[i+1]); r > 0 && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	if counted == 0 {
		return nil, 0, errors.New("no launch was counted")
	}
	return ratios, counted, nil
}

// countedShare is the share of launches that a daemon counts, which keeps its budget.
func (c *check) countedShare(ctx context.Context, j *job, perSecond float64) (share float64, err error) {
	d, err := c.launch(ctx, j, settings{mode: policies.ModeObserve, dir: j.dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = firstError(err, d.end()) }()
	if err := workload.Sleep(ctx, c.pick(10*time.Second, 2*time.Second)); err != nil { // attached, and the budget found
		return 0, err
	}
	before, from := counts(d), workload.Now()
	if err := workload.Sleep(ctx, c.pick(25*time.Second, 2*time.Second)); err != nil {
		return 0, err
	}
	after, to := counts(d), workload.Now()
	return float64(after.Launches-before.Launches) / (perSecond * (to - from).Seconds()), nil
}
