package e2e

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestCheckpointsTooOftenAreAdvised: of a real PyTorch job that saves each 200 steps it is told how often it
// does, what each costs and how often would do.
func TestCheckpointsTooOftenAreAdvised(t *testing.T) {
	const each = 200
	j := started(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-checkpoints", os.Getpid()), Script: "checkpoints.py",
		Args: []string{"--each", fmt.Sprint(each)}, DockerArgs: []string{"--network", "none", "--label", "trimtab.mode=observe"}})
	d := daemon(t, daemontest.Options{})
	c := until(t, d, j.Name, "pauses that tell", func(c state.Container) bool { return c.Pauses.Cycles >= 5 })
	steps := j.Steps()
	steps = steps[max(0, len(steps)-5*each):] // as the job's own lines say: a step that saved took longer
	whole, plain, saves := 0.0, 0.0, 0.0
	for _, s := range steps {
		if whole += s.Mean.Seconds(); s.N%each == 0 {
			saves++
		} else {
			plain += s.Mean.Seconds()
		}
	}
	usual := plain / (float64(len(steps)) - saves)
	every, lost := whole/saves, (whole-usual*float64(len(steps)))/saves
	t.Logf("told %+v; by its lines each %.2f s, of which %.2f s", c.Pauses, every, lost)
	if p := c.Pauses; math.Abs(p.EverySeconds/every-1) > 0.2 || p.LowSeconds > lost*1.2 || p.HighSeconds < lost*0.8 || p.Bytes < 60<<20 || p.Bytes > 80<<20 {
		t.Errorf("told %+v; by its lines each %.2f s, of which %.2f s", p, every, lost)
	}
	text, err := d.Run(t.Context(), "advice", j.Name)
	if err != nil || !strings.Contains(text, "job.checkpoints") {
		t.Errorf("%v\n%s", err, text)
	}
	t.Log(text)
}
