package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
	"github.com/trimtab/trimtab/tuner/recording/play"
	"github.com/trimtab/trimtab/tuner/state"
)

// retellFile writes the decisions of a recording anew where they differ in the verdicts and the units that
// are told or the gain that is expected of a change, and in nothing else. What was seen stays as it was: such
// words change no resource, so what came after does not hang on them. One whose changes differ has to be recorded anew.
func retellFile(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if replay(bytes.NewReader(data), io.Discard, io.Discard, outputTable) == nil {
		return
	}
	var out bytes.Buffer
	if err := retell(bytes.NewReader(data), &out); err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func retell(in io.Reader, out io.Writer) error {
	r, err := recording.NewReader(in)
	if err != nil {
		return err
	}
	defer r.Close()
	c, err := play.New(r, builtin)
	if err != nil {
		return err
	}
	w, err := recording.NewWriter(out, r.Header())
	if err != nil {
		return err
	}
	var last, was control.Decision
	ticks := 0
	flush := func() error { // a tick's decision follows it in the stream
		if ticks == 0 {
			return nil
		}
		if !reflect.DeepEqual(deeds(was), deeds(last)) {
			return errors.New("more than its verdicts differs: record it anew")
		}
		if len(last.Apply)+len(last.Rollback)+len(last.Records) == 0 {
			return nil
		}
		return w.Write("decision", last)
	}
	for {
		kind, raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(flush(), w.Close())
		}
		if err != nil {
			return err
		}
		if kind == "decision" {
			if err := json.Unmarshal(raw, &was); err != nil {
				return err
			}
			continue
		}
		if kind == "config" {
			cfg := control.Defaults()
			if err := json.Unmarshal(raw, &cfg); err != nil {
				return err
			}
			c.SetConfig(cfg)
		}
		if kind == "tick" {
			if err := flush(); err != nil {
				return err
			}
			tick, err := c.Replay(raw)
			if err != nil {
				return err
			}
			last, was = tick.Decision, control.Decision{}
			ticks++
		}
		if err := w.Write(kind, raw); err != nil {
			return err
		}
	}
}

// deeds is a decision without the verdicts that it tells, the units of its numbers and the gains that it expects,
// through the encoding.
func deeds(d control.Decision) any {
	d.Records = slices.DeleteFunc(slices.Clone(d.Records), func(r state.Record) bool { return r.Kind == state.RecordVerdict })
	for i := range d.Records {
		d.Records[i].Unit = ""
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	var out control.Decision
	if err := json.Unmarshal(text, &out); err != nil {
		return err
	}
	for _, o := range out.Apply {
		for i := range o.Changes {
			o.Changes[i].Gain, o.Changes[i].RateAfter = 0, 0
		}
	}
	return out
}
