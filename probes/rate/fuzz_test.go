package rate

import (
	"bufio"
	"bytes"
	"testing"
)

// A line is cut at its bound and holds no end; all bytes of it are counted, and asked for.
func FuzzLine(f *testing.F) {
	f.Add([]byte("step 5\r\nstep 6"))
	f.Add(bytes.Repeat([]byte("x"), 3*maxLine))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(b), 64)
		counted, asked := 0, 0
		for {
			line, n, err := readLine(r, func(n int) bool { asked += n; return true })
			counted += n
			if len(line) > maxLine || bytes.ContainsRune(line, '\n') {
				t.Fatalf("a line of %d bytes: %q", len(line), line)
			}
			if err != nil {
				break
			}
		}
		if counted != len(b) || asked != len(b) {
			t.Fatalf("%d bytes counted and %d asked for, of %d", counted, asked, len(b))
		}
	})
}
