// Package rate counts the steps that jobs count themselves: lines of their logs
// that match the expression of the label trimtab.rate.log, and datagrams sent to
// a socket. docs/rate.md is for their owners.
//
// Both are hostile: a log is read for a bounded share of bytes and time, then
// rested from; a datagram belongs to the container of the process that the kernel
// says sent it, whatever it says. What a container cannot be read for costs that
// container's rate alone, and the log says why.
package rate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
)

// Options configures a Probe.
type Options struct {
	// Logs follows containers' logs; nil: no log is read.
	Logs Logs
	// Dir is the directory of the datagram socket, made if it is not there, never
	// removed: containers mount it. "": no socket.
	Dir string
	// Owner maps a host PID to runtime.Container.Key, "" for a process of the host. It is called from any goroutine.
	Owner func(pid int32) string
	// TasksByV1CPU takes a task's container from v1's cpu hierarchy, whose inode
	// Target.CgroupID then is: for hosts without a v2 tree.
	TasksByV1CPU bool
	// Logger takes what cannot be read, once for each container and cause; nil: none.
	Logger *slog.Logger
}

// container is one watched container.
type container struct {
	initPID int32
	log     *follower // nil: not asked for, or cannot be
}

// Probe counts the steps that jobs count themselves. Its methods are called from
// one goroutine.
type Probe struct {
	opts       Options
	listener   *listener // nil: none
	missing    []string
	containers map[string]*container

	mu       sync.Mutex
	problems map[string]map[string]string // by container, then by source
}

// New opens the socket. Where it cannot, logs are read all the same, and Missing
// says what is lost.
func New(opts Options) *Probe {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	p := &Probe{opts: opts, containers: map[string]*container{}, problems: map[string]map[string]string{}}
	if opts.Dir == "" {
		return p
	}
	var err error
	p.listener, err = listen(opts, func(key, problem string) { p.note(key, probes.SourceDatagram, problem) })
	if err != nil {
		p.listener = nil
		p.missing = []string{fmt.Sprintf("steps by datagram: %v", err)}
	} else if p.listener.refusal != nil {
		p.missing = []string{fmt.Sprintf("a share of the datagrams for each container: one that floods costs others theirs: %v", p.listener.refusal)}
	}
	return p
}

// Name is "rate".
func (p *Probe) Name() string { return "rate" }

// Missing names what this host does not give, each with why.
func (p *Probe) Missing() []string { return slices.Clone(p.missing) }

// Problem says why a container's own counts are not read, by source; nil: nothing is wrong.
func (p *Probe) Problem(key string) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems[key]) == 0 {
		return nil
	}
	return maps.Clone(p.problems[key])
}

var _ interface {
	Problem(key string) map[string]string
} = (*Probe)(nil) // the agent asks whether a probe is one

// Watch begins to count for a container. A log expression that cannot be used is
// logged and no error: its datagrams are counted all the same.
func (p *Probe) Watch(t probes.Target) error {
	if _, ok := p.containers[t.Key]; ok {
		return nil
	}
	c := &container{initPID: int32(t.InitPID)}
	p.containers[t.Key] = c
	if p.listener != nil {
		p.listener.watch(t)
	}
	if t.RateLog == "" {
		return nil
	}
	if p.opts.Logs == nil || t.ContainerID == "" {
		p.note(t.Key, probes.SourceLog, "this engine gives no logs")
		return nil
	}
	expression, err := compile(t.RateLog)
	if err != nil {
		p.note(t.Key, probes.SourceLog, err.Error())
		return nil
	}
	c.log = follow(p.opts.Logs, t.ContainerID, expression, func(problem string) { p.note(t.Key, probes.SourceLog, problem) })
	return nil
}

// Unwatch ends it.
func (p *Probe) Unwatch(key string) {
	c, ok := p.containers[key]
	if !ok {
		return
	}
	if c.log != nil {
		c.log.stop()
	}
	if p.listener != nil {
		p.listener.unwatch(key)
	}
	delete(p.containers, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.problems, key)
}

// Read adds Ticks to the Kernel parts that are there: it comes after the kernel probe.
func (p *Probe) Read(_ context.Context, into map[string]*probes.Sample) error {
	var err error
	if p.listener != nil && p.listener.shares != nil {
		err = p.listener.shares.deal(time.Now())
	}
	for key, c := range p.containers {
		sample := into[key]
		if sample == nil || sample.Kernel == nil {
			continue
		}
		ticks := sample.Kernel.Ticks
		if c.log != nil {
			ticks = appendTicks(ticks, probes.SourceLog, c.initPID, c.log.reading())
		}
		if p.listener != nil {
			for tgid, count := range p.listener.readings(key) {
				ticks = appendTicks(ticks, probes.SourceDatagram, tgid, count)
			}
		}
		slices.SortFunc(ticks, func(a, b probes.Ticks) int {
			return cmp.Or(cmp.Compare(a.TGID, b.TGID), cmp.Compare(a.Source, b.Source))
		})
		sample.Kernel.Ticks = ticks
	}
	return err
}

func appendTicks(ticks []probes.Ticks, source string, tgid int32, c counter) []probes.Ticks {
	if c.lastNs == 0 {
		return ticks
	}
	return append(ticks, probes.Ticks{Source: source, TGID: tgid, Count: c.count, LastNs: c.lastNs, Steps: true, EveryNs: c.everyNs})
}

// note keeps what is wrong with a container's source, and logs it when it is new;
// "" takes it back.
func (p *Probe) note(key, source, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problems[key][source] == problem {
		return
	}
	if problem == "" {
		delete(p.problems[key], source)
		p.opts.Logger.Info("the job's own count of steps is read again", "container", key, "source", source)
		return
	}
	if p.problems[key] == nil {
		p.problems[key] = map[string]string{}
	}
	p.problems[key][source] = problem
	p.opts.Logger.Warn("the job's own count of steps is not read", "container", key, "source", source, "problem", problem)
}

// Cost returns the datagrams that were dropped, and the memory of the socket's filter.
func (p *Probe) Cost() probes.Cost {
	if p.listener == nil {
		return probes.Cost{}
	}
	cost := probes.Cost{Lost: p.listener.lost()}
	if s := p.listener.shares; s != nil {
		cost.MapBytes = bpf.ObjectBytes(&s.objs)
	}
	return cost
}

// Close ends all goroutines and removes the socket.
func (p *Probe) Close() error {
	for key := range p.containers {
		p.Unwatch(key)
	}
	if p.listener == nil {
		return nil
	}
	if err := p.listener.stop(); err != nil {
		return errors.Join(errors.New("rate probe: close the socket"), err)
	}
	return nil
}
