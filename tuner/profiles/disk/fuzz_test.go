package disk

import "testing"

// A book may come from another host: what of it cannot be is left out, the rest is read.
func FuzzBook(f *testing.F) {
	f.Add([]byte(`[]`), int64(1))
	f.Add([]byte(`[{"name":"train","learned":{}},null,5,{"name":""}]`), int64(1767225600000000000))
	f.Fuzz(func(t *testing.T, text []byte, nowUnixNs int64) {
		book, _ := Decode(text, nowUnixNs)
		if book == nil {
			t.Fatalf("no book of %q", text)
		}
	})
}
