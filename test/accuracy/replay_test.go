package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
)

// TestReloadInARecordingIsInForce: of a recording that began with another config and took its own by
// a reload before the first tick the same is seen as of the recording itself.
func TestReloadInARecordingIsInForce(t *testing.T) {
	const file = recordings + "/starved.trimtab"
	k := policies.DefaultConstants()
	seen := func(begin func(cfg *control.Config), reload bool) map[string]*Seen {
		got, err := replayFile(reloaded(t, file, begin, reload), k)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	none := func(cfg *control.Config) { cfg.MaxTuned, cfg.ReserveCPUs = 0, 1000 }
	want := seen(func(*control.Config) {}, false)
	if reflect.DeepEqual(seen(none, false), want) {
		t.Fatal("the config makes no difference: another recording is needed")
	}
	if !reflect.DeepEqual(seen(none, true), want) {
		t.Error("a config that comes with a reload is not in force")
	}
}

// reloaded is a recording that begins with another config; with reload its own comes first of all.
func reloaded(t *testing.T, file string, begin func(*control.Config), reload bool) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := recording.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := r.Header()
	own, cfg := h.Config, control.Defaults()
	if err := json.Unmarshal(own, &cfg); err != nil {
		t.Fatal(err)
	}
	begin(&cfg)
	if h.Config, err = json.Marshal(cfg); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "reloaded"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := recording.NewWriter(out, h)
	if err != nil {
		t.Fatal(err)
	}
	if reload {
		err = w.Write("config", own)
	}
	for err == nil {
		var kind string
		var raw json.RawMessage
		if kind, raw, err = r.Next(); err == nil {
			err = w.Write(kind, raw)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}
