package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// The methods below are the API's backend; they come from other goroutines.
var _ api.Backend = (*Agent)(nil)

// History answers from the store.
func (l *Agent) History(ctx context.Context, q api.HistoryQuery) ([]state.Record, error) {
	if l.o.History == nil {
		return nil, fmt.Errorf("history is not being kept: its store could not be opened; the daemon's log says why")
	}
	return l.o.History.Query(ctx, history.Filter{SinceNs: q.SinceUnixNs, UntilNs: q.UntilUnixNs, ChangedOnly: q.Changed, Name: q.Name, Limit: q.Limit})
}

// Series returns the last hour of a container that runs, by its key.
func (l *Agent) Series(key string) []series.Point {
	if l.o.Series == nil {
		return []series.Point{}
	}
	return l.o.Series.Of(key)
}

// pick returns the running containers that a request names.
func (l *Agent) pick(ctx context.Context, req state.EnableRequest) (out []runtime.Container, err error) {
	doErr := l.do(ctx, func() { out, err = enrolment.Select(req, l.all()) })
	if doErr != nil {
		return nil, doErr
	}
	return out, err
}

func (l *Agent) all() []runtime.Container {
	var out []runtime.Container
	for _, key := range l.keys() {
		out = append(out, l.containers[key].c)
	}
	return out
}

// Enable enrols running containers, on disk by identity.
func (l *Agent) Enable(ctx context.Context, req state.EnableRequest) ([]state.ActionResult, error) {
	at := now()
	m := enrolment.Manual{Mode: policies.ModeTune, Knobs: req.Knobs, SetUnixNs: at.UnixNs}
	if req.ForNs > 0 {
		m.UntilUnixNs, m.UntilBootNs = at.UnixNs+req.ForNs, at.BootNs+req.ForNs
	}
	return l.enrol(ctx, req, m, "enabled")
}

// Disable ends what Enable, a label or a rule asked: the container is watched,
// and what trimtab changed goes back.
func (l *Agent) Disable(ctx context.Context, req state.EnableRequest) ([]state.ActionResult, error) {
	return l.enrol(ctx, req, enrolment.Manual{Mode: policies.ModeObserve, SetUnixNs: now().UnixNs}, "disabled")
}

// enrol stores a record for each container that a request names.
func (l *Agent) enrol(ctx context.Context, req state.EnableRequest, m enrolment.Manual, verb string) (out []state.ActionResult, err error) {
	cs, err := l.pick(ctx, req)
	for _, c := range cs {
		m.Key, m.Name = c.Key(), c.Name
		out = append(out, l.enrolled(ctx, c, m, verb))
	}
	return out, err
}

// enrolled stores a record and tells what came of it, the host's word included.
func (l *Agent) enrolled(ctx context.Context, c runtime.Container, m enrolment.Manual, verb string) state.ActionResult {
	res := state.ActionResult{Key: c.Key(), Name: c.Name}
	if err := l.o.Manuals.Set(m); err != nil {
		res.Text = fmt.Sprintf("not %s: %v", verb, err)
		return res
	}
	err := l.do(ctx, func() {
		t := l.containers[c.Key()]
		if t == nil {
			res.Text = "it ended in the meantime"
			return
		}
		l.settle(t)
		l.asked = true
		res.OK, res.Text = true, verb
		if m.Mode == policies.ModeTune && t.enrolment.Mode != policies.ModeTune {
			res.OK, res.Text = false, fmt.Sprintf("recorded, and still not tuned: %s", t.enrolment.WhyNot)
		}
		l.keep([]state.Record{{UnixNs: m.SetUnixNs, Kind: state.RecordEnrol, Key: res.Key, Name: res.Name, Text: res.Text + " by hand"}})
	})
	if err != nil {
		res.OK, res.Text = false, err.Error()
	}
	return res
}

// restoredTogether is how many containers a restore by hand takes at a time: what else is to be written
// waits for no more of them, and so does a request that has ended.
const restoredTogether = 64

// Restore puts originals back and holds the containers until Resume.
func (l *Agent) Restore(ctx context.Context, name string) ([]state.ActionResult, error) {
	cs, err := l.named(ctx, name)
	if err != nil {
		return nil, err
	}
	out := []state.ActionResult{}
	for some := range slices.Chunk(cs, restoredTogether) {
		if ctx.Err() != nil {
			return out, fmt.Errorf("container %q and later ones were neither held nor restored: %w", some[0].Name, ctx.Err())
		}
		done, err := l.restoreSome(ctx, some)
		if out = append(out, done...); err != nil {
			return out, err
		}
	}
	return out, nil
}

