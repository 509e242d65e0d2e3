package docker

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime/engine"
)

// saying is an engine whose Docker answers so, pings aside.
func saying(t *testing.T, answer http.HandlerFunc) *Engine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.45")
		if !strings.HasSuffix(r.URL.Path, "/_ping") {
			answer(w, r)
		}
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	return newEngine(t, "unix://"+socket)
}

// running is what is said of a container of which this process is init.
func running(id string) map[string]any {
	return map[string]any{"Id": id, "Name": "/train", "Config": map[string]any{}, "HostConfig": map[string]any{},
		"State": map[string]any{"Running": true, "Pid": os.Getpid()}}
}

// TestIDsThatAreNone: by its ID a container's control group is found, and files are named.
func TestIDsThatAreNone(t *testing.T) {
	for id, want := range map[string]bool{
		strings.Repeat("0a", 32): true, "user.slice": false, "../../../etc": false, "": false, strings.Repeat("0a", 33): false, "0A": false,
	} {
		e := saying(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(running(id)) })
		_, err := e.inspect(t.Context(), "c0ffee")
		if want && err != nil || !want && !errors.Is(err, engine.ErrNotBelieved) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
