package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/config"
)

// closableEngine is an engine that holds connections.
type closableEngine interface {
	runtime.Engine
	Close() error
}

// engines are those that config names; a host may have several at once.
type engines []closableEngine

// openEngines makes them; none is called. Docker's containers are Docker's alone:
// containerd's engine leaves its namespace out while both are on.
func openEngines(cfg config.Config, log *slog.Logger) (engines, error) {
	var out engines
	var except []string
	if cfg.Docker.Enabled {
		d, err := docker.New(docker.Options{Host: cfg.Docker.Host, ContainerdAddress: cfg.Docker.Containerd, ImageLabels: cfg.Docker.ImageLabels, Logger: log})
		if err != nil {
			return nil, fmt.Errorf("docker: %w", err)
		}
		out = append(out, d)
		except = append(except, containerd.DockerNamespace)
	}
	if cfg.Containerd.Enabled {
		c, err := containerd.New(containerd.Options{Address: cfg.Containerd.Address, Namespaces: cfg.Containerd.Namespaces, Except: except, Logger: log})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("containerd: %w", err), out.Close())
		}
		out = append(out, c)
	}
	return out, nil
}

// Close closes all.
func (all engines) Close() error {
	var errs []error
	for _, e := range all {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

func (all engines) list() (out []runtime.Engine) {
	for _, e := range all {
		out = append(out, e)
	}
	return out
}

func (all engines) byName() map[string]actuator.Engine {
	out := make(map[string]actuator.Engine, len(all))
	for _, e := range all {
		out[e.Name()] = e
	}
	return out
}

// Logs follows what a container logs, where an engine keeps logs: Docker does.
func (all engines) Logs(ctx context.Context, containerID string) (io.ReadCloser, error) {
	for _, e := range all {
		if keeper, ok := e.(interface {
			Logs(context.Context, string) (io.ReadCloser, error)
		}); ok {
			return keeper.Logs(ctx, containerID)
		}
	}
	return nil, fmt.Errorf("container %.12s: containerd keeps no log; count steps by datagram instead", containerID)
}

// listing is what the engines run.
type listing struct {
	running []runtime.Container
	synced  []string // the engines that listed all they have
	err     error    // why others did not
}

// listAll asks all engines at once.
func listAll(ctx context.Context, all []runtime.Engine) listing {
	var out listing
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Go(func() {
			running, err := listRunning(ctx, e)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.err = errors.Join(out.err, err)
				return
			}
			out.running = append(out.running, running...)
			out.synced = append(out.synced, e.Name())
		})
	}
	wg.Wait()
	slices.Sort(out.synced)
	return out
}
