package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// What a program is to have whose memory limit evicted its files.
const (
	goalEpochs = 2.0  // of the starved job, from when trimtab may act, or helpS where that is longer: to see that it reads again, and to keep all
	goalRoom   = 1.25 // times its files and what it holds beside them
	heldMiB    = 120  // numpy, Python and page tables
)

// memoryRun is one run of a program that memory starves.
type memoryRun struct {
	share, before float64 // of the rate with plenty
	limitMiB      float64 // that stands at the end
	seconds       float64 // from when trimtab may act to a limit that holds the files, and has settled
	epoch         float64 // seconds, of the starved job
	gain          string  // what trimtab says of it
}

// cached measures a program whose memory limit evicts its files.
func (c *cage) cached(ctx context.Context) (missed int, err error) {
	runs := c.o.runs
	var shares, before, limits, after []float64
	for i := range runs {
		var r memoryRun
		if err := c.undisturbed(ctx, func() (err error) { r, err = c.cachedOnce(ctx); return err }); err != nil {
			return missed, fmt.Errorf("run %d: %w", i+1, err)
		}
		c.say("run %d: before %.2f, reached %.3f with %.0f MiB after %.1f s, %.1f epochs; trimtab says %s", i+1, r.before, r.share, r.limitMiB, r.seconds, r.seconds/r.epoch, r.gain)
		shares, before, limits, after = append(shares, r.share), append(before, r.before), append(limits, r.limitMiB), append(after, r.seconds)
		if r.share < c.o.reached || r.seconds > max(goalEpochs*r.epoch, helpS) || r.limitMiB > goalRoom*(filesMiB+heldMiB) {
			missed++
		}
	}
	c.tally.reached = append(c.tally.reached, stats.Median(shares))
	fmt.Printf("%-12s %-50s before %.2f  reached %.3f (least %.3f)  %.0f MiB (most %.0f)  after %.1f s (longest %.1f)  %d of %d runs hold, %d made again\n", c.p.name, c.p.why, stats.Median(before),
		stats.Median(shares), slices.Min(shares), stats.Median(limits), slices.Max(limits), stats.Median(after), slices.Max(after), runs-missed, runs, c.void)
	return missed, nil
}

func (c *cage) cachedOnce(ctx context.Context) (r memoryRun, err error) {
	free := func() (float64, error) {
		if _, err := c.daemon.Run(ctx, "disable", c.job.Name); err != nil {
			return 0, err
		}
		if err := c.setLimit(ctx, plenty); err != nil {
			return 0, err
		}
		return c.rate(ctx, c.p.epoch.Seconds()*1.5, freeS) // until all is in memory
	}
	first, err := free()
	if err != nil {
		return r, err
	}
	if err := c.setLimit(ctx, limitMiB); err != nil {
		return r, err
	}
	starved, err := c.rate(ctx, settleS, max(freeS, c.p.epoch.Seconds()/5))
	if err != nil {
		return r, err
	}
	if _, err := c.daemon.Run(ctx, "enable", c.job.Name); err != nil {
		return r, err
	}
	epoch := filesMiB / 4 / starved // seconds; a step is 4 MiB
	after, err := c.enough(ctx, seconds((goalEpochs+1)*epoch+3*helpS))
	if err != nil {
		return r, err
	}
	r.seconds, r.epoch = after, epoch
	helped, err := c.rate(ctx, helpS, afterS)
	if err != nil {
		return r, err
	}
	limit, err := c.limit()
	if err != nil {
		return r, err
	}
	r.limitMiB = float64(limit) / (1 << 20)
	v, err := c.daemon.Container(ctx, c.job.Name)
	if err != nil {
		return r, err
	}
	r.gain = fmt.Sprintf("%+.0f %% (%v), work %+v", 100*v.Gain, v.HasGain, v.Work)
	last, err := free()
	c.say("steps/s: free %.2f, starved %.2f, helped %.2f, free again %.2f", first, starved, helped, last)
	r.share, r.before = 2*helped/(first+last), 2*starved/(first+last)
	return r, err
}

// enough waits until the limit holds the files and has come down from what was lent, and
// returns the seconds until then; d's, if it did not come.
func (c *cage) enough(ctx context.Context, d time.Duration) (after float64, err error) {
	began, most := workload.Now(), int64(0)
	for workload.Now() < began+d {
		limit, err := c.limit()
		if err != nil {
			return 0, err
		}
		if limit < most && limit >= filesMiB<<20 {
			return (workload.Now() - began).Seconds(), nil
		}
		most = max(most, limit)
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return d.Seconds(), nil
}

func (c *cage) setLimit(ctx context.Context, mib int) error {
	return c.job.Update(ctx, "--memory", mebibytes(mib), "--memory-swap", mebibytes(mib))
}

func mebibytes(n int) string { return fmt.Sprintf("%dm", n) }

// rootDisk is the device that Docker's folder is on.
func rootDisk() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	best, device := "", ""
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		inside := len(f) > 1 && strings.HasPrefix(f[0], "/dev/") && strings.HasPrefix("/var/lib/docker/", strings.TrimSuffix(f[1], "/")+"/")
		if inside && len(f[1]) >= len(best) {
			best, device = f[1], f[0]
		}
	}
	if device == "" {
		return "", errors.New("no block device holds /var/lib/docker")
	}
	return filepath.EvalSymlinks(device)
}
