package agent

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// Known keeps the known jobs on disk. Save is called from one goroutine at a time.
type Known interface {
	Save(k Kept) error
}

// Kept is what is kept of known jobs: all of them, and what is remembered of other hosts' books.
type Kept struct {
	All   []profiles.Known
	Marks profiles.Marks
}

// saveEvery is how often what was learned goes to disk at the most: a crash costs so
// much of it. It is for saveJobs known jobs of this host; of twice as many the whole is written half as often, so
// that what is written in a second stays.
const (
	saveEvery = 10 * time.Second
	saveJobs  = 256
)

// remembering is the agent's part in keeping the known jobs.
type remembering struct {
	queue    chan Kept // the latest alone
	revision uint64    // of what was last queued
	at       time.Time
	lost     string // why the latest save failed
	failed   bool   // the profileSaver's: said already
	books    []state.Book
	aside    map[string]bool // hosts whose books were set aside: said already
}

// remember queues the known jobs for the profileSaver where it has changed. A profileSaver that is
// behind finds the latest.
func (l *Agent) remember() {
	book := l.control.Profiles()
	if l.o.Known == nil || book.Revision() == l.known.revision || time.Since(l.known.at) < saveEvery*time.Duration(max(1, (book.Len()-book.Foreign())/saveJobs)) {
		return
	}
	kept := Kept{book.All(), book.Marks()}
	select {
	case <-l.known.queue:
	default:
	}
	select {
	case l.known.queue <- kept:
		l.known.revision, l.known.at = book.Revision(), time.Now()
	default:
	}
}

// profileSaver writes the known jobs to disk.
func (l *Agent) profileSaver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case kept := <-l.known.queue:
			why := l.saveKnown(kept)
			l.reply(ctx, func() { l.known.lost = why })
		}
	}
}

// saveKnown says once that it fails, and why each time.
func (l *Agent) saveKnown(kept Kept) (why string) {
	err := l.o.Known.Save(kept)
	if err != nil {
		why = err.Error()
		if !l.known.failed {
			l.o.Log.Error("what is learned of jobs is not kept on disk", "error", err)
		}
	}
	l.known.failed = err != nil
	return why
}

// keepLast saves what was learned since the latest save. Run has returned.
func (l *Agent) keepLast() {
	book := l.control.Profiles()
	if l.o.Known != nil && (book.Revision() != l.known.revision || len(l.known.queue) > 0) {
		l.known.revision = book.Revision()
		l.saveKnown(Kept{book.All(), book.Marks()})
	}
}

// Fingerprints returns the known jobs.
func (l *Agent) Fingerprints(ctx context.Context) (out []state.Fingerprint, err error) {
	err = l.do(ctx, func() { out = l.control.Profiles().All() })
	return out, err
}

// Forget drops known jobs, for good. Containers that run go on, and are learned anew.
func (l *Agent) Forget(ctx context.Context, req state.ForgetRequest) ([]state.ActionResult, error) {
	asked := 0
	for _, said := range []bool{req.ID != 0 || req.Name != "", req.Host != "", req.All} {
		if said {
			asked++
		}
	}
	if asked != 1 {
		return nil, api.BadRequest("forget: want a number, a name, a host, or all", "`trimtab profiles ls` lists them")
	}
	var gone []profiles.Known
	if err := l.do(ctx, func() {
		if gone = l.forgetHost(req.Host); req.Host == "" {
			gone = l.control.Profiles().Forget(req.ID, req.Name)
		}
		l.known.at = time.Time{} // to disk at the next tick
	}); err != nil {
		return nil, err
	}
	if len(gone) == 0 && !req.All && req.Host == "" {
		return nil, &api.Error{Status: http.StatusNotFound, Text: "no such profile", Hint: "`trimtab profiles ls` lists them"}
	}
	out := []state.ActionResult{}
	for _, k := range gone {
		out = append(out, state.ActionResult{Name: k.Name, OK: true, Text: fmt.Sprintf("profile %d forgotten", k.ID)})
	}
	return out, nil
}
