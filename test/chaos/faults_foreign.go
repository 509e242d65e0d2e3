package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// written is what an owner has just written.
type written struct {
	knob  runtime.Knob
	value runtime.Value
}

// foreignUpdate is an owner who changes a job's limit by docker update.
func foreignUpdate(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	j := w.some(r)
	if j == nil {
		return "no job", nil
	}
	next := j.record
	var flag string
	var set written
	switch r.IntN(3) {
	case 0:
		next.shares = 300 + r.Int64N(400)
		flag, set = "--cpu-shares="+strconv.FormatInt(next.shares, 10), written{runtime.KnobCPUWeight, runtime.IntValue(next.shares)}
	default:
		next.quota = 11001 + 7*r.Int64N(1000) // no value that trimtab would choose
		flag, set = "--cpu-quota="+strconv.FormatInt(next.quota, 10), written{runtime.KnobCPUQuota, runtime.Quota(next.quota, next.period)}
	}
	if j.cgroup.V1["cpu"] == "" && set.knob == runtime.KnobCPUWeight {
		set.value = "" // v2: converted by the runtime; taken as it stands
	}
	lost, err := w.own(j, set, func() error {
		_, err := w.docker(ctx, "update", flag, j.id)
		return err
	})
	if err == nil {
		j.record = next
	}
	return fmt.Sprintf("%s of %s, %d met one of trimtab's", flag, j.name, lost), err
}

// foreignWrite is somebody who writes a limit into the control group's file.
func foreignWrite(_ context.Context, w *world, r *rand.Rand) (string, error) {
	j := w.some(r)
	if j == nil {
		return "no job", nil
	}
	quota := 11003 + 7*r.Int64N(1000)
	file, text := filepath.Join(j.cgroup.Dir("cpu"), "cpu.cfs_quota_us"), strconv.FormatInt(quota, 10)
	if j.cgroup.V1["cpu"] == "" {
		file, text = filepath.Join(j.cgroup.Unified, "cpu.max"), text+" 100000"
	}
	lost, err := w.own(j, written{runtime.KnobCPUQuota, runtime.Quota(quota, j.record.period)}, func() error {
		return os.WriteFile(file, []byte(text), 0)
	})
	return fmt.Sprintf("quota %d of %s, %d met one of trimtab's", quota, j.name, lost), err
}

// some draws a job that may be changed.
func (w *world) some(r *rand.Rand) *job {
	all := w.tuned()
	if len(all) == 0 {
		return nil
	}
	return all[r.IntN(len(all))]
}

// Bounds of an owner's write.
const (
	ownTries = 5
	// ownSettles is how long a write of trimtab's that was under way may take to land.
	ownSettles = time.Second
	// ownLives is how long a job stays of which a knob is yielded: trimtab has little left
	// to do with it.
	ownLives = 20 * time.Second
)

// own writes as a job's owner, and notes it. A write that meets one of trimtab's, which was
// read before it and lands after it, is lost: runtimes have no compare-and-swap, and
// docs/limits.md says so. It is one where what stands is what trimtab was writing, or had
// just written. The owner then writes again; how many were lost is returned.
func (w *world) own(j *job, set written, write func() error) (lost int, err error) {
	for range ownTries {
		if err := write(); err != nil {
			return lost, err
		}
		stands := true
		for end := time.Now().Add(ownSettles); stands && time.Now().Before(end); time.Sleep(ownSettles / 10) {
			now, err := cgroup.ReadValues(j.cgroup)
			if err != nil {
				return lost, err
			}
			if set.value == "" {
				set.value = now[set.knob]
			}
			stands = set.knob.Same(set.value, now[set.knob])
			if files, err := w.files(); !stands && (err != nil || !files[j.id].Knobs[set.knob].Ours(set.knob, now[set.knob])) {
				return lost, nil // neither: the law of limits tells, by what the owner had
			}
		}
		j.owner[set.knob] = set.value
		if cpus, ok := set.value.CPUs(); ok {
			j.quota.Store(int64(1000 * cpus))
		}
		if stands {
			j.until = time.Now().Add(ownLives)
			return lost, nil
		}
		lost++
		w.lost++
	}
	return lost, nil // it stands against five writes: the law of originals tells
}
