package host

import (
	"testing"

	"github.com/trimtab/trimtab/probes"
)

func FuzzStat(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 5\n"))
	f.Add([]byte("cpu  1 2 3\ncpu0\n"))
	f.Add([]byte("cpu  18446744073709551615 0 0 0 0 0 0 0\ncpu0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h probes.Host
		if err := parseStat(b, &h); err == nil && h.CPUs <= 0 {
			t.Fatalf("%q is read as a host of %d CPUs", b, h.CPUs)
		}
	})
}

func FuzzMeminfo(f *testing.F) {
	f.Add([]byte("MemTotal:       24689632 kB\nMemAvailable:   20000000 kB\n"))
	f.Add([]byte("MemTotal: 18446744073709551615 kB\nMemAvailable: -1 kB\n"))
	f.Add([]byte("MemTotal: 18014398509481984 kB\nMemAvailable: 0 kB\n")) // 2^64 bytes
	f.Fuzz(func(t *testing.T, b []byte) {
		var h probes.Host
		if err := parseMeminfo(b, &h); err == nil && h.MemTotal == 0 {
			t.Fatalf("%q is read as a host without memory", b)
		}
	})
}
