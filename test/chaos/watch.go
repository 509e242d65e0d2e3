package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// Times of the watch, which runs beside the faults.
const (
	ticksEvery  = 250 * time.Millisecond
	rightsEvery = time.Second
	askLimit    = 3 * time.Second
	userHz      = 100 // of /proc/stat, on all that Linux runs on
)

// watch holds ticks and rights against their laws until ctx ends.
type watch struct {
	w          *world
	lastLook   time.Time
	late       time.Duration // the harness's own delay, the largest of late
	lateAt     time.Time
	answered   time.Time
	broken     bool // and told
	rights     rights
	usedBefore map[string]time.Duration
	idleBefore time.Duration
	rightsAt   time.Time
	age        time.Duration // the oldest tick seen of a daemon that was ready
	looks      int
	waits      workload.Waits // of the daemon's threads
}

func (x *watch) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(ticksEvery):
		}
		now := time.Now()
		if late := now.Sub(x.lastLook) - ticksEvery; !x.lastLook.IsZero() && (late > x.late || now.Sub(x.lateAt) > 2*maxTickAge) {
			x.late, x.lateAt = late, now
		}
		x.ticks(ctx)
		if time.Since(x.rightsAt) >= rightsEvery {
			x.judgeRights()
		}
		x.lastLook = time.Now()
	}
}

// ticks asks the daemon how old its latest tick is: at least, since its answer may be newer
// than the question.
func (x *watch) ticks(ctx context.Context) {
	since := x.w.upSince.Load()
	if since == 0 {
		x.answered, x.broken, x.waits = time.Time{}, false, workload.Waits{}
		return
	}
	asked := time.Now()
	if x.answered.IsZero() {
		x.answered = asked
	}
	call, cancel := context.WithTimeout(ctx, askLimit)
	s, err := x.w.daemon.Client().Status(call)
	cancel()
	if ctx.Err() != nil || x.w.upSince.Load() != since { // it was killed meanwhile
		return
	}
	r := tickReading{up: time.Duration(x.w.now() - since), age: asked.Sub(x.answered), late: x.late, stepped: time.Duration(x.w.now() - x.w.stepped.Load())}
	if err == nil {
		x.answered = time.Now()
		r.age = asked.Sub(time.Unix(0, s.UnixNs))
	}
	r.starved = x.waits.Since(int(x.w.pid.Load()), asked.Add(-r.age))
	if r.up >= readyAfter && r.stepped > maxTickAge {
		x.looks++
		x.age = max(x.age, r.age)
	}
	if !r.broken() {
		x.broken = false
		return
	}
	if !x.broken {
		x.w.violate(int(x.w.step.Load()), []breach{{lawTicks, "daemon", fmt.Sprintf("its latest tick is %s old, it has been up for %s (error: %v), of which a thread of it waited %s for a CPU; the harness was late by %s; pressure of CPUs: %s",
			r.age.Round(time.Millisecond), r.up.Round(time.Second), err, r.starved.Round(time.Millisecond), r.late.Round(time.Millisecond), pressure())}})
	}
	x.broken = true
}

// pressure is the first line of the kernel's word on CPUs; "unknown" without PSI.
func pressure() string {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// judgeRights reads what each container used since the last time.
func (x *watch) judgeRights() {
	now, idle := time.Now(), idleTime()
	length := now.Sub(x.rightsAt)
	used := map[string]time.Duration{}
	r := rightsReading{length: length, cpus: cpus(), idle: (idle - x.idleBefore).Seconds() / length.Seconds()}
	complete := x.usedBefore != nil
	for _, j := range x.w.all() {
		t, err := workload.CPUUsed(j.cgroup)
		if err != nil {
			complete = false // it is going away
			continue
		}
		used[j.id] = t
		before, known := x.usedBefore[j.id]
		complete = complete && known
		r.shares = append(r.shares, share{name: j.name, quota: float64(j.quota.Load()) / 1000, used: (t - before).Seconds() / length.Seconds(), wants: j.spins})
	}
	x.usedBefore, x.idleBefore, x.rightsAt = used, idle, now
	switch {
	case !complete:
	case x.w.upSince.Load() == 0 || x.w.now() < x.w.quiet.Load() || x.late > stalled:
		x.rights.since = nil // who calls loans in is away
		x.rights.unsure += length
	default:
		x.w.violate(int(x.w.step.Load()), x.rights.next(r))
	}
}

// idleTime is what all CPUs have idled so far.
func idleTime() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const idle, iowait = 4, 5
	if len(fields) <= iowait {
		return 0
	}
	var sum int64
	for _, i := range []int{idle, iowait} {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		sum += n
	}
	return time.Duration(sum) * time.Second / userHz
}
