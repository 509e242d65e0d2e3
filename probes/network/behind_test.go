package network

import (
	"testing"
	"time"
)

// A reading that hangs keeps nobody waiting, is not begun twice, and is there once it
// is done.
func TestBehind(t *testing.T) {
	hang := make(chan struct{})
	reads := make(chan int, 10)
	n := 0
	b := behind[int]{}
	b.read = func() int {
		n++
		reads <- n
		if n == 2 {
			<-hang
		}
		return n
	}
	if v, ok := b.latest(); ok {
		t.Fatalf("%d before any reading", v)
	}
	if v, ok := b.get(); !ok || v != 1 {
		t.Fatalf("first reading %d, %v", v, ok)
	}
	for range 3 { // the second one hangs
		begin := time.Now()
		if v, ok := b.get(); !ok || v != 1 {
			t.Errorf("while it hangs: %d, %v, want the reading before", v, ok)
		}
		if took := time.Since(begin); took > 20*patience {
			t.Errorf("waited %v", took)
		}
	}
	if len(reads) != 2 {
		t.Errorf("%d readings were begun, want 2", len(reads))
	}
	close(hang)
	for range 100 {
		if v, _ := b.get(); v >= 3 {
			return
		}
	}
	t.Error("no reading after the one that hung")
}
