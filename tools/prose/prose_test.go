package main

import (
	"slices"
	"testing"
)

func TestSentences(t *testing.T) {
	page := "# A title. Two\n\nOne `a b. c` two\nthree. See [a page](x.md). No number 3.5 ends it!\n\n- An item\n  goes on.\n- Another\n\n    code. here\n\n| a | b. |\n\n```\nfenced. text\n```\nThe end.\n"
	want := []string{"One code two three.", "See a page.", "No number 3.5 ends it!", "An item   goes on.", "Another", "The end."}
	if got := sentences(page); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n := words(want[2]); n != 5 {
		t.Errorf("%d words in %q", n, want[2])
	}
}
