// Package api serves the daemon's state and takes operators' wishes over HTTP on
// a Unix socket: /v1, JSON, additive only. Who may look and who may act is
// decided by the kernel's word on the peer (SO_PEERCRED and SO_PEERGROUPS), once
// for each connection; the socket itself is open to all, because two groups do
// not fit into one mode. docs/api.md lists the routes.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// Backend is the daemon behind the API. Its methods may be called concurrently.
// An *Error is passed on as it is; any other error is answered with status 500.
type Backend interface {
	// Snapshot is the latest state, or nil while the daemon starts.
	Snapshot() *state.Snapshot
	// History returns what fits, oldest first; with a limit, the newest of it.
	History(ctx context.Context, q HistoryQuery) ([]state.Record, error)
	// Series returns the last hour of a container that runs, by its key, oldest first.
	Series(key string) []series.Point
	// Report adds up what devices and CPUs were worth.
	Report(ctx context.Context, q ReportQuery) (state.Report, error)
	Enable(ctx context.Context, req state.EnableRequest) ([]state.ActionResult, error)
	Disable(ctx context.Context, req state.EnableRequest) ([]state.ActionResult, error)
	// Restore gives originals back and holds until Resume; "" means every container.
	Restore(ctx context.Context, name string) ([]state.ActionResult, error)
	// Resume lifts a hold; "" lifts all of them, and a pause.
	Resume(ctx context.Context, name string) ([]state.ActionResult, error)
	// Pause freezes every value as it stands, also over a reboot.
	Pause(ctx context.Context) error
	// GPUs tells how each container that holds a GPU has each device.
	GPUs(ctx context.Context) ([]state.GPUVisibility, error)
	// Fingerprints lists the known jobs, by number; Forget drops some.
	Fingerprints(ctx context.Context) ([]state.Fingerprint, error)
	Forget(ctx context.Context, req state.ForgetRequest) ([]state.ActionResult, error)
	// Place ranks the host's devices for jobs that are to start, and may hold some for a minute.
	Place(ctx context.Context, req state.PlaceRequest) (state.Placement, error)
	// HideGPU and ShowGPU change what a running container may open.
	HideGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error)
	ShowGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error)
	// Record writes a recording of the next stretch to w, and returns when it is whole.
	Record(ctx context.Context, w io.Writer, d time.Duration) error
}

// HistoryQuery selects records of history.
type HistoryQuery struct {
	SinceUnixNs int64  // 0: from the beginning
	UntilUnixNs int64  // and not after it; 0: to the newest
	Changed     bool   // only records of values that changed
	Name        string // of the container: all that bore it; or its key; "": all
	Limit       int    // the newest so many; 0: state.MaxRecords
}

// Status answers GET /v1/status.
type Status struct {
	UnixNs     int64         `json:"time"`
	Daemon     state.Daemon  `json:"daemon"`
	Node       policies.Node `json:"node"`
	Containers Numbers       `json:"containers"`
	Totals     state.Totals  `json:"totals"`
}

// Numbers counts containers.
type Numbers struct {
	Running int `json:"running"`
	Watched int `json:"watched"`
	Tuned   int `json:"tuned"`   // enrolled for tuning
	Changed int `json:"changed"` // with a knob at trimtab's value
	Pending int `json:"owed"`    // whose restore is pending
}

// Containers answers GET /v1/containers.
type Containers struct {
	UnixNs     int64             `json:"time"`
	Containers []state.Container `json:"containers"`
}

// History answers GET /v1/history.
type History struct {
	Records []state.Record `json:"records"`
}

// Results answers the POST routes.
type Results struct {
	Results []state.ActionResult `json:"results"`
}

// NameRequest is the body of POST /v1/restore and /v1/resume.
type NameRequest struct {
	Name string `json:"name,omitempty"` // "": all
}

// Error is what went wrong, and what to do about it.
type Error struct {
	Status int    `json:"-"` // of HTTP
	Text   string `json:"error"`
	Hint   string `json:"hint,omitempty"`
}

// Error says it in one line.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Text
	}
	return e.Text + ": " + e.Hint
}

// NotFound is the error for a container that is not there.
func NotFound(name string) *Error {
	return &Error{http.StatusNotFound, fmt.Sprintf("no running container is named %q", name), "`trimtab ps` lists all"}
}

// BadRequest is the error for what was asked wrongly.
func BadRequest(text, hint string) *Error { return &Error{http.StatusBadRequest, text, hint} }

// Find returns the container with a key, a name or an ID, or the only one whose ID starts so. Of two
// of one name, which anybody may give, it returns neither. Errors are *Error.
func Find(s *state.Snapshot, word string) (state.Container, error) {
	found, begun := runtime.Find(s.Containers, word, func(c state.Container) (key, name, id string) { return c.Key, c.Name, c.ID })
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		no := NotFound(word)
		for _, e := range s.Daemon.Engines {
			if !e.OK {
				no.Hint += fmt.Sprintf("; what %s runs is not known: %s", e.Name, e.Lost)
			}
		}
		return state.Container{}, no
	case begun:
		return state.Container{}, &Error{http.StatusConflict, fmt.Sprintf("%d containers have an ID that starts with %q", len(found), word), "write more of it"}
	}
	return state.Container{}, &Error{http.StatusConflict, fmt.Sprintf("%d containers are named %q", len(found), word), "say which by its key, such as " + found[0].Key}
}

// status gathers what Status holds.
func status(s *state.Snapshot) any {
	out := Status{UnixNs: s.UnixNs, Daemon: s.Daemon, Node: s.Node, Totals: s.Totals}
	out.Daemon.Virtual = s.Daemon.Virtual || s.Virtual
	count := func(n *int, ok bool) {
		if ok {
			*n++
		}
	}
	for _, c := range s.Containers {
		out.Containers.Running++
		count(&out.Containers.Watched, c.Watched)
		count(&out.Containers.Tuned, c.Enrolment.Mode == policies.ModeTune)
		count(&out.Containers.Changed, len(c.Changed) > 0)
		count(&out.Containers.Pending, c.Pending != "")
	}
	return out
}

// asError makes any error one that can be answered.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{http.StatusGatewayTimeout, "the daemon took too long: " + err.Error(), "look at its log; nothing is lost, it goes on"}
	}
	return &Error{http.StatusInternalServerError, err.Error(), ""}
}
