package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
)

// recorder keeps what one daemon read and decided, for `trimtab replay`.
type recorder struct {
	mu   sync.Mutex
	file *os.File
	out  *recording.Writer
}

// begin begins dir/gpu-NAME.trimtab; epoch is the agent's, in plan IDs.
func (r *recorder) begin(dir, name, epoch string, cfg control.Config) error {
	config, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	state, err := json.Marshal(map[string]string{"epoch": epoch})
	if err != nil {
		return err
	}
	boot, _ := cgroup.BootID("/proc") // "" says that it is not known
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, "gpu-"+name+".trimtab"))
	if err != nil {
		return err
	}
	out, err := recording.NewWriter(file, recording.Header{Trimtab: "gpu-check", WallUnixNs: time.Now().UnixNano(), MonoNs: procfs.MonotonicNs(),
		Boot: boot, Arch: goruntime.GOARCH, Config: config, State: state})
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", file.Name(), err), file.Close())
	}
	r.file, r.out = file, out
	return nil
}

// Write implements agent.Recorder; it may block for a disk, which a check can bear.
func (r *recorder) Write(kind string, v any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(kind, v)
}

func (r *recorder) close() error { return errors.Join(r.out.Close(), r.file.Close()) }
