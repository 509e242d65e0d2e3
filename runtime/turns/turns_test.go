package turns

import (
	"context"
	"errors"
	"testing"
)

func TestTurns(t *testing.T) {
	var turns Turns
	own, err := turns.Take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.Take(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a taken turn: %v", err)
	}
	if _, ok := turns.Try("a"); ok {
		t.Error("a taken turn was had")
	}
	if other, err := turns.Take(ctx, "b"); err != nil {
		t.Errorf("a free one: %v", err)
	} else {
		other.Give()
	}
	waited := make(chan *Turn)
	go func() {
		next, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		waited <- next
	}()
	own.Give()
	(<-waited).Give()
	if len(turns.taken) > 0 {
		t.Errorf("%d turns are kept that nobody has", len(turns.taken))
	}
	if own, err = turns.Take(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	own.LeaveBehind()
	if _, err := turns.Take(t.Context(), "a"); err == nil {
		t.Error("a turn was had whose holder was left behind")
	}
	own.Give()
	if own, ok := turns.Try("a"); !ok {
		t.Error("it came back, and is not free")
	} else {
		own.Give()
	}
}
