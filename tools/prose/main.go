// Command prose prints how long the sentences of each page are, in words: median, 90th percentile,
// longest. Headings and what stands between fences are left out, and a table's cells of few words,
// which are labels. Code without fences counts as text, as other counters take it. With -median and -p90 it fails where a page is above.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	median := flag.Float64("median", 0, "fail where a page's median is above; 0: never")
	p90 := flag.Int("p90", 0, "fail where a page's 90th percentile is above; 0: never")
	long := flag.Int("long", 0, "print sentences of more words; 0: none")
	flag.Parse()
	failed := false
	fmt.Printf("%-30s %9s %6s %4s %7s\n", "PAGE", "SENTENCES", "MEDIAN", "P90", "LONGEST")
	for _, pattern := range flag.Args() {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			fmt.Fprintf(os.Stderr, "prose: %s names no page\n", pattern)
			os.Exit(1)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				fmt.Fprintln(os.Stderr, "prose:", err)
				os.Exit(1)
			}
			all := sentences(string(text))
			if len(all) == 0 {
				continue
			}
			slices.SortFunc(all, func(a, b string) int { return words(a) - words(b) })
			middle, ninth, longest := figures(all)
			note := ""
			if *median > 0 && middle > *median || *p90 > 0 && ninth > *p90 {
				note, failed = "  too long", true
			}
			fmt.Printf("%-30s %9d %6g %4d %7d%s\n", page, len(all), middle, ninth, longest, note)
			for _, s := range all {
				if *long > 0 && words(s) > *long {
					fmt.Printf("    %d: %s\n", words(s), s)
				}
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}

// figures are the median, the 90th percentile and the greatest of the words in sentences, which
// are in order of these. The median of an even number lies between two; nine in ten have no more
// words than the percentile.
func figures(sorted []string) (median float64, p90, longest int) {
	n := len(sorted)
	at := func(i int) int { return words(sorted[i]) }
	return float64(at((n-1)/2)+at(n/2)) / 2, at((9*n+9)/10 - 1), at(n - 1)
}

// Patterns of Markdown.
//
//trimtab:table read only
var (
	link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	code = regexp.MustCompile("`[^`]*`")
	item = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
	stop = regexp.MustCompile(`[.!?]+(\s|` + "`" + `)`)
	end  = regexp.MustCompile(`[.!?][)”"'*]*(\s|$)`)
	word = regexp.MustCompile(`[\pL\pN]`)
)

// cellWords is how many words a cell of a table has at least that is text, and no label or figure.
const cellWords = 8

// sentences are those of a Markdown page's paragraphs, list items and cells of text, each as one line.
func sentences(page string) []string {
	var out []string
	var paragraph strings.Builder
	flush := func() {
		out = append(out, split(paragraph.String())...)
		paragraph.Reset()
	}
	fenced := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			flush()
			continue
		}
		if !fenced && strings.HasPrefix(trimmed, "|") {
			flush()
			for cell := range strings.SplitSeq(strings.ReplaceAll(trimmed, `\|`, " "), "|") {
				if words(cell) >= cellWords {
					paragraph.WriteString(cell)
					flush()
				}
			}
			continue
		}
		skip := fenced || trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "<!--")
		if skip || item.MatchString(line) {
			flush()
		}
		if !skip {
			paragraph.WriteString(item.ReplaceAllString(line, ""))
			paragraph.WriteByte(' ')
		}
	}
	flush()
	return out
}

// split cuts a paragraph into its sentences.
func split(paragraph string) (out []string) {
	text := link.ReplaceAllString(paragraph, "$1")
	text = code.ReplaceAllStringFunc(text, func(s string) string { // its words count, and end no sentence
		return stop.ReplaceAllString(s, "$1")
	})
	for from := 0; from < len(text); {
		to := len(text)
		if at := end.FindStringIndex(text[from:]); at != nil {
			to = from + at[1]
		}
		if s := strings.TrimSpace(text[from:to]); words(s) > 0 {
			out = append(out, s)
		}
		from = to
	}
	return out
}

// words counts what holds a letter or a digit.
func words(sentence string) int {
	n := 0
	for _, w := range strings.Fields(sentence) {
		if word.MatchString(w) {
			n++
		}
	}
	return n
}
