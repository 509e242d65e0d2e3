package engine

import (
	"fmt"
	"testing"
)

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

// TestPublishedPortsFit: 9,000 published ports, as Docker's inspect tells them, are read.
func TestPublishedPortsFit(t *testing.T) {
	var v Values
	n := int64(1000) // all else that is told of a container
	for port := 10_000; port < 19_000; port++ {
		n += v.Count(fmt.Appendf(nil, `"%[1]d/tcp":{},"%[1]d/tcp":[{"HostIp":"","HostPort":"%[1]d"}],`+
			`"%[1]d/tcp":[{"HostIp":"0.0.0.0","HostPort":"%[1]d"},{"HostIp":"::","HostPort":"%[1]d"}],`, port))
	}
	if n > MaxValues {
		t.Errorf("%d values, more than %d", n, MaxValues)
	}
}
