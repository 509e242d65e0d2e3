//go:build seededrace

// Package race has a race on purpose: `make race` is worth something only where this one is found.
package race

import "testing"

func TestSeeded(t *testing.T) {
	n, done := 0, make(chan struct{})
	go func() {
		n++
		close(done)
	}()
	n++
	<-done
	t.Log(n)
}
