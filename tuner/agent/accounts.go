package agent

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/state"
)

// accountsEvery is how often what was counted goes to disk: a kill costs so much of it.
const accountsEvery = time.Minute

// accounting is the agent's part in adding up what devices and CPUs were held for.
type accounting struct {
	book    *account.Book
	queue   chan []account.Hour
	at      time.Time // of the latest snapshot that was counted
	takenAt time.Time
	// unwritten: the disk refused last time. The recordWriter's, and after it Shutdown's.
	unwritten bool
	// takenNs is the wall clock of the latest take, storedNs of the latest that was stored.
	takenNs, storedNs atomic.Int64
	reporting         chan struct{} // has room for one report: each reads up to a year
	made              atomic.Pointer[reports]
	reportNs          atomic.Int64 // CPU time that reports took
}

// reports are all of one time: what takes long is reading the accounts, whatever they are sorted by.
type reports struct {
	fromNs, toNs int64
	by           map[account.By]state.Report
}

// account counts a snapshot before it is published, and shows the totals in it.
func (l *Agent) account(s *state.Snapshot) {
	a, now := &l.accounts, time.Now()
	var elapsed time.Duration
	if !a.at.IsZero() {
		elapsed = now.Sub(a.at) // by the monotonic clock
	}
	a.at = now
	a.book.Step(s, elapsed.Nanoseconds())
	a.book.Show(&s.Totals)
	if l.o.Accounts == nil || now.Sub(a.takenAt) < accountsEvery || len(a.queue) > 0 {
		return // what waits goes with the next
	}
	a.takenAt = now
	a.takenNs.Store(s.UnixNs)
	if hours := a.book.Take(); len(hours) > 0 {
		a.queue <- hours // it is empty, and nobody else fills it
	}
}

// writeAccounts is the recordWriter's. What could not be stored is counted again with the next.
func (l *Agent) writeAccounts(ctx context.Context, hours []account.Hour) {
	if err := l.addAccounts(hours); err != nil {
		l.reply(ctx, func() { l.accounts.book.Return(hours) })
	}
}

// addAccounts says once that it fails.
func (l *Agent) addAccounts(hours []account.Hour) error {
	taken := l.accounts.takenNs.Load()
	err := l.o.Accounts.AddAccounts(hours...)
	if err != nil && !l.accounts.unwritten {
		l.o.Log.Error("what devices and CPUs were held for is not being written", "error", err)
	}
	if err == nil {
		l.accounts.storedNs.Store(taken)
		l.accounts.made.Store(nil) // there are newer ones
	}
	l.accounts.unwritten = err != nil
	return err
}

// flushAccounts stores what is left. Run has returned.
func (l *Agent) flushAccounts() {
	if l.o.Accounts == nil {
		return
	}
	select {
	case hours := <-l.accounts.queue:
		l.accounts.book.Return(hours)
	default:
	}
	now := time.Now().UnixNano()
	l.accounts.takenNs.Store(now)
	l.accounts.book.Close(now)
	if hours := l.accounts.book.Take(); len(hours) > 0 {
		_ = l.addAccounts(hours) // which logs
	}
}

// recall brings back what the daemon before knew: what containers wanted, and what was proved, where it
// handed over: those changes stand, and what they save goes on.
func (l *Agent) recall(ctx context.Context) {
	l.recallPeaks(ctx)
	if l.o.History == nil || !l.o.Handover {
		return
	}
	records, err := l.o.History.Query(ctx, history.Filter{Kind: state.RecordTrial})
	if err != nil {
		if ctx.Err() == nil {
			l.o.Log.Warn("what was proved before the restart counts as saved no more", "error", err)
		}
		return
	}
	l.reply(ctx, func() {
		for _, r := range records {
			l.accounts.book.Recall(r)
		}
	})
}

// recallPeaks comes before this daemon stores anything: its own rows would take the place of those.
func (l *Agent) recallPeaks(ctx context.Context) {
	if l.o.Accounts == nil {
		return
	}
	var hours []account.Hour
	now := time.Now().UnixNano()
	if err := l.o.Accounts.Accounts(ctx, account.PeaksSince(now), func(h account.Hour) { hours = append(hours, h) }); err != nil {
		if ctx.Err() == nil {
			l.o.Log.Warn("what containers wanted before the restart is not known any more: advice on CPU to spare begins anew", "error", err)
		}
		return
	}
	l.reply(ctx, func() {
		for _, h := range hours {
			l.accounts.book.RecallPeaks(h, now)
		}
	})
}

// Report adds up what is stored since an instant, up to the latest that was stored: a minute or
// two ago. One report is made at a time; the next waits for it, as long as ctx lets it. Until
// something newer is stored, the same time sorted in another way needs no reading. Whoever is
// given a report must not change it.
func (l *Agent) Report(ctx context.Context, q api.ReportQuery) (state.Report, error) {
	if l.o.Accounts == nil {
		return state.Report{}, fmt.Errorf("no history is kept: its store could not be opened; the daemon's log says why")
	}
	select {
	case l.accounts.reporting <- struct{}{}:
		defer func() { <-l.accounts.reporting }()
	case <-ctx.Done():
		return state.Report{}, fmt.Errorf("another report is being made, try again: %w", ctx.Err())
	}
	stored := l.accounts.storedNs.Load()
	if made := l.accounts.made.Load(); made != nil && made.toNs == max(stored, q.SinceUnixNs) && made.fromNs == account.FromHour(q.SinceUnixNs) {
		return made.asked(q), nil
	}
	toNs := stored
	if toNs == 0 {
		toNs = time.Now().UnixNano() // this daemon stored nothing yet
	}
	made, err := l.report(ctx, q.SinceUnixNs, max(toNs, q.SinceUnixNs))
	if err != nil {
		return state.Report{}, err
	}
	if l.accounts.made.Store(made); l.accounts.storedNs.Load() != stored {
		l.accounts.made.Store(nil) // and the newer ones were stored before
	}
	return made.asked(q), nil
}

// asked is the one that was asked for.
func (r *reports) asked(q api.ReportQuery) state.Report {
	out := r.by[q.By]
	out.SinceUnixNs = q.SinceUnixNs
	return out
}

func (l *Agent) report(ctx context.Context, sinceNs, toNs int64) (*reports, error) {
	var tallies []*account.Tally
	for _, by := range account.AllBy() {
		tallies = append(tallies, account.NewTally(by, sinceNs, toNs))
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	at := api.ThreadCPU()
	spent := func() { // in steps: a report may begin in one stretch of shedding and end in another
		now := api.ThreadCPU()
		l.accounts.reportNs.Add(int64(now - at))
		at = now
	}
	defer spent()
	if err := l.o.Accounts.Accounts(ctx, sinceNs, func(h account.Hour) {
		for _, t := range tallies {
			t.Add(h)
		}
		spent()
	}); err != nil {
		return nil, err
	}
	out := &reports{account.FromHour(sinceNs), toNs, map[account.By]state.Report{}}
	for i, by := range account.AllBy() {
		out.by[by] = tallies[i].Report()
	}
	return out, nil
}
