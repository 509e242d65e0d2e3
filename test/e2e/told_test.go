package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/tuner/event"
	"github.com/trimtab/trimtab/tuner/state"
)

// What is changed of a real job, and what the end restores, reach a webhook and a script as history
// has them, while a collector is away: that one is said once, and nothing waits for it.
func TestDecisionsAreTold(t *testing.T) {
	j := job(t, "trimtab.mode=tune", "trimtab.team=vision")
	var mu sync.Mutex
	var told []event.Event
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e event.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, e)
	}))
	defer hook.Close()
	dir, err := os.MkdirTemp("/root", "trimtab-e2e-") // a script's folders are root's, up to the top
	if err != nil {
		t.Skipf("needs a folder that only root may write: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	script := filepath.Join(dir, "on-event")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncat >>"+dir+"/events\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := daemon(t, daemontest.Options{Config: fmt.Sprintf("notify:\n  webhook: {url: %q, events: []}\n  script: {path: %q, events: [lent, changed, restored]}\n  otlp: {url: 'http://127.0.0.1:1', metricsEvery: 0s}\n", hook.URL, script)})
	until(t, d, j.Name, "its quota is raised", changed)
	s, err := d.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Daemon.Receivers; len(r) != 3 || r[0].Name != "otlp" || r[0].OK || !strings.Contains(r[0].Lost, "nothing listens there") || !r[1].OK || r[2].Name != "script" {
		t.Errorf("%+v", r)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(d.Log()) {
		if strings.Contains(line, "cannot be told") && strings.Contains(line, "receiver=otlp") { // a trial may end so too
			n++
		}
	}
	if n != 1 {
		t.Errorf("said %d times that the collector is away, want once:\n%s", n, d.Log())
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	history, err := d.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, e := range told {
		if !slices.ContainsFunc(history, func(r state.Record) bool { return e.Record != nil && r == *e.Record }) {
			t.Errorf("history has no %+v", e)
		}
	}
	of := func(kinds ...event.Kind) bool {
		return slices.ContainsFunc(told, func(e event.Event) bool {
			return slices.Contains(kinds, e.Kind) && e.Container() == j.Name && e.Record.Team == "vision"
		})
	}
	text, err := os.ReadFile(filepath.Join(dir, "events"))
	if err != nil || !of(event.Lent, event.Changed) || !of(event.Restored) { // changed: a trial, where no CPU is idle
		t.Errorf("%v: told %+v", err, told)
	}
	if s := string(text); !strings.Contains(s, `{"event":"lent",`) && !strings.Contains(s, `{"event":"changed",`) || !strings.Contains(s, `{"event":"restored",`) {
		t.Errorf("the script was given %s", s)
	}
}
