package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/state"
)

// memAccounts keeps in memory what the history keeps on disk.
type memAccounts struct {
	mu    sync.Mutex
	hours []account.Hour
	err   error
	disk  func() // waits as a slow disk does; nil: it is quick
	reads atomic.Int64
}

func (m *memAccounts) AddAccounts(hours ...account.Hour) error {
	if m.disk != nil {
		m.disk()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.hours = append(m.hours, hours...)
	}
	return m.err
}

func (m *memAccounts) Accounts(_ context.Context, _ int64, each func(account.Hour)) error {
	m.reads.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.hours {
		each(h)
	}
	return m.err
}

func (m *memAccounts) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (d *daemon) report(by account.By) state.Report {
	d.n.t.Helper()
	since := time.Now().Add(-time.Hour).UnixNano()
	r, err := d.Report(context.Background(), api.ReportQuery{SinceUnixNs: since, By: by})
	if err != nil {
		d.n.t.Fatal(err)
	}
	if r.SinceUnixNs != since || r.FromUnixNs > since {
		d.n.t.Errorf("asked from %d on, it says %d, and begins at %d", since, r.SinceUnixNs, r.FromUnixNs)
	}
	return r
}

// about allows for ticks and the window that is open.
func about(got, want, by float64) bool { return got > want-by && got < want+by }

// What a job with a quota holds is counted each minute, whatever the disk does meanwhile, and the
// rest when the daemon stops.
func TestAccounts(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		disk, kept := make(chan struct{}), &memAccounts{}
		kept.disk = func() { <-disk }
		d := n.start(func(o *Options) { o.Accounts = kept })
		time.Sleep(150 * time.Second) // the first write waits for the disk all along
		if got := d.Snapshot().Totals.ObservedSeconds; !about(got, 149, 3) {
			t.Errorf("%.0f s were looked on while the disk is slow", got)
		}
		kept.fail(errors.New("disk full"))
		close(disk)
		time.Sleep(150 * time.Second)
		kept.fail(nil)
		time.Sleep(50 * time.Second)
		d.stop(false)
		r := d.report(account.ByContainer)
		if len(r.Groups) != 1 || r.Groups[0].Name != "train" || !about(r.Groups[0].CPU.Held, 350*0.4, 3) || !about(r.ObservedSeconds, 350, 3) {
			t.Errorf("%+v", r)
		}
		if g := r.Groups[0]; g.LentCPUSeconds <= 0 || g.CPU.Stalled <= 0 || g.CPU.Actionable <= 0 {
			t.Errorf("a job that was throttled and lent to: %+v", g)
		}
		team := d.Snapshot().Totals.TeamUse
		if len(team) == 0 || team[0].Resource != "cpu" {
			t.Errorf("totals of teams: %+v", team)
		}
	})
}

// A report ends at what is stored, so the minutes that are not do not count as not observed. While
// one is made another waits, as long as its caller does.
func TestReportEndsAtWhatIsStored(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		kept := &memAccounts{}
		d := n.start(func(o *Options) { o.Accounts = kept })
		time.Sleep(110 * time.Second) // one take, and then most of a minute
		r := d.report(account.ByTeam)
		if behind := time.Now().UnixNano() - r.ToUnixNs; behind < int64(40*time.Second) || behind > int64(60*time.Second) {
			t.Errorf("it ends %s ago, want at the take", time.Duration(behind))
		}
		d.accounts.reporting <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Report(ctx, api.ReportQuery{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second report meanwhile: %v", err)
		}
		<-d.accounts.reporting
		d.stop(false)
	})
}

// A report that is sorted in another way is not read anew, until there is something newer.
func TestReportsOfOneTimeAreReadOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		kept := &memAccounts{}
		d := n.start(func(o *Options) { o.Accounts = kept })
		time.Sleep(90 * time.Second)
		before := kept.reads.Load() // for what containers wanted
		for minute := range 2 {
			for _, by := range account.AllBy() {
				if r := d.report(by); r.By != string(by) || len(r.Groups) == 0 || r.Total.CPU.Held == 0 {
					t.Errorf("by %s: %+v", by, r)
				}
			}
			if d.accounts.reportNs.Load() <= 0 {
				t.Error("a report took no CPU time: it would have readings taken less often")
			}
			if got := kept.reads.Load() - before; got != int64(minute+1) {
				t.Errorf("after %d minutes the accounts were read %d times", minute+1, got)
			}
			time.Sleep(time.Minute)
		}
		if d.accounts.made.Load() != nil {
			t.Error("what is not the latest is held in memory")
		}
		d.stop(false)
	})
}

// A trial that was kept saves, and does so under the daemon that took over.
func TestSavingOutlivesAHandover(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		kept := &memAccounts{}
		d := n.start(func(o *Options) { proven(o); o.Accounts = kept })
		d.until("train", "a trial that is kept", isKept)
		time.Sleep(time.Minute)
		d.stop(true)
		first := d.report(account.ByTeam).Total.CPU
		if first.Saved <= 0 || first.Saved > first.Proven || first.Proven > first.Held {
			t.Errorf("before: %+v", first)
		}
		if n.quota(c) == starvedQuota {
			t.Fatal("nothing stands")
		}
		d = n.start(func(o *Options) { proven(o); o.Accounts, o.Handover = kept, true })
		time.Sleep(2 * time.Minute)
		d.stop(false)
		second := d.report(account.ByTeam).Total.CPU
		if second.Saved <= first.Saved {
			t.Errorf("after: %+v, before %+v", second, first)
		}
		n.wantQuota(c, starvedQuota, "after the end")
		d = n.start(func(o *Options) {
			o.Accounts, o.Settings.Rules.Mode, o.Handover = kept, "observe", true
			o.Disabled = func() bool { return true }
		})
		time.Sleep(2 * time.Minute)
		d.stop(false)
		if third := d.report(account.ByTeam).Total.CPU; third.Saved != second.Saved {
			t.Errorf("restored: %+v", third)
		}
	})
}

// What a job wanted at the most is known on after a restart, and after one that comes too late begins anew.
func TestWhatWasWantedOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		kept := &memAccounts{}
		run := func() (c state.Container) {
			d := n.start(func(o *Options) { o.Accounts = kept })
			time.Sleep(2 * time.Minute)
			c = d.Snapshot().Containers[0]
			d.stop(false)
			return c
		}
		first := run()
		time.Sleep(10 * time.Minute)
		second := run()
		if first.PeakSinceUnixNs == 0 || second.PeakSinceUnixNs/1e9 != first.PeakSinceUnixNs/1e9 || second.PeakCPUs < first.PeakCPUs {
			t.Errorf("since %d at most %g CPUs, and after a restart since %d at most %g", first.PeakSinceUnixNs, first.PeakCPUs, second.PeakSinceUnixNs, second.PeakCPUs)
		}
		time.Sleep(20 * time.Minute)
		if third := run(); third.PeakSinceUnixNs-second.PeakSinceUnixNs < int64(30*time.Minute) {
			t.Errorf("20 minutes after a stop it is known since %d", third.PeakSinceUnixNs)
		}
	})
}

func TestNoReportWithoutAHistory(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		d := n.start(nil)
		if _, err := d.Report(t.Context(), api.ReportQuery{}); err == nil {
			t.Error("no error")
		}
		d.stop(false)
	})
}

var _ Accounts = (*history.Store)(nil)
