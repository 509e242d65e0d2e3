package metrics

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLabelBytes cuts label values; names of Kubernetes' making reach 253 bytes,
// image references with a digest some 200.
const maxLabelBytes = 128

// clean makes a label value of a text that others wrote: valid UTF-8, without
// control characters, at most maxLabelBytes long, ending in "…" if cut.
func clean(s string) string {
	if len(s) > 4*maxLabelBytes {
		s = s[:4*maxLabelBytes] // bound the work below
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
	if len(s) <= maxLabelBytes {
		return s
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(s[:maxLabelBytes-len(ellipsis)], "") + ellipsis
}

// names gives each container a label of its own: its name, told apart by its key
// where two engines, or two cut names, share one.
type names map[string]bool

func (n names) unique(name, key string) string {
	label := clean(name)
	if label == "" || n[label] {
		label = clean(key)
	}
	n[label] = true
	return label
}
