package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// mark is what a row says of what was checked.
type mark string

// The marks. A note is a finding that has no right or wrong.
const (
	good mark = "ok"
	bad  mark = "PROBLEM"
	note mark = "-"
)

// row is one finding: what another witness says, and what trimtab says.
type row struct {
	mark                         mark
	part, what, witness, trimtab string
}

// report gathers findings; it prints each at once, and all at the end.
type report struct {
	virtual, short bool
	out            io.Writer
	machine        []string
	rows           []row
	left           []string // parts that were not asked for
	text           strings.Builder
}

// say prints and keeps a line for the Markdown report.
func (r *report) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	fmt.Fprintln(r.out, line)
	r.text.WriteString(line + "\n")
}

func (r *report) section(title string) {
	fmt.Fprintf(r.out, "\n== %s%s\n", title, map[bool]string{true: " (VIRTUAL GPU)"}[r.virtual])
	fmt.Fprintf(&r.text, "\n== %s\n", title)
}

func (r *report) row(m mark, part, what, witness, trimtab string) {
	r.rows = append(r.rows, row{m, part, what, witness, trimtab})
	r.say("%-8s %s: %s", m, what, strings.Join(nonEmpty(witness, trimtab), "; trimtab: "))
}

// judge adds a row that is ok or a problem.
func (r *report) judge(ok bool, part, what, witness, trimtab string) {
	m := bad
	if ok {
		m = good
	}
	r.row(m, part, what, witness, trimtab)
}

func nonEmpty(all ...string) (out []string) {
	for _, s := range all {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

func (r *report) problems() (n int) {
	for _, row := range r.rows {
		if row.mark == bad {
			n++
		}
	}
	return n
}

// verdict is the last line.
func (r *report) verdict() string {
	line := "gpu-check: ok"
	if n := r.problems(); n > 0 {
		line = fmt.Sprintf("gpu-check: %d problems", n)
	}
	if len(r.left) > 0 {
		line += " (left out: " + strings.Join(r.left, ", ") + ")"
	}
	if r.virtual {
		line += " - on the VIRTUAL GPU, no real device was touched"
	}
	return line
}

// finish prints the table and returns the number of problems.
func (r *report) finish() int {
	fmt.Fprintf(r.out, "\n%-8s %-9s %-44s %-34s %s\n", "", "PART", "WHAT", "ANOTHER WITNESS", "TRIMTAB")
	for _, row := range r.rows {
		fmt.Fprintf(r.out, "%-8s %-9s %-44s %-34s %s\n", row.mark, row.part, row.what, row.witness, row.trimtab)
	}
	fmt.Fprintln(r.out, r.verdict())
	return r.problems()
}

// markdown is the report that is kept.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	if r.virtual {
		b.WriteString("**On the virtual GPU: this says nothing about a real device.**\n\n")
	}
	if r.short {
		b.WriteString("A short run: its figures are of no worth.\n\n")
	}
	for _, line := range r.machine {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n| | part | what | another witness | trimtab |\n|---|---|---|---|---|\n")
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.mark, row.part, cell(row.what), cell(row.witness), cell(row.trimtab))
	}
	fmt.Fprintf(&b, "\n%s\n\nAll that it printed:\n\n```\n%s```\n", r.verdict(), r.text.String())
	return b.String()
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s)
}
