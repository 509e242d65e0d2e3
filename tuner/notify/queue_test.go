package notify

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/event"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers as it is told, and keeps what it took.
type fake struct {
	answer func(try int) error
	tries  int
	at     []time.Duration // of each try, since the first
	began  time.Time
	took   []event.Event
}

func (f *fake) deliver(ctx context.Context, events []event.Event) error {
	if f.tries++; f.tries == 1 {
		f.began = time.Now()
	}
	f.at = append(f.at, time.Since(f.began))
	err := f.answer(f.tries)
	if err == nil {
		f.took = append(f.took, events...)
	}
	return err
}

func (f *fake) check(context.Context) error { return nil }

type lines struct{ strings.Builder }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&l.Builder, nil)) }

func newFake(answer func(try int) error, batch int, l *lines) (*fake, *queue) {
	f := &fake{answer: answer}
	return f, newQueue("webhook", f, batch, []string{"kept"}, 1000, l.logger())
}

func kept(text string) event.Event { return event.Event{Kind: event.Kept, Text: text} }

// One that is away is asked again after growing pauses, told what waited, and the log says both once.
func TestTriesAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		f, q := newFake(func(try int) error {
			if try <= 8 {
				return errors.New("nothing listens there")
			}
			return nil
		}, 1, &l)
		closing := make(chan struct{})
		q.offer(event.Event{Kind: event.Lent}) // not asked for
		q.offer(kept("a"))
		q.offer(kept("b"))
		go q.run(t.Context(), closing)
		time.Sleep(time.Second / 2)
		if s := q.state(); s.OK || !strings.Contains(s.Lost, "nothing listens") || s.Queued != 1 {
			t.Errorf("meanwhile: %+v", s)
		}
		time.Sleep(10 * time.Minute)
		close(closing)
		synctest.Wait()
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123, 183, 183}
		for i, at := range f.at {
			if at != want[i]*time.Second {
				t.Errorf("try %d after %s, want %s", i, at, want[i]*time.Second)
			}
		}
		if s := q.state(); !s.OK || s.Lost != "" || s.Sent != 2 || s.Failed != 0 || len(f.took) != 2 || f.took[0].Text != "a" {
			t.Errorf("then: %+v, took %v", s, f.took)
		}
		if text := l.String(); strings.Count(text, "level=ERROR") != 1 || strings.Count(text, "takes events again") != 1 {
			t.Error(text)
		}
	})
}

// What is refused, or tried ten times, is given up and counted; the next event has its own tries, after the pause that was reached.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		f, q := newFake(func(try int) error {
			if try <= maxTries {
				return errors.New("500")
			}
			return map[int]error{maxTries + 1: refusal{error: errors.New("400")}, maxTries + 2: later{errors.New("429"), 3 * time.Minute}}[try]
		}, 1, &l)
		closing := make(chan struct{})
		go q.run(t.Context(), closing)
		q.offer(kept("never taken"))
		time.Sleep(time.Hour)
		if s := q.state(); s.Failed != 1 || f.tries != maxTries {
			t.Errorf("%+v after %d tries", s, f.tries)
		}
		q.offer(kept("refused"))
		q.offer(kept("taken later"))
		time.Sleep(time.Hour)
		if s := q.state(); s.Failed != 2 || s.Sent != 1 || f.took[0].Text != "taken later" || f.at[12]-f.at[11] != 3*time.Minute {
			t.Errorf("%+v, took %v at %v", s, f.took, f.at)
		}
		close(closing)
		synctest.Wait()
	})
}

// What a script wrote is in the log, once and cut, and not in what everybody sees.
func TestOutputIsForTheLog(t *testing.T) {
	var l lines
	_, q := newFake(func(int) error {
		return refusal{error: failure{errors.New("exit status 1: " + strings.Repeat("\x1b", 96<<10)), "s3cret\x1b[2J"}}
	}, 1, &l)
	q.offer(kept("x"))
	closing := make(chan struct{})
	close(closing)
	q.run(t.Context(), closing)
	if s := q.state(); !strings.HasPrefix(s.Lost, "exit status 1") || strings.Contains(s.Lost, "s3cret") || len(s.Lost) > maxSaid {
		t.Errorf("%+v", s)
	}
	if text := l.String(); !strings.Contains(text, "s3cret") || strings.Contains(text, `\x1b`) || len(text) > 4*maxSaid {
		t.Errorf("%d bytes: %.500s", len(text), text)
	}
}

func TestBatchesAndPartsOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		_, q := newFake(func(int) error { return refusal{errors.New("1 of 5 records were rejected"), 1} }, 5, &l)
		for range 5 {
			q.offer(kept("x"))
		}
		closing := make(chan struct{})
		close(closing)
		q.run(t.Context(), closing)
		if s := q.state(); s.Sent != 4 || s.Failed != 1 || s.OK {
			t.Errorf("%+v", s)
		}
	})
}

