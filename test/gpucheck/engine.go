package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	runc "github.com/containerd/containerd/api/types/runc/options"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
)

// namespace of the check's containers.
const namespace = "trimtab-gpucheck"

// site is the check's own containerd, and trimtab's engine over it.
type site struct {
	ctrd *ctrd.Daemon
	runc string // the path of the program

	engine *containerd.Engine
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	seen map[string]runtime.Container // by ID, as the engine tells of them
}

// newSite starts it in dir, with the programs of bin, or of PATH where it has none.
func newSite(ctx context.Context, dir, bin string, log *slog.Logger) (*site, error) {
	h := &site{seen: map[string]runtime.Container{}, ended: make(chan struct{})}
	var err error
	if h.runc, err = ctrd.Find(bin, "runc"); err != nil {
		return nil, err
	}
	if h.ctrd, err = ctrd.New(ctrd.Options{Dir: dir, Bin: bin}); err != nil {
		return nil, err
	}
	if err := h.ctrd.Start(ctx); err != nil {
		return nil, err
	}
	if h.engine, err = h.newEngine(log); err != nil {
		return nil, errors.Join(err, h.ctrd.Stop())
	}
	ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(h.ended)
		_ = h.engine.Run(ctx, h.see) // ends with ctx
	}()
	return h, nil
}

// newEngine is the daemon's own engine for containerd.
func (h *site) newEngine(log *slog.Logger) (*containerd.Engine, error) {
	return containerd.New(containerd.Options{Address: h.ctrd.Address(), Namespaces: []string{namespace}, Logger: log})
}

func (h *site) see(e runtime.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Kind {
	case runtime.EventSeen:
		h.seen[e.Container.ID.Container] = e.Container
	case runtime.EventGone:
		delete(h.seen, e.Container.ID.Container)
	}
}

// await waits until the engine tells of a container.
func (h *site) await(ctx context.Context, id string, ended <-chan struct{}) (runtime.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	for {
		h.mu.Lock()
		c, ok := h.seen[id]
		h.mu.Unlock()
		if ok {
			return c, nil
		}
		select {
		case <-ended:
			return c, errors.New("it ended at once")
		case <-ctx.Done():
			return c, fmt.Errorf("trimtab's engine did not tell of it within %s", readPatience)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run makes a container and starts its process, whose words go to the pipe.
func (h *site) run(ctx context.Context, c ctrd.Container, pipe string) error {
	c.Namespace, c.Runc = namespace, &runc.Options{BinaryName: h.runc}
	if err := h.ctrd.Create(ctx, c); err != nil {
		return err
	}
	return h.ctrd.StartTask(ctx, namespace, &tasks.CreateTaskRequest{ContainerID: c.ID, Stdout: pipe, Stderr: pipe})
}

// callLimit bounds one call of the check's to its containerd.
const callLimit = 30 * time.Second

// wait returns once the container's first process ended, or cannot be waited for.
func (h *site) wait(id string) {
	_, _ = h.ctrd.Tasks().Wait(ctrd.In(context.Background(), namespace), &tasks.WaitRequest{ContainerID: id})
}

func (h *site) signal(ctx context.Context, id string, sig unix.Signal) error {
	ctx, cancel := context.WithTimeout(ctrd.In(ctx, namespace), callLimit)
	defer cancel()
	if _, err := h.ctrd.Tasks().Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(sig)}); err != nil {
		return fmt.Errorf("container %s: %s: %w", id, sig, err)
	}
	return nil
}

// remove ends a container and forgets it. What containerd cannot end any more, runc does.
func (h *site) remove(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	err := h.ctrd.End(ctx, namespace, id)
	if err != nil {
		_ = exec.Command(h.runc, "--root", filepath.Join(h.ctrd.RuncRoot(), namespace), "delete", "--force", id).Run() // err tells
	}
	return errors.Join(err, h.ctrd.Remove(ctx, namespace, id))
}

// close ends the engine and containerd; containers have been removed.
func (h *site) close() error {
	h.cancel()
	<-h.ended
	return h.ctrd.Stop()
}
