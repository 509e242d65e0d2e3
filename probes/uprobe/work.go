package uprobe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// maxWorks run at once, those that are stuck aside.
	maxWorks = 64
	// stuckAfter is when a work counts as stuck: on a disk or a server that does not answer.
	stuckAfter = 5 * time.Second
	// maxStuck bounds the threads that hang in the kernel: each holds one.
	maxStuck = 512
	// lookShare is a container's share of one CPU, and of a disk, beyond which no process of
	// it is looked at. lookCredit it may take at once: a first look reads all libraries.
	lookShare  = 0.1
	lookCredit = 2 * time.Second
	// maxDebt is what a work is charged at the most, so that a container is looked at
	// again within a minute after a disk answered late.
	maxDebt = 6 * time.Second
)

var errStuck = fmt.Errorf("reading its files has taken more than %v: nothing new of this container is probed until it ends", stuckAfter)

// lane is what is done to the files of one container, one work after the other. It is the
// container's key's: one that is watched again while a file hangs waits for the same file.
type lane struct {
	key       string
	work      *work         // running
	debt      time.Duration // at chargedAt; see debtAt
	chargedAt time.Time
	served    time.Time // when something was last begun
}

// work is one thing that is done to the files of a container, in a goroutine of its own: the
// files are the container's, and may keep whoever asks for ever.
type work struct {
	lane  *lane
	began time.Time
	took  time.Duration
	end   func() // what the caller's goroutine makes of it
}

// begin runs do in a lane that is free. What do returns is called by the finder's own
// goroutine.
func (f *Finder) begin(l *lane, do func() func()) {
	w := &work{lane: l, began: time.Now()}
	l.work, l.served = w, w.began
	f.works[w] = true
	go func() {
		w.end = do()
		w.took = time.Since(w.began)
		f.ended <- w // there is room for all
	}()
}

// takeIn ends a work on the finder's side.
func (f *Finder) takeIn(w *work) {
	delete(f.works, w)
	w.lane.work = nil
	w.lane.charge(time.Now(), w.took)
	w.end()
}

// follow takes a work in and begins what comes next: of its lane, or where others wait for a
// place, of the lane whose works took least.
func (f *Finder) follow(w *work) {
	full := !f.mayBegin()
	f.takeIn(w)
	if !full {
		f.next(w.lane)
		return
	}
	for _, l := range f.order(time.Now()) {
		if !f.mayBegin() {
			return
		}
		f.next(l)
	}
}

// order is the lanes, those first whose works took least.
func (f *Finder) order(now time.Time) []*lane {
	return slices.SortedFunc(maps.Values(f.lanes), func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.debtAt(now), b.debtAt(now)), a.served.Compare(b.served), cmp.Compare(a.key, b.key))
	})
}

// takeInAll takes in what has ended, without waiting, and begins what waited for it.
func (f *Finder) takeInAll() {
	for {
		select {
		case w := <-f.ended:
			f.follow(w)
		default:
			return
		}
	}
}

// await takes works in and begins others behind them, until none is left that is
// younger than scanBudget, or the time is over.
func (f *Finder) await(ctx context.Context, deadline time.Time) {
	for len(f.works) > 0 && ctx.Err() == nil {
		var until time.Time
		for w := range f.works {
			if end := w.began.Add(scanBudget); end.After(until) {
				until = end
			}
		}
		if deadline.Before(until) {
			until = deadline
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case w := <-f.ended:
			timer.Stop()
			f.follow(w)
		case <-timer.C:
			f.takeInAll() // both were ready
			return
		}
	}
}

// settle waits until what runs has ended, but not for what hangs.
func (f *Finder) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*fileTime)
	defer cancel()
	for len(f.works) > 0 {
		select {
		case w := <-f.ended:
			f.follow(w)
		case <-ctx.Done():
			return
		}
	}
}

// mayBegin: there is room for one more work.
func (f *Finder) mayBegin() bool {
	if len(f.works) < maxWorks {
		return true
	}
	stuck := 0
	for w := range f.works {
		if time.Since(w.began) > stuckAfter {
			stuck++
		}
	}
	return stuck < maxStuck && len(f.works)-stuck < maxWorks
}

// laneOf returns the lane of a key.
func (f *Finder) laneOf(key string) *lane {
	l := f.lanes[key]
	if l == nil {
		l = &lane{key: key}
		f.lanes[key] = l
	}
	return l
}

// serve begins what is due, in the lane first whose works took least.
func (f *Finder) serve(now, deadline time.Time) {
	for _, l := range f.order(now) {
		if time.Now().After(deadline) {
			return
		}
		k := f.containers[l.key]
		if k != nil {
			if l.work != nil && now.Sub(l.work.began) > stuckAfter {
				f.problems.add(k.key, "libraries", errStuck)
			}
			if !now.Before(k.nextRound) {
				f.round(k, now)
			}
		}
		f.next(l)
		if k == nil && l.work == nil && l.debtAt(now) == 0 {
			delete(f.lanes, l.key)
		}
	}
}

// next begins a lane's next work: attachments before looks.
func (f *Finder) next(l *lane) {
	for l.work == nil && f.mayBegin() {
		k := f.containers[l.key]
		switch {
		case k == nil:
			return
		case len(k.batches) > 0:
			b := k.batches[0]
			k.batches = k.batches[1:]
			f.beginBatch(l, b)
		case len(k.due) > 0 && l.debtAt(time.Now()) < lookCredit:
			pid := k.due[0]
			k.due = k.due[1:]
			if p, size := f.due(k, pid); p != nil {
				look := f.newLook(p)
				f.begin(l, func() func() { look.run(); return func() { f.takeLook(p, size, look) } })
			}
		default:
			return
		}
	}
}

// beginBatch attaches what of a batch is still wanted.
func (f *Finder) beginBatch(l *lane, b batch) {
	wanted := slices.DeleteFunc(slices.Clone(b), func(a *attaching) bool { return !a.isWanted() })
	if len(wanted) > 0 {
		f.begin(l, func() func() { wanted.run(f); return func() { f.takeBatch(wanted) } })
	}
	f.takeBatch(slices.DeleteFunc(b, (*attaching).isWanted))
}

// debtAt is what works took, less the lane's share of the time since.
func (l *lane) debtAt(now time.Time) time.Duration {
	return max(0, l.debt-time.Duration(lookShare*float64(now.Sub(l.chargedAt))))
}

func (l *lane) charge(now time.Time, took time.Duration) {
	l.debt, l.chargedAt = l.debtAt(now)+min(took, maxDebt), now
}
