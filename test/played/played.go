// Package played runs recordings through today's code, from the samples to what the daemon
// shows: what draws the pictures of the pages and what tries their commands looks at that.
package played

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// File plays a recording. Each tick comes with the snapshot that the daemon published after it.
func File(file string, each func(control.Tick, *state.Snapshot)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := recording.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer r.Close()
	cfg := control.Defaults()
	if err := json.Unmarshal(r.Header().Config, &cfg); err != nil {
		return fmt.Errorf("%s: config: %w", file, err)
	}
	c := control.New(cfg, func(k *policies.Constants) []policies.Policy {
		return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
	}, "played")
	var began int64
	for {
		kind, raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if kind != "tick" {
			continue
		}
		tick, err := c.Replay(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if began == 0 {
			began = tick.Input.UnixNs
		}
		s := &state.Snapshot{UnixNs: tick.Input.UnixNs, IdleAfterNs: cfg.Idle.AfterNs,
			Daemon: state.Daemon{Version: r.Header().Trimtab, PID: 1, StartedUnixNs: began, ConfigUnixNs: began, Mode: policies.ModeTune, Policies: c.PolicyNames(),
				Engines: []state.Part{{Name: "docker", OK: true, Since: began}}, Probes: []state.Part{{Name: "kernel", OK: true, Since: began}}}}
		c.Show(s)
		each(tick, s)
	}
}

// Daemon answers the API from what it was played. Of what acts it does nothing: that is nil, or
// whatever Backend a test gives it.
type Daemon struct {
	api.Backend
	latest  *state.Snapshot
	records []state.Record
	hour    series.Store
	hours   []account.Hour
}

// Play adds a recording, which must have been made after those before.
func (d *Daemon) Play(file string) error {
	book := account.NewBook()
	orders := map[string]control.Order{}
	var beforeNs int64
	err := File(file, func(tick control.Tick, s *state.Snapshot) {
		d.records = append(d.records, written(tick.Input, orders)...)
		d.records = append(d.records, tick.Decision.Records...)
		for _, o := range slices.Concat(tick.Decision.Apply, tick.Decision.Rollback) {
			orders[o.Plan] = o
		}
		elapsed := int64(0)
		if beforeNs > 0 {
			elapsed = tick.Input.Host.AtNs - beforeNs
		}
		beforeNs = tick.Input.Host.AtNs
		book.Step(s, elapsed)
		book.Show(&s.Totals)
		d.hour.Add(s)
		d.latest = s
	})
	if err != nil {
		return err
	}
	book.Close(d.latest.UnixNs)
	d.hours = append(d.hours, book.Take()...)
	return nil
}

// written is what the agent adds to the history once an order was carried out.
func written(in control.Input, orders map[string]control.Order) (out []state.Record) {
	for _, res := range in.Results {
		o, known := orders[res.Plan]
		if !known || !res.OK || o.DryRun {
			continue
		}
		for _, ch := range o.Changes {
			if res.Kind == control.ResultRollback {
				ch.From, ch.To = ch.To, ch.From
			}
			r := agent.ChangeRecord(in.UnixNs, o, actuator.ChangeResult{Change: ch, Outcome: actuator.Applied, Actual: ch.To})
			if res.Kind == control.ResultRollback {
				r.Kind, r.Gain, r.Text = state.RecordRollback, 0, ch.Knob.Text(ch.From, ch.To)+": reverted by its trial"
			}
			out = append(out, r)
		}
	}
	return out
}

// Snapshot is that of the last tick.
func (d *Daemon) Snapshot() *state.Snapshot { return d.latest }

// Series is the hour before the last tick.
func (d *Daemon) Series(key string) []series.Point { return d.hour.Of(key) }

// History are the records of all that was played.
func (d *Daemon) History(_ context.Context, q api.HistoryQuery) (out []state.Record, err error) {
	for _, r := range d.records {
		if (q.Name == "" || r.Name == q.Name) && r.UnixNs >= q.SinceUnixNs && (!q.Changed || r.Changed()) {
			out = append(out, r)
		}
	}
	if q.Limit > 0 {
		out = out[max(0, len(out)-q.Limit):]
	}
	return out, nil
}

// Report adds up all that was played since an instant.
func (d *Daemon) Report(_ context.Context, q api.ReportQuery) (state.Report, error) {
	tally := account.NewTally(q.By, q.SinceUnixNs, max(d.latest.UnixNs, q.SinceUnixNs))
	for _, h := range d.hours {
		if h.StartUnixNs+int64(h.Hours)*int64(time.Hour) > q.SinceUnixNs {
			tally.Add(h)
		}
	}
	return tally.Report(), nil
}
