package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
)

// progressEach is how often progress is shown; what is done sooner shows none.
const progressEach = 500 * time.Millisecond

// progress is one line that is written over, by carriage returns and blanks alone: it works on
// a terminal that knows no escapes. What else is written through it goes above that line.
type progress struct {
	mu      sync.Mutex
	w       io.Writer
	columns int // that the line may take
	shown   int // of them in use
}

// startProgress shows what text says while a command is busy, where w is a terminal; text is
// told how long it has been. Elsewhere it does nothing, and out is w. The caller writes to out
// instead of w, and calls stop before anything else is shown.
func startProgress(w io.Writer, text func(elapsed time.Duration) string) (out io.Writer, stop func()) {
	columns, _, onTerminal := terminalSize(w)
	if !onTerminal {
		return w, func() {}
	}
	p := &progress{w: w, columns: columns - 1} // the last column would begin another line
	ticker := time.NewTicker(progressEach)
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.run(time.Now(), ticker.C, ending, text)
	}()
	return p, sync.OnceFunc(func() {
		ticker.Stop()
		close(ending)
		<-ended
	})
}

// run shows text at each tick, and nothing any more when it ends.
func (p *progress) run(start time.Time, ticks <-chan time.Time, ending <-chan struct{}, text func(time.Duration) string) {
	defer p.show("")
	for {
		select {
		case now := <-ticks:
			p.show(text(now.Sub(start)))
		case <-ending:
			return
		}
	}
}

func (p *progress) show(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replace(text)
}

// replace writes over the line; "" leaves none.
func (p *progress) replace(text string) {
	text = render.ASCII(text)
	text = text[:min(len(text), max(p.columns, 0))]
	line := text
	if more := p.shown - len(text); more > 0 {
		line += strings.Repeat(" ", more)
		if text == "" {
			line += "\r"
		}
	}
	if line != "" {
		_, _ = io.WriteString(p.w, "\r"+line) // of what is said on the way nothing hangs
	}
	p.shown = len(text)
}

// Write writes through, above the line.
func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replace("")
	return p.w.Write(text)
}

// steps is what a command of several steps does now.
type steps struct{ now atomic.Value } // a string

func (s *steps) begin(what string) { s.now.Store(what) }

// text is the step, and how long the command is at work.
func (s *steps) text(elapsed time.Duration) string {
	return fmt.Sprintf("%s, %d s", s.now.Load(), int(elapsed.Seconds()))
}
