package top

import (
	"strings"
	"unicode"

	"github.com/clipperhouse/displaywidth"

	"github.com/trimtab/trimtab/policies"
)

// Style says what a cell is; the terminal's side chooses how that looks. All that styles tell
// is told by characters too, so a frame can be read without any.
type Style uint8

// Styles. From StylePart on they are the parts of a breakdown, see PartStyle.
const (
	StylePlain Style = iota
	StyleTitle
	StyleHeader   // of a table
	StyleSorted   // the column that the table is sorted by
	StyleSelected // the row that keys act on
	StyleFaint    // old, or of less weight
	StyleAlarm
	StylePart
)

// PartStyle is the style of a part of the breakdown.
func PartStyle(p policies.Part) Style { return StylePart + Style(p) }

// Cell is one column of one line. Rune is 0 in the right half of a wide character, and
// otherwise one that every terminal shows in one column, or two where Wide is set.
type Cell struct {
	Rune  rune
	Wide  bool
	Style Style
}

// Frame is what the terminal is to show. Nothing but text that was cut into cells gets in.
type Frame struct {
	Width, Height int
	Cells         []Cell // line by line
}

func newFrame(width, height int) *Frame {
	f := &Frame{Width: width, Height: height, Cells: make([]Cell, width*height)}
	for i := range f.Cells {
		f.Cells[i].Rune = ' '
	}
	return f
}

// At is the cell of a column and a line, both from 0 and within the frame.
func (f *Frame) At(x, y int) Cell { return f.Cells[y*f.Width+x] }

// String is the frame as plain text, each line without its trailing spaces.
func (f *Frame) String() string {
	var out strings.Builder
	line := make([]rune, 0, f.Width)
	for y := range f.Height {
		line = line[:0]
		for _, c := range f.Cells[y*f.Width : (y+1)*f.Width] {
			if c.Rune != 0 {
				line = append(line, c.Rune)
			}
		}
		out.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return out.String()
}

// text writes s from column x on, in at most so many columns; what does not fit becomes "…".
// It returns the first column behind. Outside of the frame nothing is written.
func (f *Frame) text(x, y, columns int, s string, style Style) int {
	if y < 0 || y >= f.Height || x < 0 {
		return x
	}
	end := min(x+columns, f.Width)
	for s, fits := s, textFits(s, end-x); s != ""; {
		r, width, rest := nextRune(s)
		if !fits && x+width > end-1 {
			if x < end {
				f.put(x, y, '…', 1, style)
				x++
			}
			break
		}
		f.put(x, y, r, width, style)
		x, s = x+width, rest
	}
	return x
}

// row writes cells beside each other in columns of these widths; what is more than these has the
// rest of the line, and a cell of no width is left out.
func (f *Frame) row(y int, style Style, widths []int, cells ...string) {
	x := 0
	for i, cell := range cells {
		columns := f.Width - x
		if i < len(widths) {
			columns = widths[i]
		}
		if columns > 0 {
			f.text(x, y, columns, cell, style)
			x += columns + 1
		}
	}
}

// put writes one character that fits. What it leaves of wide ones becomes blank.
func (f *Frame) put(x, y int, r rune, width int, style Style) {
	line := f.Cells[y*f.Width : (y+1)*f.Width]
	if line[x].Rune == 0 && x > 0 {
		line[x-1] = Cell{Rune: ' ', Style: line[x-1].Style}
	}
	if last := x + width - 1; line[last].Wide {
		line[last+1] = Cell{Rune: ' ', Style: line[last+1].Style}
	}
	line[x] = Cell{r, width == 2, style}
	if width == 2 {
		line[x+1] = Cell{0, false, style}
	}
}

// paint gives a line a style, whatever is written there.
func (f *Frame) paint(y int, style Style) {
	if y < 0 || y >= f.Height {
		return
	}
	for x := range f.Width {
		f.Cells[y*f.Width+x].Style = style
	}
}

// textFits reports whether a text takes no more than so many columns; it reads no more of it
// than it must.
func textFits(s string, columns int) bool {
	for s != "" {
		_, width, rest := nextRune(s)
		if columns -= width; columns < 0 {
			return false
		}
		s = rest
	}
	return true
}

// nextRune is a text's first character as it is shown, its columns, and the rest.
func nextRune(s string) (r rune, columns int, rest string) {
	for i, next := range s {
		if i > 0 {
			return r, columns, s[i:]
		}
		r, columns = shown(next)
	}
	return r, columns, ""
}

// shown is how a character is shown, and in how many columns. Terminals disagree on how many
// columns emoji, marks and letters that join take, and turn the direction of some: all but
// those on which they agree become "?".
func shown(r rune) (rune, int) {
	const signs = "←→↑↓≈≥≤…·°×±µ–—─│█"
	switch {
	case r >= ' ' && r <= '~':
		return r, 1
	case strings.ContainsRune(signs, r):
		return r, 1
	case r >= 0xac00 && r <= 0xd7a3: // Hangul syllables; their parts join
		return r, 2
	case !unicode.IsLetter(r):
	case unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Han, unicode.Hiragana, unicode.Katakana):
		if width := displaywidth.Rune(r); width == 1 || width == 2 {
			return r, width
		}
	}
	return '?', 1
}
