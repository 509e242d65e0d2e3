package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/workload"
)

// fillName is the file that fills the small disk.
const fillName = "fill"

func diskFull(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	fill := filepath.Join(w.below, fillName)
	file, err := os.OpenFile(fill, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	for err == nil {
		_, err = file.Write(buf)
		if err != nil && len(buf) > 1 { // to the last byte
			buf, err = buf[:len(buf)/2], nil
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return "", errors.Join(err, file.Close())
	}
	what, err := w.through(ctx, r)
	return what, errors.Join(err, file.Close(), os.Remove(fill))
}

func diskReadOnly(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.with(ctx, r, fusetest.Fault{ReadOnly: true})
}

func diskSlow(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	delay := 100*time.Millisecond + time.Duration(r.Int64N(int64(2*time.Second)))
	what, err := w.with(ctx, r, fusetest.Fault{SyncDelay: delay})
	return fmt.Sprintf("each takes %s more; %s", delay.Round(time.Millisecond), what), err
}

func diskSyncFails(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.with(ctx, r, fusetest.Fault{SyncFails: true})
}

func (w *world) with(ctx context.Context, r *rand.Rand, f fusetest.Fault) (string, error) {
	if err := w.disk.Set(f); err != nil {
		return "", err
	}
	what, err := w.through(ctx, r)
	return what, errors.Join(err, w.disk.Set(fusetest.Fault{}))
}

// through lives through a broken disk: some seconds, and in half of the cases the end of the
// daemon. Where it stops or restores, values are the owner's, whatever became of the files.
func (w *world) through(ctx context.Context, r *rand.Rand) (what string, err error) {
	for range 1 + r.IntN(3) {
		_ = workload.Sleep(ctx, time.Second)
		w.look(int(w.step.Load()))
	}
	switch r.IntN(6) {
	case 0:
		what, err = "and a kill", w.killed()
	case 1:
		what = "and a stop"
		w.down()
		if stopErr := w.daemon.Stop(); stopErr != nil {
			what += ", which said " + tail(stopErr.Error())
		}
		w.wantValues("a stop on a broken disk")
	case 2:
		what, err = "and a kill and restore --offline", w.killed()
		if _, offErr := w.offline(ctx); offErr != nil {
			what += ", which said " + tail(offErr.Error())
		}
		w.wantValues("restore --offline on a broken disk")
	default:
		return "", nil
	}
	if err != nil {
		return what, err
	}
	if err := w.daemon.Restart(ctx); err != nil { // it may refuse such a disk
		what += "; it did not start: " + lastLine(err.Error())
		if !w.daemon.Ended() {
			return what, w.daemon.Kill()
		}
		return what, nil
	}
	w.up()
	_ = workload.Sleep(ctx, time.Second)
	w.look(int(w.step.Load()))
	return what, nil
}

// wantValues holds that no value of trimtab's stands; files may be left on a broken disk.
func (w *world) wantValues(after string) {
	w.violate(int(w.step.Load()), persist(2, func() (out []breach) {
		for _, j := range w.all() {
			stands, err := cgroup.ReadValues(j.cgroup)
			if err != nil {
				continue // look tells of it
			}
			for _, b := range judgeRestored(j.name, j.owner, stands) {
				b.evidence += ", after " + after
				out = append(out, b)
			}
		}
		return out
	}, func() { time.Sleep(betweenReadings) }))
}
