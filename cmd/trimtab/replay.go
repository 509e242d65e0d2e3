package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
	"github.com/trimtab/trimtab/tuner/recording/play"
	"github.com/trimtab/trimtab/tuner/state"
)

func replayCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "replay FILE",
		Short: "Run a recording through today's code, from the samples to the plans",
		Long: "Print what today's code decides, and compare it with what the recording says was decided then. The exit status\n" +
			"is 1 if they differ. A recording that began in the middle of a run starts with nothing measured, so its first\n" +
			"seconds may differ. As csv, print what was shown of each watched container at each reading instead. docs/pandas.md\n" +
			"has the columns. No daemon and no root are needed.",
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{outputCSV: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			output, _ := cmd.Flags().GetString("output")
			return replay(f, cmd.OutOrStdout(), cmd.ErrOrStderr(), output)
		},
	}
}

// replaySummary ends a replay.
type replaySummary struct {
	Ticks     int    `json:"ticks"`
	Decisions int    `json:"decisions"`
	Compared  int    `json:"compared"` // decisions that the recording holds
	Differ    int    `json:"differ"`
	First     string `json:"first,omitempty"` // where they first differ
	Truncated bool   `json:"truncated,omitempty"`
}

const wasCut = "the recording was cut: what is whole of it was replayed"

// replay reads a recording and writes its decisions, or as CSV what they were made from, for which
// notes have what is no line of it.
func replay(in io.Reader, out, notes io.Writer, format string) error {
	r, err := recording.NewReader(in)
	if err != nil {
		return err
	}
	defer r.Close()
	c, err := play.New(r, builtin)
	if err != nil {
		return err
	}
	each := func(t control.Tick) error { return printDecision(out, t, format == outputJSON) }
	if format == outputCSV {
		w := csv.NewWriter(out)
		if err := w.WriteAll([][]string{render.ReadingColumns()}); err != nil { // also where no reading follows
			return err
		}
		each = func(t control.Tick) error {
			s := state.Snapshot{UnixNs: t.Input.UnixNs}
			c.Show(&s)
			return w.WriteAll(render.Readings(&s))
		}
	}
	sum, err := replayAll(r, c, each)
	if err != nil {
		return err
	}
	if format != outputCSV {
		err = printSummary(out, sum, format == outputJSON)
	} else if sum.Truncated {
		_, err = fmt.Fprintln(notes, wasCut)
	}
	if err != nil {
		return err
	}
	if sum.Differ > 0 {
		return fmt.Errorf("%d decisions differ from the recording, the first at %s", sum.Differ, sum.First)
	}
	return nil
}

// replayAll steps through a recording; each sees every tick.
func replayAll(r *recording.Reader, c *play.Player, each func(control.Tick) error) (sum replaySummary, err error) {
	var last control.Tick
	undecided := false // the latest tick decided something that the recording has not confirmed yet
	differ := func() {
		sum.Differ++
		if sum.First == "" {
			sum.First = time.Unix(0, last.Input.UnixNs).UTC().Format(time.RFC3339)
		}
		undecided = false
	}
	for {
		kind, raw, err := c.Next()
		if errors.Is(err, io.EOF) {
			sum.Truncated = r.Truncated()
			if undecided && !sum.Truncated {
				differ()
			}
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		switch kind {
		case "tick":
			if undecided {
				differ()
			}
			if last, err = c.Replay(raw); err != nil {
				return sum, err
			}
			sum.Ticks++
			if decided(last.Decision) {
				sum.Decisions++
				undecided = true
			}
			if err := each(last); err != nil {
				return sum, err
			}
		case "decision":
			sum.Compared++
			if !sameDecision(raw, last.Decision) {
				differ()
			}
			undecided = false
		}
	}
}

// decided reports whether a tick decided something.
func decided(d control.Decision) bool { return len(d.Apply)+len(d.Rollback)+len(d.Records) > 0 }

// sameDecision compares by value, through the same encoding.
func sameDecision(raw json.RawMessage, d control.Decision) bool {
	text, err := json.Marshal(d)
	if err != nil {
		return false
	}
	var was, is any
	return json.Unmarshal(raw, &was) == nil && json.Unmarshal(text, &is) == nil && reflect.DeepEqual(was, is)
}

func printDecision(out io.Writer, t control.Tick, asJSON bool) error {
	if !decided(t.Decision) {
		return nil
	}
	if asJSON {
		return json.NewEncoder(printable{out}).Encode(t.Decision)
	}
	at := time.Unix(0, t.Input.UnixNs).UTC().Format("15:04:05")
	var lines []string
	for _, r := range t.Decision.Records {
		lines = append(lines, fmt.Sprintf("%s %-8s %s: %s", at, r.Kind, r.Name, r.Text))
	}
	for _, o := range t.Decision.Apply {
		for _, ch := range o.Changes {
			lines = append(lines, fmt.Sprintf("%s %-8s %s: %s %s → %s (%s)", at, "plan", ch.Name, ch.Knob, ch.From, ch.To, ch.Reason))
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, render.Clean(line)); err != nil { // a recording comes from anywhere
			return err
		}
	}
	return nil
}

func printSummary(out io.Writer, s replaySummary, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(printable{out}).Encode(s)
	}
	_, err := fmt.Fprintf(out, "%d ticks, %d with decisions; %d compared with the recording, %d differ\n", s.Ticks, s.Decisions, s.Compared, s.Differ)
	if s.Truncated && err == nil {
		_, err = fmt.Fprintln(out, wasCut)
	}
	return err
}
