package vm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// Files that are read round and round, from a disk that needs minutes for one round.
const (
	epochFilesMiB = 150
	epochLimitMiB = 60
	epochSeconds  = 150 // at one MiB a second
)

// epochs: memory that nobody uses is lent within the first round, kept until all of the files
// are in it, and settles to them. A guest is where that can be seen: a host may page out what
// nobody touches for a minute, as ours does.
func epochs(t *testing.T, m *machine) {
	m.sh(t, fmt.Sprintf(`docker run -d --name epochs --network none --label trimtab.mode=tune --label trimtab.knobs=memory --memory %dm --memory-swap %dm \
	--device-read-bps $(findmnt -n -o SOURCE /):1mb job-image sh -c '
n=0; while [ $n -lt %d ]; do n=$((n+1)); head -c 5242880 /dev/zero >/tmp/$n; done
while :; do cat /tmp/* >/dev/null; echo round; done'`, epochLimitMiB, epochLimitMiB, epochFilesMiB/5))
	defer m.sh(t, "docker rm -f epochs")
	began := time.Now()
	m.untilContainer(t, "epochs", "memory beyond its owner's limit", func(c view.Container) bool { return slices.Contains(c.Changed, runtime.KnobMemoryLimit) })
	lent := time.Since(began)
	rounds := func() float64 { return m.number(t, "docker logs epochs | wc -l") }
	fit := func(c view.Container) bool {
		mib := c.MemoryUse.Limit / (1 << 20)
		return mib >= epochFilesMiB && mib <= 1.5*epochFilesMiB
	}
	for {
		c := m.container(t, "epochs")
		took := time.Since(began).Seconds()
		if took > 4*epochSeconds { // patience is less than two rounds
			t.Fatalf("after %.0f s its limit is %.0f MiB for %d MiB of files, after %.0f rounds: %s\n%+v", took, c.MemoryUse.Limit/(1<<20), epochFilesMiB, rounds(), c.WhyNot, c.MemoryUse)
		}
		if !fit(c) {
			time.Sleep(time.Second)
			continue
		}
		before := rounds()
		time.Sleep(epochSeconds / 5 * time.Second)
		after := rounds()
		t.Logf("lent after %.0f s, settled to %.0f MiB after %.0f s; then %.0f rounds in %d s, of which each took %d s", lent.Seconds(), c.MemoryUse.Limit/(1<<20), took, after-before, epochSeconds/5, epochSeconds)
		if after-before >= 5 && fit(m.container(t, "epochs")) {
			return
		}
	}
}
