package loop

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/fingerprint"
	"github.com/trimtab/trimtab/tuner/view"
)

// Known keeps the known jobs on disk. Save is called from one goroutine at a time.
type Known interface {
	Save(all []fingerprint.Known) error
}

// saveEvery is how often what was learned goes to disk at the most: a crash costs so
// much of it.
const saveEvery = 10 * time.Second

// remembering is the loop's part in keeping the known jobs.
type remembering struct {
	queue    chan []fingerprint.Known // the latest alone
	revision uint64                   // of what was last queued
	at       time.Time
	lost     string // why the latest save failed
	failed   bool   // the keeper's: said already
}

// remember queues the book for the keeper where it has changed. A keeper that is
// behind finds the latest.
func (l *Loop) remember() {
	book := l.control.Profiles()
	if l.o.Known == nil || book.Revision() == l.known.revision || time.Since(l.known.at) < saveEvery {
		return
	}
	all := book.All()
	select {
	case <-l.known.queue:
	default:
	}
	select {
	case l.known.queue <- all:
		l.known.revision, l.known.at = book.Revision(), time.Now()
	default:
	}
}

// keeper writes the known jobs to disk.
func (l *Loop) keeper(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case all := <-l.known.queue:
			why := l.saveKnown(all)
			l.reply(ctx, func() { l.known.lost = why })
		}
	}
}

// saveKnown says once that it fails, and why each time.
func (l *Loop) saveKnown(all []fingerprint.Known) (why string) {
	err := l.o.Known.Save(all)
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
func (l *Loop) keepLast() {
	book := l.control.Profiles()
	if l.o.Known != nil && (book.Revision() != l.known.revision || len(l.known.queue) > 0) {
		l.known.revision = book.Revision()
		l.saveKnown(book.All())
	}
}

// Fingerprints returns the known jobs.
func (l *Loop) Fingerprints(ctx context.Context) (out []view.Fingerprint, err error) {
	err = l.do(ctx, func() { out = l.control.Profiles().All() })
	return out, err
}

// Forget drops known jobs, for good. Containers that run go on, and teach anew.
func (l *Loop) Forget(ctx context.Context, req view.ForgetRequest) ([]view.ActionResult, error) {
	if (req.ID != 0 || req.Name != "") == req.All {
		return nil, api.BadRequest("forget: want a number, a name, or all", "`trimtab fingerprints ls` lists them")
	}
	var gone []fingerprint.Known
	if err := l.do(ctx, func() {
		gone = l.control.Profiles().Forget(req.ID, req.Name)
		l.known.at = time.Time{} // to disk at the next tick
	}); err != nil {
		return nil, err
	}
	if len(gone) == 0 && !req.All {
		return nil, &api.Error{Status: http.StatusNotFound, Text: "no such fingerprint", Mend: "`trimtab fingerprints ls` lists them"}
	}
	out := []view.ActionResult{}
	for _, k := range gone {
		out = append(out, view.ActionResult{Name: k.Name, OK: true, Text: fmt.Sprintf("fingerprint %d forgotten", k.ID)})
	}
	return out, nil
}
