package child

import (
	"bytes"
	"strings"
	"sync"
)

// tailBytes is how much of a child's standard error is kept.
const tailBytes = 2 << 10

// Tail keeps the end of what is written to it: a child's last words. Its methods may
// be called from any goroutine.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// LastLine is the last line that says something.
func (t *Tail) LastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.buf), []byte("\n"))
	return strings.ToValidUTF8(string(bytes.TrimSpace(lines[len(lines)-1])), "")
}
