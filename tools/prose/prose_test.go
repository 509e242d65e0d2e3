package main

import (
	"slices"
	"testing"
)

func TestSentences(t *testing.T) {
	page := "# A title. Two\n\nOne `a b. c` two\nthree. See [a page](x.md). No number 3.5 ends it!\n\n- An item\n  goes on.\n- Another\n\n" +
		"| a | b. |\n|---|---|\n| c | A cell of eight words or more counts. All of it. |\n\n```\nfenced. text\n\n    more\n```\n**Bold.** The end of `x.`; not yet: here.\n"
	want := []string{"One `a b c` two three.", "See a page.", "No number 3.5 ends it!", "An item   goes on.", "Another", "A cell of eight words or more counts.", "All of it.", "**Bold.**", "The end of `x`; not yet: here."}
	if got := sentences(page); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for i, n := range []int{6, 3, 5} {
		if got := words(want[i]); got != n {
			t.Errorf("%d words in %q, want %d", got, want[i], n)
		}
	}
}

// TestUnfenced: code without fences makes a page's sentences long, here as with other counters.
func TestUnfenced(t *testing.T) {
	if got, want := sentences("It prints:\n\n    $ a b\n    c d e\n\nThe end."), []string{"It prints:", "$ a b     c d e", "The end."}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestFigures(t *testing.T) {
	of := func(lengths ...int) (all []string) {
		for _, n := range lengths {
			s := ""
			for range n {
				s += "a "
			}
			all = append(all, s)
		}
		return all
	}
	for _, c := range []struct {
		all          []string
		median       float64
		p90, longest int
	}{
		{of(7), 7, 7, 7},
		{of(1, 2), 1.5, 2, 2},
		{of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 5.5, 9, 10},
		{of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 6, 10, 11},
	} {
		if median, p90, longest := figures(c.all); median != c.median || p90 != c.p90 || longest != c.longest {
			t.Errorf("of %d sentences: %v, %d, %d; want %v, %d, %d", len(c.all), median, p90, longest, c.median, c.p90, c.longest)
		}
	}
}
