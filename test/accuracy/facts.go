package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// Facts are what is true of one recording, and no part of it: when which
// bottleneck stood, and the job's own count of its steps. Times are
// CLOCK_MONOTONIC, as in the recording.
type Facts struct {
	Job    string             `json:"job"`
	Phases []FactPhase        `json:"phases"`
	Steps  map[string][]Count `json:"steps,omitempty"` // by container name
}

// FactPhase is a phase as it took place.
type FactPhase struct {
	Name     string           `json:"name"`
	FromNs   int64            `json:"from"`
	ToNs     int64            `json:"to"`
	SettleNs int64            `json:"settle"`
	Truths   map[string]Truth `json:"truths"` // by container name
}

// Count says that a job had done N steps at an instant.
type Count struct {
	N    int64 `json:"n"`
	AtNs int64 `json:"at"`
}

// thinNs is how far apart the counts are that are kept: an interval of seconds
// is read between two of them, and interpolated.
const thinNs = int64(200 * time.Millisecond)

// thin keeps the counts that an interval can be read from.
func thin(steps []workload.Step) []Count {
	var out []Count
	for _, s := range steps {
		if n := len(out); n > 0 && int64(s.At)-out[n-1].AtNs < thinNs {
			continue
		}
		out = append(out, Count{N: s.N, AtNs: int64(s.At)})
	}
	return out
}

// stepsBetween is the number of steps in an interval, with the parts of steps at
// its ends; ok is false where the log does not reach over it.
func stepsBetween(counts []Count, fromNs, toNs int64) (steps float64, ok bool) {
	a, okA := countAt(counts, fromNs)
	b, okB := countAt(counts, toNs)
	return b - a, okA && okB && toNs > fromNs
}

func countAt(counts []Count, at int64) (float64, bool) {
	i := sort.Search(len(counts), func(i int) bool { return counts[i].AtNs >= at })
	if i == len(counts) || i == 0 && counts[0].AtNs != at {
		return 0, false
	}
	if counts[i].AtNs == at {
		return float64(counts[i].N), true
	}
	a, b := counts[i-1], counts[i]
	share := float64(at-a.AtNs) / float64(b.AtNs-a.AtNs)
	return float64(a.N) + share*float64(b.N-a.N), true
}

func (f Facts) write(path string) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readFacts(path string) (Facts, error) {
	var f Facts
	text, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
