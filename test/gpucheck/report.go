package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// markdown is the page that is kept: the table, and where all else is.
func (r *report) markdown(logName string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	if r.virtual {
		b.WriteString("**On the virtual GPU: this says nothing about a real device.**\n\n")
	}
	if r.short {
		b.WriteString("A short run: its figures are of no worth.\n\n")
	}
	for _, line := range r.machine[:min(len(r.machine), pageMachine)] {
		fmt.Fprintf(&b, "- %s\n", cell(line))
	}
	b.WriteString("\n| | part | what | another witness | trimtab |\n|---|---|---|---|---|\n")
	shown, left := r.onPage()
	for _, row := range shown {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.mark, row.part, cell(row.what), cell(row.witness), cell(row.trimtab))
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%d rows more are in the log.\n", left)
	}
	fmt.Fprintf(&b, "\n%s\n\nAll that it printed is in %s.\n", r.verdict(), logName)
	return b.String()
}

const (
	// What one page holds, to be pasted into an issue: rows, and characters of a cell.
	pageRows, pageCell = 80, 160
	// pageMachine is how many lines say what machine it is.
	pageMachine = 20
)

// onPage are the rows of the page, in order: where there are too many, problems before what is well.
func (r *report) onPage() (shown []row, left int) {
	room := pageRows - min(r.problems(), pageRows)
	for _, row := range r.rows {
		switch {
		case row.mark == bad && len(shown) < pageRows:
			shown = append(shown, row)
		case row.mark != bad && room > 0:
			shown, room = append(shown, row), room-1
		default:
			left++
		}
	}
	return shown, left
}

func cell(s string) string {
	s = strings.ReplaceAll(s, "\n", " ")
	if runes := []rune(s); len(runes) > pageCell {
		s = string(runes[:pageCell-1]) + "…"
	}
	return strings.ReplaceAll(s, "|", `\|`)
}

// logOf is the file beside a report that has all that was printed.
func logOf(report string) string { return strings.TrimSuffix(report, filepath.Ext(report)) + ".log" }

// keep writes the page and the log.
func (r *report) keep(file string) error {
	return errors.Join(os.WriteFile(logOf(file), []byte(r.text.String()), 0o644), os.WriteFile(file, []byte(r.markdown(filepath.Base(logOf(file)))), 0o644))
}
