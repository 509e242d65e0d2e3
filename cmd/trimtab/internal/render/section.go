package render

import (
	"fmt"
	"strings"
)

// partColumns are those of the words in a section's lines.
const partColumns = 32

// section is a part of what explain tells: a title, and indented lines below it.
type section struct {
	title string
	lines strings.Builder
}

// line sets words and what belongs to them side by side, where that is not "".
func (s *section) line(words, text string) {
	if text != "" {
		s.say("%-*s %s", partColumns, words, text)
	}
}

// say adds a line of free text.
func (s *section) say(format string, args ...any) { fmt.Fprintf(&s.lines, "  "+format+"\n", args...) }

// String is the section; "" where it has no lines.
func (s *section) String() string {
	if s.lines.Len() == 0 {
		return ""
	}
	return s.title + "\n" + s.lines.String()
}

// listed is a section of texts.
func listed(title string, texts []string) string {
	s := section{title: title}
	for _, text := range texts {
		s.say("%s", Clean(text))
	}
	return s.String()
}
