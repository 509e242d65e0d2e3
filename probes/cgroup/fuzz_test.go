package cgroup

import (
	"bytes"
	"testing"

	"github.com/trimtab/trimtab/probes"
)

// Whatever a file of pressure holds, a line without its total counts nothing.
func FuzzPressure(f *testing.F) {
	f.Add([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"))
	f.Add([]byte("some total=18446744073709551616\nfull total=\n"))
	f.Add([]byte("some"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p probes.Pressure
		if some := parsePressure(b, &p); !some && p.SomeUs != 0 || (p != probes.Pressure{}) && !bytes.Contains(b, []byte("total=")) {
			t.Fatalf("%q is read as %+v, %v", b, p, some)
		}
	})
}
