package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/state"
)

// doctor says of each receiver that the config names whether it could be told, and of others nothing.
func TestDoctorAsksReceivers(t *testing.T) {
	cfg := config.Default()
	if got := examineReceivers(t.Context(), cfg); len(got) > 0 {
		t.Errorf("none is configured: %+v", got)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/logs" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer s.Close()
	cfg.Notify.Webhook.URL, cfg.Notify.OTLP.URL = s.URL, s.URL
	cfg.Notify.Script.Path = filepath.Join(t.TempDir(), "none")
	got := examineReceivers(t.Context(), cfg)
	if len(got) != 3 || got[0].What != "otlp" || got[0].Level != levelDegraded || !strings.Contains(got[0].Text, "notify.otlp.tokenFile") ||
		got[1].What != "webhook" || got[1].Level != levelOK || got[2].What != "script" || !strings.Contains(got[2].Text, "no such file") {
		t.Errorf("%+v", got)
	}
}

// As the daemon runs it, a script has no capability, and what is restored last is told before the end.
func TestScriptHasNoCapability(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a script has to be root's")
	}
	dir, err := os.MkdirTemp("/root", "trimtab-test-") // every folder above is root's, as those above /tmp/x are not
	if err != nil {
		t.Skipf("needs a folder that only root may write: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cfg := config.Default()
	cfg.Notify.Script.Path = filepath.Join(dir, "on-event")
	if err := os.WriteFile(cfg.Notify.Script.Path, []byte("#!/bin/sh\ncat >"+dir+"/event; cat /proc/self/status >"+dir+"/status\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := examineReceivers(t.Context(), cfg); len(got) != 1 || got[0].Level != levelOK {
		t.Fatalf("%+v", got)
	}
	n, err := newReceivers(cfg.Notify, func() *state.Snapshot { return &state.Snapshot{} }, func() error { return nil }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Offer([]state.Record{{Kind: state.RecordVerdict}, {Kind: state.RecordRestore, Name: "train", Text: "restored"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n.Close(ctx)
	told, err := os.ReadFile(filepath.Join(dir, "event"))
	if err != nil || !strings.HasPrefix(string(told), `{"event":"restored",`) {
		t.Errorf("%v: %s; %+v", err, told, n.Receivers())
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil || !strings.Contains(string(status), "CapEff:\t0000000000000000\n") || !strings.Contains(string(status), "NoNewPrivs:\t1\n") {
		t.Errorf("%v: %s", err, status)
	}
}
