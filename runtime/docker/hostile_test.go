package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// saying is an engine whose Docker answers so, pings aside.
func saying(t testing.TB, answer http.HandlerFunc) *Engine {
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

// TestAskedAboutIDsAlone: words that an engine lists, tells of, or gives as an image, and that are no IDs, lead
// to no path of its API.
func TestAskedAboutIDsAlone(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	e := saying(t, func(w http.ResponseWriter, r *http.Request) {
		_, path, _ := strings.Cut(r.RequestURI[1:], "/")
		switch path, query, _ := strings.Cut(path, "?"); {
		case path == "containers/json":
			_ = json.NewEncoder(w).Encode([]container.Summary{{ID: "0a"}, {ID: "../images"}, {ID: "0a/json?x="}, {ID: ""}})
			return
		case path == "events":
			for _, id := range []string{"0b/../../volumes", "0b/../0e", "0b?size=1", "0b#", "%2e%2e", "0C", " 0b", "0d"} {
				_ = json.NewEncoder(w).Encode(map[string]any{"Type": "container", "Action": "start", "Actor": map[string]any{"ID": id}})
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		default:
			mu.Lock()
			asked = append(asked, path+query)
			mu.Unlock()
		}
		_, id, _ := strings.Cut(strings.TrimSuffix(path, "/json"), "/")
		c := running(id)
		c["Image"], c["Config"] = "../containers/0e", map[string]any{"Labels": map[string]string{"trimtab.mode": "tune"}}
		_ = json.NewEncoder(w).Encode(c)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var seen []string
	_ = e.Run(ctx, func(event runtime.Event) {
		if event.Kind != runtime.EventSeen {
			return
		}
		if len(event.Container.Labels) > 0 {
			t.Errorf("labels of an image that could not be looked at count: %q", event.Container.Labels)
		}
		if seen = append(seen, event.Container.ID.Container); len(seen) == 2 {
			cancel()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"containers/0a/json", "containers/0d/json"}; !slices.Equal(asked, want) || !slices.Equal(seen, []string{"0a", "0d"}) {
		t.Errorf("asked for %q, want %q; seen are %q", asked, want, seen)
	}
}

// TestAnswersAreBounded: an engine that says more than any is read of costs no memory; who says it
// of one container is not believed on that one.
func TestAnswersAreBounded(t *testing.T) {
	const most = 64 << 10
	long := strings.Repeat("x", 2*most)
	e := saying(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/json") {
			_ = json.NewEncoder(w).Encode([]container.Summary{{ID: long}})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "0a", "Name": long})
	})
	e.answers.most, e.answers.mostListed = most, most
	if _, err := e.inspect(t.Context(), "0a"); !errors.Is(err, errTooLong) || !errors.Is(err, engine.ErrNotBelieved) {
		t.Errorf("of one: %v", err)
	}
	if _, err := (&session{engine: e}).List(t.Context()); !errors.Is(err, errTooLong) {
		t.Errorf("of all: %v", err)
	}
}

// TestValuesAreBounded: empty values cost a hundred times what they take on the wire.
func TestValuesAreBounded(t *testing.T) {
	empty := func(n int) string { return strings.TrimSuffix(strings.Repeat("{},", n), ",") }
	e := saying(t, func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/containers/json"):
			_, _ = io.WriteString(w, "["+empty(maxListValues)+"]")
		case strings.HasSuffix(path, "/events"):
			_, _ = io.WriteString(w, `{"Actor":{"ID":"0a","Attributes":{"a":[`+empty(engine.MaxValues)+`]}}}`)
		default:
			_, _ = io.WriteString(w, `{"Id":"0a","Mounts":[`+empty(engine.MaxValues)+`]}`)
		}
	})
	if _, err := e.inspect(t.Context(), "0a"); !errors.Is(err, errTooMany) || !errors.Is(err, engine.ErrNotBelieved) {
		t.Errorf("of one: %v", err)
	}
	if _, err := (&session{engine: e}).List(t.Context()); !errors.Is(err, errTooMany) {
		t.Errorf("of all: %v", err)
	}
	s, err := source{e}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-s.Failed():
	case <-time.After(20 * time.Second):
	}
	if !errors.Is(err, errTooMany) {
		t.Errorf("of an event: %v", err)
	}
}

// TestEventsAreBounded: each event has the room of one, however many have come.
func TestEventsAreBounded(t *testing.T) {
	const most, events = 64 << 10, 20
	e := saying(t, func(w http.ResponseWriter, r *http.Request) {
		say := func(padding int) {
			_ = json.NewEncoder(w).Encode(map[string]any{"Type": "container", "Action": "start",
				"Actor": map[string]any{"ID": "0a", "Attributes": map[string]string{"a": strings.Repeat("x", padding)}}})
			_ = http.NewResponseController(w).Flush()
		}
		for range events {
			say(most / 4)
		}
		say(2 * most)
		<-r.Context().Done()
	})
	e.answers.mostListed = most
	s, err := source{e}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		select {
		case notice := <-s.Notices():
			if notice.Key != "0a" || n >= events {
				t.Fatalf("event %d: %+v", n, notice)
			}
		case err := <-s.Failed():
			if n < events-1 || !errors.Is(err, errTooLong) { // the last may be on its way
				t.Errorf("after %d events: %v", n, err)
			}
			return
		case <-time.After(20 * time.Second):
			t.Fatalf("nothing after %d events", n)
		}
	}
}

// TestEmptyPiecesOfALog: one is passed over; an engine that sends nothing else keeps no CPU busy.
func TestEmptyPiecesOfALog(t *testing.T) {
	piece := func(text string) []byte { return append([]byte{1, 0, 0, 0, 0, 0, 0, byte(len(text))}, text...) }
	follow := func(b []byte) *bufio.Reader {
		return bufio.NewReader(&demultiplexed{ReadCloser: io.NopCloser(bytes.NewReader(b))})
	}
	if line, err := follow(slices.Concat(piece("st"), piece(""), piece("ep 1\n"))).ReadString('\n'); line != "step 1\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := follow(bytes.Repeat(piece(""), 10_000)).ReadString('\n'); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("nothing but empty pieces: %v", err)
	}
}
