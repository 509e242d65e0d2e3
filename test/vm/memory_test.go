package vm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
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
	defer m.saysWhy(t, "epochs")
	began := time.Now()
	m.untilContainer(t, "epochs", "memory beyond its owner's limit", func(c state.Container) bool { return slices.Contains(c.Changed, runtime.KnobMemoryLimit) })
	lent := time.Since(began)
	c := state.Container{}
	for !c.MemoryUse.Read || c.MemoryUse.Limit > 1.5*epochFilesMiB*(1<<20) { // patience is less than two rounds
		if time.Since(began) > 4*epochSeconds*time.Second {
			t.Fatalf("after %.0f s its limit is %.0f MiB: %s\n%+v", time.Since(began).Seconds(), c.MemoryUse.Limit/(1<<20), c.WhyNot, c.MemoryUse)
		}
		time.Sleep(time.Second)
		c = m.container(t, "epochs")
	}
	settled := time.Since(began)
	if c.MemoryUse.Limit < epochFilesMiB<<20 {
		t.Errorf("%.0f MiB stand for %d MiB of files", c.MemoryUse.Limit/(1<<20), epochFilesMiB)
	}
	rounds := func() float64 { return m.number(t, "docker logs epochs | wc -l") }
	before := rounds()
	for began = time.Now(); rounds() < before+5; time.Sleep(time.Second) {
		if time.Since(began) > 2*epochSeconds*time.Second { // of five the disk alone would make so few
			t.Fatalf("%.0f rounds in %.0f s after %.0f, of which each took %d s\n%+v\nnow %+v", rounds()-before, time.Since(began).Seconds(), before, epochSeconds, c.MemoryUse, m.container(t, "epochs").MemoryUse)
		}
	}
	t.Logf("lent after %.0f s, settled to %.0f MiB after %.0f s; then 5 rounds in %.0f s, of which each took %d s", lent.Seconds(), c.MemoryUse.Limit/(1<<20),
		settled.Seconds(), time.Since(began).Seconds(), epochSeconds)
}
