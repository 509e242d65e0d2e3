// Command prose prints how long the sentences of each page are, in words: median, 90th percentile,
// longest. Tables, code and headings are left out. With -max it fails where a page is above.
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
	median := flag.Int("median", 0, "fail where a page's median is above; 0: never")
	p90 := flag.Int("p90", 0, "fail where a page's 90th percentile is above; 0: never")
	long := flag.Int("long", 0, "print sentences of more words; 0: none")
	flag.Parse()
	failed := false
	fmt.Printf("%-28s %9s %6s %4s %7s\n", "PAGE", "SENTENCES", "MEDIAN", "P90", "LONGEST")
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
			at := func(share float64) int { return words(all[int(share*float64(len(all)-1))]) }
			note := ""
			if *median > 0 && at(0.5) > *median || *p90 > 0 && at(0.9) > *p90 {
				note, failed = "  too long", true
			}
			fmt.Printf("%-28s %9d %6d %4d %7d%s\n", page, len(all), at(0.5), at(0.9), at(1), note)
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

// Patterns of Markdown.
//
//trimtab:table read only
var (
	link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	code = regexp.MustCompile("`[^`]*`")
	item = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
	end  = regexp.MustCompile(`[.!?][)”"']*(\s|$)`)
	word = regexp.MustCompile(`[\pL\pN]`)
)

// sentences are those of a Markdown page's paragraphs and list items, each as one line.
func sentences(page string) []string {
	var out []string
	var paragraph strings.Builder
	flush := func() {
		text := link.ReplaceAllString(paragraph.String(), "$1")
		text = code.ReplaceAllString(text, "code") // one word, whatever stands in it
		paragraph.Reset()
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
		skip := fenced || trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "<") ||
			strings.HasPrefix(line, "    ") && paragraph.Len() == 0
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
