package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/tuner/recording"
)

// launchesSeen is what the daemon's probe read over a stretch of ticks.
type launchesSeen struct {
	share float64 // of the time in which launches were counted, percent
	rate  float64 // launches/s while they were
}

// countedLaunches reads from the flight recorder, which has every tick, how much of
// the stretch up to now the launches were counted: whichever guard took the hook off.
func countedLaunches(d *daemontest.Daemon, stretch time.Duration) (launchesSeen, error) {
	segments, err := recording.List(filepath.Join(d.Dir, "state", "flight"))
	if err != nil {
		return launchesSeen{}, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(recording.Join(w, recording.LastRun(segments))) }()
	defer r.Close()
	reader, err := recording.NewReader(r)
	if err != nil {
		return launchesSeen{}, err
	}
	defer reader.Close()
	var all []launchTick
	for {
		kind, data, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return seenOf(all, stretch)
		}
		if err != nil {
			return launchesSeen{}, err
		}
		if kind != "tick" {
			continue
		}
		if tick, ok, err := parseTick(data); err != nil {
			return launchesSeen{}, err
		} else if ok {
			all = append(all, tick)
		}
	}
}

// launchTick is one reading of the only process that launches.
type launchTick struct {
	atNs, countedNs int64
	launches        uint64
}

func parseTick(data []byte) (launchTick, bool, error) {
	var in struct {
		Host    probes.Host     `json:"host"`
		Samples []probes.Sample `json:"samples"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return launchTick{}, false, fmt.Errorf("flight recorder: a tick: %w", err)
	}
	for _, s := range in.Samples {
		if s.CUDA != nil && len(s.CUDA.Processes) == 1 {
			p := s.CUDA.Processes[0]
			return launchTick{in.Host.AtNs, int64(p.LaunchNs), p.Launches}, true, nil
		}
	}
	return launchTick{}, false, nil
}

func seenOf(all []launchTick, stretch time.Duration) (launchesSeen, error) {
	if len(all) == 0 {
		return launchesSeen{}, errors.New("the flight recorder holds no reading of launches")
	}
	last := all[len(all)-1]
	first := last
	for i := len(all) - 1; i >= 0 && last.atNs-all[i].atNs <= stretch.Nanoseconds(); i-- {
		first = all[i]
	}
	if last.atNs == first.atNs {
		return launchesSeen{}, errors.New("the flight recorder holds one reading of launches only")
	}
	var out launchesSeen
	counted := last.countedNs - first.countedNs
	out.share = 100 * float64(counted) / float64(last.atNs-first.atNs)
	if counted > 0 {
		out.rate = float64(last.launches-first.launches) / (float64(counted) / 1e9)
	}
	return out, nil
}
