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
	// lookShare is a container's share of one CPU, and of a disk, for looks into its
	// processes. lookCredit it may take at once: a first look reads all libraries.
	lookShare  = 0.1
	lookCredit = 2 * time.Second
	// maxDebt is what a look is charged at the most, so that a container is looked at
	// again within a minute after a disk answered late.
	maxDebt = 6 * time.Second
)

var errStuck = fmt.Errorf("a file has not answered for %v: nothing new of this container is probed until it does", stuckAfter)

// work is what is done to the files of one container, in a goroutine of its own: the
// files are the container's, and may keep whoever asks for ever.
type work struct {
	container *container
	began     time.Time
	look      bool   // charged to the container
	end       func() // what the caller's goroutine makes of it
}

// begin runs do for a container that has no other work. What do returns is called by
// the finder's own goroutine.
func (f *Finder) begin(k *container, look bool, do func() func()) {
	w := &work{container: k, began: time.Now(), look: look}
	k.work = w
	f.works[w] = true
	go func() {
		w.end = do()
		f.ended <- w // there is room for all
	}()
}

// takeIn ends a work on the finder's side.
func (f *Finder) takeIn(w *work) {
	delete(f.works, w)
	k := w.container
	k.work = nil
	if w.look {
		k.charge(time.Now(), time.Since(w.began))
	}
	w.end()
}

// takeInAll takes in what has ended, without waiting, and begins what waited for it.
func (f *Finder) takeInAll() {
	for {
		select {
		case w := <-f.ended:
			f.takeIn(w)
			f.next(w.container)
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
			f.takeIn(w)
			f.next(w.container)
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
			f.takeIn(w)
		case <-ctx.Done():
			return
		}
	}
}

// mayBegin: there is room for one more work.
func (f *Finder) mayBegin() bool {
	stuck := 0
	for w := range f.works {
		if time.Since(w.began) > stuckAfter {
			stuck++
		}
	}
	return stuck < maxStuck && len(f.works)-stuck < maxWorks
}

// serve begins what is due, for the container first whose looks took least.
func (f *Finder) serve(now, deadline time.Time) {
	order := slices.SortedFunc(maps.Values(f.containers), func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.owes(now), b.owes(now)), cmp.Compare(a.key, b.key))
	})
	for _, k := range order {
		if time.Now().After(deadline) {
			return
		}
		if k.work != nil && now.Sub(k.work.began) > stuckAfter {
			f.problems.add(k.key, "libraries", errStuck)
		}
		if len(k.due) == 0 && k.work == nil && !now.Before(k.nextRound) {
			f.round(k, now)
		}
		f.next(k)
	}
}

// next begins a container's next work: attachments before looks.
func (f *Finder) next(k *container) {
	for k.work == nil && f.containers[k.key] == k && f.mayBegin() {
		if len(k.batches) > 0 {
			b := k.batches[0]
			k.batches = k.batches[1:]
			if b.wanted() {
				f.begin(k, false, func() func() { b.run(f); return func() { f.takeBatch(b) } })
			} else {
				f.takeBatch(b)
			}
			continue
		}
		if len(k.due) == 0 || k.owes(time.Now()) >= lookCredit {
			return
		}
		pid := k.due[0]
		k.due = k.due[1:]
		if p, size := f.due(k, pid); p != nil {
			l := f.newLook(p)
			f.begin(k, true, func() func() { l.run(); return func() { f.takeLook(p, size, l) } })
		}
	}
}

// owes is what looks into a container took, less its share of the time since.
func (k *container) owes(now time.Time) time.Duration {
	return max(0, k.debt-time.Duration(lookShare*float64(now.Sub(k.owed))))
}

func (k *container) charge(now time.Time, took time.Duration) {
	k.debt, k.owed = k.owes(now)+min(took, maxDebt), now
}

// attachLater leaves attachments to the container's next work.
func (f *Finder) attachLater(k *container, b batch) {
	if len(b) > 0 {
		k.batches = append(k.batches, b)
	}
}