// restoreSome holds and restores containers, and tells of each. It goes on where the request ends: what is
// held gives nothing back to others any more, and must not keep what it was lent.
func (l *Agent) restoreSome(ctx context.Context, cs []runtime.Container) (out []state.ActionResult, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), api.ActTimeout)
	defer cancel()
	// Held first: nothing may be decided between the restore and the hold. A disk that refuses
	// to store it keeps no original from going back.
	held := "held until `trimtab resume`"
	if err := l.o.Holds.SetHeld(true, keysOf(cs)...); err != nil {
		held = fmt.Sprintf("held until this daemon ends, or `trimtab resume`: the hold could not be stored: %v", err)
	}
	shown, failed := make([]string, len(cs)), make([]error, len(cs))
	for i, c := range cs {
		shown[i], failed[i] = l.showAll(ctx, c)
	}
	results, later := l.o.Actuator.RestoreThese(ctx, cs, "asked for")
	err = l.do(ctx, func() {
		l.restored(results, "restored by hand")
		for _, r := range results {
			l.results = append(l.results, control.Result{Kind: control.ResultEnded, Key: r.Key, Text: "restored by hand"})
		}
	})
	if err != nil {
		return nil, errors.Join(later, err)
	}
	records := make([]state.Record, len(results))
	for i, r := range results {
		records[i] = state.Record{Key: r.Key, Name: r.Name, Text: held}
		out = append(out, state.ActionResult{Key: r.Key, Name: r.Name, OK: r.Outcome == actuator.Restored && failed[i] == nil, Text: r.Text() + shown[i]})
	}
	l.tell(ctx, records...)
	return out, later
}

func keysOf(cs []runtime.Container) []string {
	keys := make([]string, len(cs))
	for i, c := range cs {
		keys[i] = c.Key()
	}
	return keys
}

func (l *Agent) named(ctx context.Context, name string) (cs []runtime.Container, err error) {
	if name != "" {
		return l.pick(ctx, state.EnableRequest{Name: name})
	}
	err = l.do(ctx, func() { cs = l.all() })
	return cs, err
}

// Resume lifts a hold; without a name all holds, and a pause.
func (l *Agent) Resume(ctx context.Context, name string) ([]state.ActionResult, error) {
	cs, err := l.named(ctx, name)
	if err != nil {
		return nil, err
	}
	out := []state.ActionResult{}
	if name == "" && l.o.Holds.Paused() {
		if err := l.o.Holds.SetPaused(false); err != nil {
			return nil, err
		}
		l.tell(ctx, state.Record{Text: "no longer paused"})
		out = append(out, state.ActionResult{Name: "host", OK: true, Text: "no longer paused"})
	}
	cs = slices.DeleteFunc(cs, func(c runtime.Container) bool { return !l.o.Holds.Held(c.Key()) })
	if len(cs) == 0 {
		return out, nil
	}
	if err := l.o.Holds.SetHeld(false, keysOf(cs)...); err != nil {
		return out, err
	}
	records := make([]state.Record, len(cs))
	for i, c := range cs {
		records[i] = state.Record{Key: c.Key(), Name: c.Name, Text: "no longer held"}
		out = append(out, state.ActionResult{Key: c.Key(), Name: c.Name, OK: true, Text: "no longer held"})
	}
	l.tell(ctx, records...)
	return out, nil
}

// Pause freezes everything as it stands, until Resume, also over a reboot.
func (l *Agent) Pause(ctx context.Context) error {
	if err := l.o.Holds.SetPaused(true); err != nil {
		return err
	}
	l.tell(ctx, state.Record{Text: "paused by hand: everything stands as it is until `trimtab resume`"})
	return nil
}

// tell puts what people asked for into the history. The thing itself is done by then, and
// an end of the agent in between is no reason to say that it is not.
func (l *Agent) tell(ctx context.Context, records ...state.Record) {
	for i := range records {
		records[i].UnixNs, records[i].Kind = time.Now().UnixNano(), state.RecordEnrol
	}
	_ = l.do(ctx, func() { l.keep(records); l.asked = true })
}

// Record streams what is read from now on.
func (l *Agent) Record(ctx context.Context, w io.Writer, d time.Duration) error {
	tee, ok := l.o.Recorder.(interface {
		Tee(ctx context.Context, w io.Writer, d time.Duration) error
	})
	if !ok {
		return fmt.Errorf("the recorder is off (record.ring: 0 in the config)")
	}
	return tee.Tee(ctx, w, d)
}
