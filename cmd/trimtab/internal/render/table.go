package render

import (
	"strings"
	"unicode/utf8"
)

// column is a table's column. To fit, columns first shrink to what is good to
// read, then names to their least, then all. A name loses its middle: names of
// one job differ at the end.
type column struct {
	title       string
	good, least int
	isName      bool
}

const gap = 2 // columns between two cells

// table lays out rows within Width; what a cell cannot hold becomes …
func table(columns []column, rows [][]string) string {
	widths := make([]int, len(columns))
	total := gap * (len(columns) - 1)
	for i, c := range columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i]
	}
	shrink(columns, widths, total-Width)
	var out strings.Builder
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, rows...) {
		writeRow(&out, columns, row, widths)
	}
	return out.String()
}

// shrink takes so many columns away, each from the widest that may still give.
func shrink(columns []column, widths []int, excess int) {
	for _, floor := range []func(column) int{
		func(c column) int { return c.good },
		func(c column) int {
			if c.isName {
				return c.least
			}
			return c.good
		},
		func(c column) int { return c.least },
	} {
		for excess > 0 {
			widest := -1
			for i, c := range columns {
				if widths[i] > floor(c) && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
			excess--
		}
	}
}

func writeRow(out *strings.Builder, columns []column, row []string, widths []int) {
	line := ""
	for i, cell := range row {
		if columns[i].isName {
			cell = ClipMiddle(cell, widths[i])
		} else {
			cell = clip(cell, widths[i])
		}
		line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap)
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
}
