package statefile

import (
	"encoding/json"
	"testing"
)

// A state file that is read is of its format and topic, and no newer than this program.
func FuzzFile(f *testing.F) {
	good, err := json.Marshal(envelope{Format: format, Topic: "fuzz", Version: version, Data: json.RawMessage(`{"a":1}`)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"x","topic":"fuzz","version":99,"data":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		if decode(text, "fuzz", &v) != nil {
			return
		}
		var e envelope
		if err := json.Unmarshal(text, &e); err != nil || e.Format != format || e.Topic != "fuzz" || e.Version > version {
			t.Fatalf("%q was read", text)
		}
	})
}