// One that never answers costs its own queue; Offer returns all the same, what is too much is counted and said once, and
// the end is bounded.
func TestOneThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		n := New(Options{Config: config.Default().Notify, Log: l.logger(), Latest: func() *state.Snapshot { return &state.Snapshot{} }, Healthy: func() error { return nil }})
		n.Offer([]state.Record{{Kind: state.RecordTrial, Outcome: state.OutcomeKept}}) // to nobody
		hangs := newQueue("webhook", hanging{}, 1, nil, 100_000, l.logger())
		works := &fake{answer: func(int) error { return nil }}
		n.queues = []*queue{hangs, newQueue("otlp", works, 1, nil, 100_000, l.logger())}
		n.Start()
		for range 10 * maxWaiting {
			n.Offer([]state.Record{{Kind: state.RecordTrial, Outcome: state.OutcomeKept, Text: "x"}})
			synctest.Wait()
		}
		r := n.Receivers()
		if r[0].Queued != maxWaiting || r[0].Dropped != 9*maxWaiting-1 || r[1].Sent != 10*maxWaiting || r[1].Dropped != 0 {
			t.Errorf("%+v", r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		n.Close(ctx)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("closed after %s, want 5s", took)
		}
		text := l.String()
		if strings.Count(text, "some is not told") != 1 || !strings.Contains(text, "not all was told") {
			t.Error(text)
		}
	})
}

type hanging struct{}

func (hanging) deliver(ctx context.Context, _ []event.Event) error {
	<-ctx.Done()
	return ctx.Err()
}
func (hanging) check(context.Context) error { return nil }

// What was recorded last, at the end itself, is told before Close returns.
func TestCloseTellsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		f := &fake{answer: func(int) error { time.Sleep(100 * time.Millisecond); return nil }}
		n := &Notifier{o: Options{Log: l.logger()}, queues: []*queue{newQueue("webhook", f, 1, nil, 1000, l.logger())}, closing: make(chan struct{}), cancel: func() {}}
		n.Start()
		n.Offer([]state.Record{{Kind: state.RecordRestore}, {Kind: state.RecordRestore}, {Kind: state.RecordRestore}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		n.Close(ctx)
		if len(f.took) != 3 || l.Len() > 0 {
			t.Errorf("took %v; %s", f.took, l.String())
		}
	})
}

// Neither a steady excess nor one that answers now so, now so fills the log.
func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		f := &fake{answer: func(try int) error {
			if try%2 == 0 {
				return refusal{error: errors.New("400")}
			}
			return nil
		}}
		n := &Notifier{o: Options{Log: l.logger()}, queues: []*queue{newQueue("webhook", f, 1, nil, 60, l.logger())}, closing: make(chan struct{}), cancel: func() {}}
		n.Start()
		for range 2 * 3600 {
			n.offer(kept("x"))
			n.offer(kept("x"))
			time.Sleep(time.Second)
		}
		n.Close(t.Context())
		r, text := n.Receivers()[0], l.String()
		if r.Dropped < 7000 || r.Failed < 3000 || r.Sent < 3000 {
			t.Errorf("%+v", r)
		}
		for _, line := range []string{"some is not told", "cannot be told", "takes events again"} {
			if n := strings.Count(text, line); n < 11 || n > 12 {
				t.Errorf("%q %d times in two hours, want once in 10 minutes", line, n)
			}
		}
	})
}

// A trouble that could not be said when it began is said later, if it stays.
func TestTroubleThatStaysIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		f := &fake{answer: func(try int) error {
			if try == 2 {
				return nil
			}
			return refusal{error: errors.New("400")}
		}}
		n := &Notifier{o: Options{Log: l.logger()}, queues: []*queue{newQueue("webhook", f, 1, nil, 60, l.logger())}, closing: make(chan struct{}), cancel: func() {}}
		n.Start()
		for range 30 {
			n.offer(kept("x"))
			time.Sleep(time.Minute)
		}
		n.Close(t.Context())
		if text := l.String(); strings.Count(text, "cannot be told") != 2 || strings.Count(text, "takes events again") != 1 {
			t.Error(text)
		}
	})
}

func TestRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		q := newQueue("grafana", hanging{}, 1, nil, 30, l.logger())
		for range 100 {
			q.offer(kept("x"))
		}
		if s := q.state(); s.Dropped != 70 || s.Queued != 30 {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * time.Second) // one more every two seconds
		q.offer(kept("x"))
		q.offer(kept("x"))
		if s := q.state(); s.Queued != 31 || !strings.Contains(l.String(), "perMinute") {
			t.Errorf("%+v %s", s, l.String())
		}
	})
}

// The daemon's own state is told while the agent runs, and only then.
func TestUnwellIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		f := &fake{answer: func(int) error { return nil }}
		var stuck atomic.Bool
		healthy := func() error {
			if stuck.Load() {
				return errors.New("the agent has not ticked for 12s")
			}
			return nil
		}
		n := &Notifier{o: Options{Log: l.logger(), Host: "node7", Latest: func() *state.Snapshot { return &state.Snapshot{} }, Healthy: healthy},
			queues: []*queue{newQueue("webhook", f, 1, nil, 1000, l.logger())}, closing: make(chan struct{}), cancel: func() {}}
		n.Start()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = n.Run(ctx) }()
		time.Sleep(time.Minute)
		stuck.Store(true)
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
		if len(f.took) != 1 || f.took[0].Kind != event.Unwell || f.took[0].Host != "node7" {
			t.Errorf("%+v", f.took)
		}
		n.Close(t.Context())
	})
}

// What the loop pays for each record, with four receivers that are all away: their queues are full.
func BenchmarkOffer(b *testing.B) {
	n := &Notifier{o: Options{Host: "node7"}}
	for range 4 {
		n.queues = append(n.queues, newQueue("webhook", hanging{}, 1, nil, 100_000, slog.New(slog.DiscardHandler)))
	}
	record := []state.Record{*hostileEvent().Record}
	b.ReportAllocs()
	for b.Loop() {
		n.Offer(record)
	}
}
