package workload

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Step is one line of a job's own step log: "step=123 t=8154.012345 dt=0.0421".
type Step struct {
	N int64 // steps done, counted from 1
	// At is CLOCK_MONOTONIC, which containers share with the host; compare with Now.
	At time.Duration
	// Mean is the mean time per step since the line before.
	Mean time.Duration
}

// ParseStep reads a line of the step log; ok is false for any other line.
func ParseStep(line string) (s Step, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return Step{}, false
	}
	n, okN := value(fields[0], "step=")
	at, okT := seconds(fields[1], "t=")
	mean, okDt := seconds(fields[2], "dt=")
	if !okN || !okT || !okDt {
		return Step{}, false
	}
	count, err := strconv.ParseInt(n, 10, 64)
	if err != nil || count < 0 {
		return Step{}, false
	}
	return Step{N: count, At: at, Mean: mean}, true
}

func value(field, key string) (string, bool) { return strings.CutPrefix(field, key) }

// maxSeconds keeps a time within what a Duration holds.
const maxSeconds = 9e9

func seconds(field, key string) (time.Duration, bool) {
	text, ok := value(field, key)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f < maxSeconds) {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)), true
}

// Rate is the steps per second between from and to (CLOCK_MONOTONIC), from the
// first line at or after from to the last one at or before to, so that no part
// of a step is counted; n is the number of steps that it rests on. Fewer than
// two lines within the interval give 0, 0. Steps must be in the order printed.
func Rate(steps []Step, from, to time.Duration) (perSecond float64, n int) {
	var first, last *Step
	for i := range steps {
		s := &steps[i]
		if s.At < from || s.At > to {
			continue
		}
		if first == nil {
			first = s
		}
		last = s
	}
	if first == nil || last.At <= first.At {
		return 0, 0
	}
	n = int(last.N - first.N)
	return float64(n) / (last.At - first.At).Seconds(), n
}

// String gives the line back as the job printed it.
func (s Step) String() string {
	return fmt.Sprintf("step=%d t=%.6f dt=%.6f", s.N, s.At.Seconds(), s.Mean.Seconds())
}
