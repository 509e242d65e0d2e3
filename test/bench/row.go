package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// Verdicts of a row. Rows without a goal are reported.
const (
	verdictMet     = "met"
	verdictMiss    = "MISS"
	verdictNone    = "-"
	verdictUnclear = "unclear" // the spread is too wide to say
)

// Row is one line of the table.
type Row struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Low    float64 `json:"low"` // of the spread that Spread names; equal to High if there is none
	High   float64 `json:"high"`
	Spread string  `json:"spread,omitempty"` // "95 % CI", "range", "worst", …
	Goal   string  `json:"goal,omitempty"`
	Result string  `json:"result"` // met, MISS, unclear or -
	How    string  `json:"how"`
}

// judged fills in Result.
func (r Row) judged(met bool) Row {
	r.Result = verdictMiss
	if met {
		r.Result = verdictMet
	}
	return r
}

// reported marks a row without a goal.
func (r Row) reported() Row {
	r.Result = verdictNone
	return r
}

func (r Row) figure() string {
	text := number(r.Value) + " " + r.Unit
	if r.Spread != "" {
		text += fmt.Sprintf(" (%s %s … %s)", r.Spread, number(r.Low), number(r.High))
	}
	return text
}

// number shows about three significant figures.
func number(v float64) string {
	switch a := max(v, -v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// printTable prints the rows, then how each was measured.
func printTable(w io.Writer, rows []Row) {
	if len(rows) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "#\tWHAT\tFIGURE\tGOAL\tRESULT")
	for i, r := range rows {
		goal := r.Goal
		if goal == "" {
			goal = "-"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", i+1, r.What, r.figure(), goal, r.Result)
	}
	_ = t.Flush() // to standard output: nobody is left to tell
	fmt.Fprintln(w, "\nHow:")
	for i, r := range rows {
		fmt.Fprintf(w, "%3d  %s\n", i+1, r.How)
	}
}

func writeJSON(file string, rows []Row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
