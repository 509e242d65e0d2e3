package render

import (
	"strings"
	"unicode/utf8"
)

// column is a table's column; least is how narrow it may be made to fit. A name
// loses its middle: names of one job differ at the end.
type column struct {
	title  string
	least  int
	isName bool
}

const gap = 2 // columns between two cells

// table lays out rows within Width: the widest column that may still shrink gives
// first, and what it cannot hold ends in …
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
	for ; total > Width; total-- {
		if !shrinkWidest(columns, widths) {
			break
		}
	}
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

func shrinkWidest(columns []column, widths []int) bool {
	widest := -1
	for i, c := range columns {
		if widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
			widest = i
		}
	}
	if widest >= 0 {
		widths[widest]--
	}
	return widest >= 0
}

func writeRow(out *strings.Builder, columns []column, row []string, widths []int) {
	line := ""
	for i, cell := range row {
		if columns[i].isName {
			cell = clipMiddle(cell, widths[i])
		} else {
			cell = clip(cell, widths[i])
		}
		line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap)
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
}
