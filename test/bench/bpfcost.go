package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// costTurn is how long the kernel's accounting is on at a time: it slows what it counts.
const costTurn = time.Second

// measureProgramCost accounts the run time of all BPF programs of the daemon, on
// whichever task they ran, against the job's CPU time in the same turns.
func measureProgramCost(ctx context.Context, daemonPID int, j *workload.Job, turns int) ([]Row, error) {
	usage, err := j.CPUUsage(ctx)
	if err != nil {
		return nil, err
	}
	if err := workload.Sleep(ctx, lossSettle); err != nil {
		return nil, err
	}
	var ofCPU, ofWall []float64
	for range turns {
		ns, used, wall, err := programTurn(ctx, daemonPID, usage)
		if err != nil {
			return nil, err
		}
		if ns == 0 || used <= 0 {
			return nil, fmt.Errorf("a turn of BPF accounting counted %s in programs and %s of the job's CPU", ns, used)
		}
		ofCPU = append(ofCPU, 100*ns.Seconds()/used.Seconds())
		ofWall = append(ofWall, 100*ns.Seconds()/wall.Seconds())
	}
	const how = "run time of all BPF programs that the daemon holds, on every task of the host, by the kernel's own accounting (bpf_stats), which itself adds to it; %d turns of %s beside the same job; without the traps of uprobes"
	row := func(what string, xs []float64) Row {
		return Row{What: what, Value: stats.Mean(xs), Unit: "%", Low: slices.Min(xs), High: slices.Max(xs), Spread: "range", Goal: "≤ 0.5 %",
			How: fmt.Sprintf(how, turns, costTurn)}.judged(stats.Mean(xs) <= maxLossPercent)
	}
	return []Row{row("computed cost, of the job's CPU time", ofCPU), row("computed cost, of one core's wall time", ofWall)}, nil
}

func programTurn(ctx context.Context, pid int, usage func() (time.Duration, error)) (ns, used, wall time.Duration, err error) {
	on, err := ebpf.EnableStats(0) // BPF_STATS_RUN_TIME
	if err != nil {
		return 0, 0, 0, fmt.Errorf("switch BPF accounting on: %w; needs Linux 5.8 and root", err)
	}
	defer joinClose(&err, on.Close)
	read := func() (ran, cpu time.Duration, at time.Time, err error) {
		ran, errP := programTime(pid)
		cpu, errU := usage()
		return ran, cpu, time.Now(), errors.Join(errP, errU)
	}
	ran0, cpu0, at0, err := read()
	if err != nil {
		return 0, 0, 0, err
	}
	if err := workload.Sleep(ctx, costTurn); err != nil {
		return 0, 0, 0, err
	}
	ran1, cpu1, at1, err := read()
	return ran1 - ran0, cpu1 - cpu0, at1.Sub(at0), err
}

// programTime sums the accounted run time of the programs that a process holds.
func programTime(pid int) (time.Duration, error) {
	ids, err := programIDs(pid)
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, fmt.Errorf("process %d holds no BPF programs: is the kernel probe off? See its log", pid)
	}
	var total time.Duration
	for _, id := range ids {
		prog, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return 0, fmt.Errorf("BPF program %d: %w", id, err)
		}
		stats, err := prog.Stats()
		if err := errors.Join(err, prog.Close()); err != nil {
			return 0, fmt.Errorf("BPF program %d: %w", id, err)
		}
		total += stats.Runtime
	}
	return total, nil
}

// programIDs finds the BPF programs behind a process's descriptors: of programs
// and of links.
func programIDs(pid int) ([]ebpf.ProgramID, error) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return nil, err
	}
	var ids []ebpf.ProgramID
	for _, info := range infos {
		file, err := os.Open(info)
		if err != nil {
			continue // closed since the listing
		}
		for sc := bufio.NewScanner(file); sc.Scan(); {
			text, ok := strings.CutPrefix(sc.Text(), "prog_id:")
			if !ok {
				continue
			}
			if id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32); err == nil {
				ids = append(ids, ebpf.ProgramID(id))
			}
		}
		_ = file.Close() // only read
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
