package uprobe

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestOldProblemsMakeRoom: so many are remembered of a container, and those of long ago hide none that is new.
func TestOldProblemsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProblems()
		for i := range maxProblems {
			p.add("a", "libraries", fmt.Errorf("problem %d", i))
		}
		p.add("a", "libraries", errors.New("one more"))
		if got := p.of("a"); len(got) != maxProblems || slices.Contains(got, "libraries: one more") {
			t.Errorf("%q", got)
		}
		time.Sleep(problemLasts)
		p.add("a", "libraries", errors.New("one more"))
		if got := p.of("a"); !slices.Equal(got, []string{"libraries: one more"}) {
			t.Errorf("a while later: %q", got)
		}
	})
}
