package engine

import "testing"

// TestValues: the count is of the whole, however it is cut, and what is in strings is none.
func TestValues(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, `{}`: 1, `[{},{},{}]`: 6, `{"a":["b","c"],"d":1}`: 4, `{"a":"[{,\"[{,\\"}`: 1, `["\\","\"",","]`: 3,
	} {
		for size := 1; size <= max(1, len(text)); size++ {
			var v Values
			var n int64
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				n += v.Count(rest[:min(size, len(rest))])
			}
			if n != want {
				t.Errorf("%s in pieces of %d: %d, want %d", text, size, n, want)
			}
		}
	}
}
