package crash

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tally counts kills by where they landed.
type tally struct {
	mu                                 sync.Mutex
	where                              map[string]int // last point passed
	rounds, dirty, kills               int
	acting, recovering, restoring, off int // kills by what was killed; off: restores that ended before
}

func (y *tally) begin(want int) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.rounds++
	return y.kills < want
}

func (y *tally) add(change func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	change()
}

func (y *tally) report(t *testing.T, want int) {
	// Points after which a write is under way until the next one is passed.
	inEngineWrite, inDurableWrite := []string{"apply.before"}, []string{"save.before", "store.temp.before", "store.rename.before", "store.remove.before", "record.before"}
	engine, durable := 0, 0
	var lines []string
	for point, n := range y.where {
		lines = append(lines, fmt.Sprintf("%s %d", point, n))
		if slices.Contains(inEngineWrite, point) {
			engine += n
		}
		if slices.Contains(inDurableWrite, point) {
			durable += n
		}
	}
	slices.Sort(lines)
	t.Logf("%d kills in %d rounds: %d acting, %d recovering as at a start, %d in trimtab restore --offline (%d more ended before); %d landed inside an engine's write, %d inside a durable one; %d rounds found values of trimtab's standing",
		y.kills, y.rounds-workers, y.acting, y.recovering, y.restoring, y.off, engine, durable, y.dirty)
	t.Logf("last point passed: %s", strings.Join(lines, ", "))
	if t.Failed() || want < 100 {
		return
	}
	if engine < want/20 || durable < want/20 || y.dirty < y.rounds/3 || y.restoring < want/40 || y.recovering < want/40 {
		t.Error("too few kills landed where they could harm: nothing is proved")
	}
}
