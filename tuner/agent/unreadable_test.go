package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestUnreadableOriginalsStopWritesAlone: a container whose originals cannot be read is written to no
// more. It counts with what stands all the same, also for a daemon that never read them.
func TestUnreadableOriginalsStopWritesAlone(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a settled loan", isSettled)
		if err := os.WriteFile(filepath.Join(n.dir, c.Key()+".json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		byHand := runtime.Value("70000 100000")
		n.engine.ForeignWrite(c.ID.Container, runtime.Values{runtime.KnobCPUQuota: byHand})
		told := func(s state.Container) bool {
			return strings.Contains(s.Pending, "corrupt") && s.Now[runtime.KnobCPUQuota] == byHand
		}
		if s := d.until("train", "what stands, and why nothing is written", told); s.Original[runtime.KnobCPUQuota] != starvedQuota {
			t.Errorf("original %q, want the one that was read before", s.Original[runtime.KnobCPUQuota])
		}
		time.Sleep(time.Minute)
		d.end()
		writes := len(n.engine.Applied())
		next := n.start(nil)
		next.until("train", "the same after a crash", told)
		next.end()
		if all := n.engine.Applied(); len(all) != writes {
			t.Errorf("written: %+v", all[writes:])
		}
		n.wantQuota(c, byHand, "at the end")
		if said := strings.Count(n.log.String(), "its values are changed no more"); said != 2 {
			t.Errorf("said %d times by two daemons\n%s", said, n.log)
		}
	})
}
