// Command pictures draws what docs/decisions.md shows, from recordings of real jobs. The same
// recordings and code give the same bytes.
//
//	go run ./tools/pictures -o docs
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const recordings = "cmd/trimtab/testdata/recordings"

func main() {
	out := flag.String("o", "docs", "the `DIR` to write the pictures to")
	flag.Parse()
	if err := write(recordings, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func write(from, to string) error {
	for _, p := range pictures() {
		svg, err := p.draw(filepath.Join(from, p.recording))
		if err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := os.WriteFile(filepath.Join(to, p.file), []byte(svg), 0o644); err != nil { //nolint:gosec // a page's picture is for all
			return err
		}
	}
	return nil
}

// picture is one file of docs.
type picture struct {
	file, recording string
	draw            func(recording string) (string, error)
}

func pictures() []picture {
	return []picture{
		{"decision-loan.svg", "zoo-vision.trimtab", drawLoan("zoo-vision", "A loan, and what it does to the rate")},
		{"decision-recall.svg", "neighbour-another-slice.trimtab", drawRecall("fairness-borrower", "fairness-other0", "A loan that a neighbour calls in")},
		{"decision-kept.svg", "trial-kept.trimtab", drawTrial("acc-starved", "A trial that is kept")},
		{"decision-inconclusive.svg", "trial-inconclusive.trimtab", drawTrial("acc-inline-contended", "A trial that is inconclusive, and reverted")},
		{"decision-step.svg", "starved.trimtab", drawStep("acc-starved", "Where a step's time goes, before and after a loan")},
	}
}
