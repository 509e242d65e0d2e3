package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
	"github.com/trimtab/trimtab/tuner/recording/play"
)

// recorder is the flight recorder, with copies to whoever asks for one.
type recorder struct {
	*recording.Ring
	state play.State

	mu     sync.Mutex
	config json.RawMessage
	tees   map[tee]struct{}
}

// maxTees bounds recordings at once: each has ticks of all containers in memory.
const maxTees = 2

// tee is one recording in the making. Its queue is bounded; a reader that is too
// slow ends it, so that it has no holes.
type tee chan teeRecord

type teeRecord struct {
	kind string
	v    any
}

func openRecorder(dir string, maxBytes int64, cfg control.Config) (*recorder, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	r := &recorder{config: text, tees: map[tee]struct{}{}}
	if r.Ring, err = recording.OpenRing(dir, recording.RingOptions{MaxBytes: maxBytes, Header: r.header}); err != nil {
		return nil, err
	}
	return r, nil
}

// header begins a stream here.
func (r *recorder) header() recording.Header {
	r.mu.Lock()
	config := r.config
	state, err := json.Marshal(r.state)
	r.mu.Unlock()
	if err != nil {
		panic(err) // strings, numbers, and JSON that was just made
	}
	boot, _ := cgroup.BootID("/proc") // "" says that it is not known
	return recording.Header{Trimtab: version(), WallUnixNs: time.Now().UnixNano(), MonoNs: procfs.MonotonicNs(), Boot: boot, Arch: goruntime.GOARCH,
		Config: config, State: state}
}

// Write implements agent.Recorder.
func (r *recorder) Write(kind string, v any) error {
	r.mu.Lock()
	if cfg, ok := v.(control.Config); ok { // a reload: segments from here on begin with it
		if text, err := json.Marshal(cfg); err == nil {
			r.config = text
		}
	}
	for t := range r.tees {
		select {
		case t <- teeRecord{kind, v}:
		default:
			close(t)
			delete(r.tees, t)
		}
	}
	r.mu.Unlock()
	return r.Ring.Write(kind, v)
}

// Tee writes what comes in from now on, for so long, to w.
func (r *recorder) Tee(ctx context.Context, w io.Writer, d time.Duration) error {
	t := make(tee, 64)
	r.mu.Lock()
	full := len(r.tees) >= maxTees
	if !full {
		r.tees[t] = struct{}{}
	}
	r.mu.Unlock()
	if full {
		return fmt.Errorf("%d recordings run already: wait for one to end, or end it", maxTees)
	}
	defer func() {
		r.mu.Lock()
		delete(r.tees, t)
		r.mu.Unlock()
	}()
	out, err := recording.NewWriter(w, r.header()) // it takes memory: for those alone who have a place
	if err != nil {
		return err
	}
	end := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return out.Close()
		case rec, ok := <-t:
			if !ok {
				return fmt.Errorf("the recording ended early: its reader was too slow")
			}
			if err := out.Write(rec.kind, rec.v); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

func recordCommand() *cobra.Command {
	var d time.Duration
	var flight bool
	cmd := &cobra.Command{
		Use:   "record FILE",
		Short: "Record what the daemon sees and decides, for `trimtab replay` and bug reports",
		Long: "Record the next stretch through the running daemon. --flight copies the flight recorder instead: the\n" +
			"last stretch, also of a daemon that died. A recording holds names of containers, images and threads,\n" +
			"what trimtab's labels ask for, and where a container has its only network mount.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeWhole(args[0], 0o600, func(w io.Writer) error {
				if flight {
					return copyFlight(cmd, w)
				}
				_, stop := startProgress(cmd.ErrOrStderr(), recordingLeft(d))
				defer stop()
				return daemonClient(cmd).Record(cmd.Context(), w, d)
			})
		},
	}
	cmd.Flags().DurationVar(&d, "for", 60*time.Second, "how long to record")
	cmd.Flags().BoolVar(&flight, "flight", false, "copy the flight recorder instead")
	cmd.Flags().String("state-dir", "", "where the daemon keeps its state; default from the config")
	return cmd
}

// recordingLeft says how long a recording of d still takes.
func recordingLeft(d time.Duration) func(elapsed time.Duration) string {
	return func(elapsed time.Duration) string {
		return fmt.Sprintf("recording: %d s left", int(max(d-elapsed, 0).Round(time.Second).Seconds()))
	}
}

// copyFlight joins the segments of the newest run.
func copyFlight(cmd *cobra.Command, w io.Writer) error {
	dir, err := stateDir(cmd)
	if err != nil {
		return err
	}
	all, err := recording.List(filepath.Join(dir, "flight"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no flight recording in %s: the daemon has not run there (--state-dir says where else), or record.ring is 0", dir)
	}
	return recording.Join(w, recording.LastRun(all))
}

// stateDir is the flag's, else the config's.
func stateDir(cmd *cobra.Command) (string, error) {
	if dir, err := cmd.Flags().GetString("state-dir"); err == nil && dir != "" {
		return dir, nil
	}
	cfg, _, err := config.Load(config.DefaultFile, config.DefaultDropDir)
	return cfg.StateDir, err
}
