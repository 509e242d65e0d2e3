package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
)

// boxEngine answers as much of Docker's API as finding containers takes, so that
// the daemon that is measured is the one that people run, its client included.
type boxEngine struct {
	socket string
	server *http.Server
	boxes  map[string]box
	list   []container.Summary
	done   chan error
}

// startEngine serves the boxes; it must be closed after the daemon.
func startEngine(dir string, all []box) (*boxEngine, error) {
	e := &boxEngine{socket: filepath.Join(dir, fmt.Sprintf("engine-%d", len(all))), boxes: map[string]box{}, done: make(chan error, 1)}
	for _, x := range all {
		e.boxes[x.id] = x
		e.list = append(e.list, container.Summary{ID: x.id, Names: []string{"/" + x.name()}, State: container.StateRunning})
	}
	listener, err := net.Listen("unix", e.socket)
	if err != nil {
		return nil, err
	}
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go func() { e.done <- e.server.Serve(listener) }()
	return e, nil
}

func (x box) name() string { return namePrefix + "box-" + x.shortID() }

func (e *boxEngine) close() error {
	err := e.server.Close()
	if served := <-e.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// ServeHTTP answers with API version 1.44, whose shapes the fields below have.
func (e *boxEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.44")
	w.Header().Set("Content-Type", "application/json")
	path := strings.TrimPrefix(r.URL.Path, "/v1.44")
	switch {
	case path == "/_ping":
	case path == "/events": // nothing ever happens
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the client notices
		<-r.Context().Done()
	case path == "/containers/json":
		answer(w, e.list)
	default:
		id := strings.TrimSuffix(strings.TrimPrefix(path, "/containers/"), "/json")
		x, ok := e.boxes[id]
		if !ok {
			http.Error(w, `{"message":"No such container"}`, http.StatusNotFound)
			return
		}
		answer(w, x.inspect())
	}
}

func answer(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v) // to a client that has gone
}

func (x box) inspect() container.InspectResponse {
	return container.InspectResponse{
		ID: x.id, Name: "/" + x.name(), Created: "2026-01-02T03:04:05Z",
		State:      &container.State{Status: container.StateRunning, Running: true, Pid: x.pid},
		Config:     &container.Config{Image: "box", Labels: map[string]string{"trimtab.mode": "observe"}},
		HostConfig: &container.HostConfig{},
	}
}
