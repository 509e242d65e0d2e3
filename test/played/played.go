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
	"github.com/trimtab/trimtab/tuner/recording/play"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// Called is another name for a container of a recording, and a team.
type Called struct{ Name, Team string }

// File plays a recording. Each tick comes with the snapshot that the daemon published after it.
// Containers that as has are called so.
func File(file string, as map[string]Called, each func(control.Tick, *state.Snapshot)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := recording.NewReader(f)
	if err == nil {
		defer r.Close()
		err = ticks(r, as, each)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func ticks(r *recording.Reader, as map[string]Called, each func(control.Tick, *state.Snapshot)) error {
	h := r.Header()
	c, err := play.New(r, func(k *policies.Constants) []policies.Policy {
		return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
	})
	if err != nil {
		return err
	}
	part := func(name string) []state.Part { return []state.Part{{Name: name, OK: true, Since: h.WallUnixNs}} }
	for {
		kind, raw, err := c.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var tick control.Tick
		if err == nil && kind == "tick" {
			err = json.Unmarshal(raw, &tick.Input)
		}
		if err != nil {
			return err
		}
		if kind != "tick" {
			continue
		}
		for i := range tick.Input.Containers {
			box := &tick.Input.Containers[i]
			if a, ok := as[box.Name]; ok {
				box.Name, box.Enrolment.Team = a.Name, a.Team
			}
		}
		tick.Decision = c.Step(tick.Input)
		s := &state.Snapshot{UnixNs: tick.Input.UnixNs, IdleAfterNs: c.Config.Idle.AfterNs,
			Daemon: state.Daemon{Version: h.Trimtab, PID: 1, StartedUnixNs: h.WallUnixNs, ConfigUnixNs: h.WallUnixNs, Mode: policies.ModeTune,
				Policies: c.PolicyNames(), Engines: part("docker"), Probes: part("kernel")}}
		c.Show(s)
		each(tick, s)
	}
}

// Daemon answers the API from what it was played. What acts is Backend's. Its last tick is now:
// who asks for an hour gets the hour before it.
type Daemon struct {
	api.Backend
	As        map[string]Called // by their names in recordings
	Recording string            // what Record gives
	latest    *state.Snapshot
	records   []state.Record
	hour      series.Store
	hours     []account.Hour
}

// Play adds a recording, which must have been made after those before.
func (d *Daemon) Play(file string) error {
	book := account.NewBook()
	orders := map[string]control.Order{}
	var beforeNs int64
	err := File(file, d.As, func(tick control.Tick, s *state.Snapshot) {
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
	q.SinceUnixNs = d.then(q.SinceUnixNs)
	for _, r := range d.records {
		if (q.Name == "" || r.Name == q.Name) && r.UnixNs >= q.SinceUnixNs && (q.UntilUnixNs == 0 || r.UnixNs <= d.then(q.UntilUnixNs)) && (!q.Changed || r.Changed()) {
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
	q.SinceUnixNs = d.then(q.SinceUnixNs)
	tally := account.NewTally(q.By, q.SinceUnixNs, max(d.latest.UnixNs, q.SinceUnixNs))
	for _, h := range d.hours {
		if h.StartUnixNs+int64(h.Hours)*int64(time.Hour) > q.SinceUnixNs {
			tally.Add(h)
		}
	}
	return tally.Report(), nil
}

// then is an instant before now, as far before the last tick.
func (d *Daemon) then(unixNs int64) int64 {
	return unixNs - max(0, time.Now().UnixNano()-d.latest.UnixNs)
}

// Record gives a recording that was made before, at once.
func (d *Daemon) Record(_ context.Context, w io.Writer, _ time.Duration) error {
	data, err := os.ReadFile(d.Recording)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}
