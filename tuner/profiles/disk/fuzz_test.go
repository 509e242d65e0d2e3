package disk

import "testing"

// A store may come from another host: what of it cannot be is left out, the rest is read.
func FuzzStore(f *testing.F) {
	f.Add([]byte(`[]`), int64(1))
	f.Add([]byte(`[{"name":"train","learned":{}},null,5,{"name":""}]`), int64(1767225600000000000))
	f.Fuzz(func(t *testing.T, text []byte, nowUnixNs int64) {
		store, _ := Decode(text, nowUnixNs)
		if store == nil {
			t.Fatalf("no store of %q", text)
		}
	})
}
