package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/recording"
)

// TestRolesOnRecordings: what each process of real programs was taken for, and in how many windows:
// launchers, shells, pools and ranks. It is of recordings that hold what is known of processes;
// older ones do not. `-update` writes the table anew.
func TestRolesOnRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*.trimtab")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	var out bytes.Buffer
	for _, file := range files {
		seen, err := rolesOf(opened(t, file))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, name := range slices.Sorted(maps.Keys(seen)) {
			if !seen[name].told {
				continue
			}
			fmt.Fprintf(&out, "%s, %s in %d windows\n", strings.TrimSuffix(filepath.Base(file), ".trimtab"), name, seen[name].windows)
			for _, p := range slices.SortedFunc(maps.Values(seen[name].processes), func(a, b *processRoles) int { return int(a.tgid - b.tgid) }) {
				fmt.Fprintf(&out, "  %s\n", p)
			}
		}
	}
	const golden = "testdata/roles.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("roles differ (-want +got):\n%s", diff)
	}
}

// containerRoles is what the processes of a container were taken for.
type containerRoles struct {
	windows   int
	told      bool
	processes map[int32]*processRoles
}

// processRoles counts windows of one process, and those of its threads if it trains.
type processRoles struct {
	tgid, parent int32
	comm         string
	windows      map[string]int
	threads      map[string]int
}

func (p *processRoles) String() string {
	count := func(of map[string]int) string {
		var all []string
		for _, what := range slices.Sorted(maps.Keys(of)) {
			all = append(all, fmt.Sprintf("%s %d", what, of[what]))
		}
		return strings.Join(all, ", ")
	}
	text := fmt.Sprintf("%s %d below %d: %s", p.comm, p.tgid, p.parent, count(p.windows))
	if len(p.threads) > 0 {
		text += "; its other threads: " + count(p.threads)
	}
	return text
}

// rolesOf reads a recording's windows, by the names of the watched containers.
func rolesOf(r *recording.Reader) (map[string]*containerRoles, error) {
	out, states := map[string]*containerRoles{}, map[string]*observe.State{}
	for {
		kind, raw, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case kind != "tick":
			continue
		}
		var in control.Input
		if err := json.Unmarshal(raw, &in); err != nil {
			return nil, err
		}
		names := map[string]string{}
		for _, c := range in.Containers {
			if c.Watched {
				names[c.Key()] = c.Name
			}
		}
		for _, s := range in.Samples {
			name, ok := names[s.Container]
			if !ok {
				continue
			}
			if states[s.Container] == nil {
				states[s.Container] = &observe.State{}
			}
			if closed := states[s.Container].Add(policies.DefaultConstants(), s, in.Host, true, 0, false).Closed; closed != nil && closed.Window.HasKernel {
				if out[name] == nil {
					out[name] = &containerRoles{processes: map[int32]*processRoles{}}
				}
				out[name].add(closed.Window)
			}
		}
	}
}

func (c *containerRoles) add(w *observe.Window) {
	c.windows++
	c.told = c.told || len(w.Facts) > 0
	names := map[observe.Role]string{observe.RoleLoader: "loader", observe.RoleRelay: "relay", observe.RoleHelper: "helper", observe.RoleCommunicator: "communicator"}
	was := map[int32]string{} // in this window
	for _, t := range w.Threads {
		was[t.TGID] = "outside"
		if c.processes[t.TGID] == nil {
			c.processes[t.TGID] = &processRoles{tgid: t.TGID, windows: map[string]int{}, threads: map[string]int{}}
		}
		if p := c.processes[t.TGID]; t.TID == t.TGID {
			p.comm, p.parent = t.Comm, t.PPID
		}
	}
	for _, r := range observe.Ranks(policies.DefaultConstants(), w) {
		was[r.Root] = "trains"
		for i, role := range r.Roles {
			switch t := w.Threads[i]; {
			case names[role] == "":
			case t.TGID == r.Root:
				c.processes[t.TGID].threads[names[role]]++
			default:
				was[t.TGID] = names[role]
			}
		}
	}
	for tgid, what := range was {
		c.processes[tgid].windows[what]++
	}
}
