package render

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/api"
)

// Advice is the table of what only owners can change, and below it each with its reason and the
// lines to paste; in full also the numbers that it rests on. A line to paste is never cut.
func Advice(got api.Advice, full bool, clock Clock) string {
	if len(got.Advice) == 0 {
		return "nothing to advise: of no change that its owner could make do readings tell what it would give; `trimtab explain NAME` tells what would relieve a job\n"
	}
	columns := []column{{"NAME", 20, 10, true}, {"WHAT", 14, 14, false}, {"NOW", 16, 8, true}, {"ADVISED", 16, 8, true}, {"GIVES", 26, 18, false},
		{"A WEEK", 24, 12, false}, {"CONFIDENCE", 10, 10, false}, {"SINCE", 16, 5, false}}
	var rows [][]string
	for _, a := range got.Advice {
		rows = append(rows, adviceRow(a, clock))
	}
	var out strings.Builder
	out.WriteString(table(columns, rows))
	for _, a := range got.Advice {
		fmt.Fprintf(&out, "\n%s %s: %s\n", adviceOwner(a), Clean(string(a.What)), Clean(a.Text))
		for _, l := range a.Paste {
			fmt.Fprintf(&out, "  %-20s %s\n", Clean(l.For)+":", Clean(l.Text))
		}
		if len(a.Paste) == 0 {
			out.WriteString("  no line does it\n")
		}
		for _, e := range a.Evidence {
			if full {
				fmt.Fprintf(&out, "  %-42s %s (%s)\n", Clean(e.Name), quantity(e.Evidence), Clean(e.Source))
			}
		}
	}
	return out.String()
}

func adviceRow(a advice.Advice, clock Clock) []string {
	g, since := a.Gives, "-"
	if a.SinceUnixNs > 0 {
		since = clock.at(a.SinceUnixNs)
	}
	return []string{adviceOwner(a), Clean(string(a.What)), Clean(a.Current.String()), Clean(a.Advised.String()), percent(g.Share) + " of " + Clean(g.Of),
		fmt.Sprintf("%.0f h (%.0f to %.0f)", g.Hours, g.LowHours, g.HighHours), percent(a.Confidence), since}
}

// adviceOwner is the container, or the processes of the host.
func adviceOwner(a advice.Advice) string {
	if a.Key == "" {
		return hostHolder
	}
	return name(a.Container)
}
