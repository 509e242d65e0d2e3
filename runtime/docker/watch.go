package docker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
)

const (
	// firstRetry and lastRetry bound the wait between attempts to reach Docker: it
	// restarts within a second, and a host without it should not be bothered.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// watched are the events after which a container is looked at again. The rest,
// above all exec's, which health checks make many of, stays in Docker.
//
//trimtab:table an array of names, only read
var watched = [...]events.Action{events.ActionStart, events.ActionRestart, events.ActionPause, events.ActionUnPause,
	events.ActionRename, events.ActionUpdate, events.ActionDie, events.ActionDestroy}

// watcher is the state of one Run.
type watcher struct {
	engine *Engine
	sink   func(runtime.Event)
	known  map[string]runtime.Container // by Docker's ID: seen and not gone
	broken map[string]bool              // by Docker's ID: run, but their control group cannot be found
	synced bool                         // the engine answers
	lost   bool                         // EventLost is out, EventSynced not yet
}

// Run implements runtime.Engine. An event of a container that changed fast tells
// what it is when it is looked at, so states may be skipped, never reordered.
func (e *Engine) Run(ctx context.Context, sink func(runtime.Event)) error {
	w := &watcher{engine: e, sink: sink, known: make(map[string]runtime.Container), broken: make(map[string]bool)}
	retry := firstRetry
	for {
		err := w.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.synced {
			retry = firstRetry
		}
		w.noteLost(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retry/2 + rand.N(retry)): // jitter: not in step with others that wait
		}
		retry = min(2*retry, lastRetry)
		w.dropDead()
	}
}

// session follows the engine until the connection breaks.
func (w *watcher) session(ctx context.Context) error {
	w.synced = false
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream's goroutine
	stream, err := w.subscribe(ctx)
	if err != nil {
		return err
	}
	if err := w.list(ctx, w.announce); err != nil {
		return err
	}
	w.synced = true
	w.noteSynced()
	relist := time.NewTicker(w.engine.opts.RelistEvery)
	defer relist.Stop()
	for {
		select {
		case message := <-stream.Messages:
			err = w.handle(ctx, message)
		case err = <-stream.Err:
			if err == nil {
				err = errors.New("the event stream ended")
			}
		case <-relist.C:
			err = w.list(ctx, w.see)
		}
		if err != nil {
			return err
		}
	}
}

// subscribe opens the event stream before the listing, so nothing falls between.
// The client waits for the stream's header without a limit; a ping has one, and
// settles the API version.
func (w *watcher) subscribe(ctx context.Context) (client.EventsResult, error) {
	ping, cancel := context.WithTimeout(ctx, w.engine.opts.CallTimeout)
	defer cancel()
	if _, err := w.engine.client.Ping(ping, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return client.EventsResult{}, err
	}
	filters := make(client.Filters).Add("type", string(events.ContainerEventType))
	for _, action := range watched {
		filters.Add("event", string(action))
	}
	opened := make(chan client.EventsResult, 1)
	streamCtx, stop := context.WithCancel(ctx)
	go func() { opened <- w.engine.client.Events(streamCtx, client.EventsListOptions{Filters: filters}) }()
	select {
	case stream := <-opened:
		context.AfterFunc(ctx, stop)
		return stream, nil
	case <-ping.Done():
		stop()
		<-opened
		return client.EventsResult{}, fmt.Errorf("no event stream within %s: %w", w.engine.opts.CallTimeout, ping.Err())
	}
}

// list looks at all running containers and hands each to found; those known that
// are not listed are gone.
func (w *watcher) list(ctx context.Context, found func(runtime.Container)) error {
	call, cancel := context.WithTimeout(ctx, w.engine.opts.CallTimeout)
	defer cancel()
	answer, err := w.engine.client.ContainerList(call, client.ContainerListOptions{})
	if err != nil {
		return err
	}
	listed := make(map[string]bool, len(answer.Items))
	for _, item := range answer.Items {
		listed[item.ID] = true
		if err := w.look(ctx, item.ID, found); err != nil {
			return err
		}
	}
	for id, c := range w.known {
		if !listed[id] {
			w.gone(c)
		}
	}
	for id := range w.broken {
		if !listed[id] {
			delete(w.broken, id)
		}
	}
	return nil
}

// handle looks at the container that an event is about.
func (w *watcher) handle(ctx context.Context, m events.Message) error {
	id := m.Actor.ID
	if id == "" {
		return nil
	}
	if err := w.look(ctx, id, w.see); err != nil {
		return err
	}
	if c, running := w.known[id]; running && m.Action == events.ActionUpdate {
		w.emit(runtime.Event{Kind: runtime.EventUpdate, Container: c})
	}
	return nil
}

// look asks Docker for one container: found gets it if it runs; else it is gone.
// Only an engine that does not answer is an error.
func (w *watcher) look(ctx context.Context, id string, found func(runtime.Container)) error {
	ctx, cancel := context.WithTimeout(ctx, w.engine.opts.CallTimeout)
	defer cancel()
	c, err := w.engine.inspect(ctx, id)
	known, isKnown := w.known[id]
	switch {
	case err == nil:
		delete(w.broken, id)
		if isKnown && known.ID != c.ID {
			w.gone(known)
		}
		found(c)
		return nil
	case errors.Is(err, runtime.ErrGone) || errdefs.IsNotFound(err):
		if isKnown {
			w.gone(known)
		}
		return nil
	case errors.Is(err, errUnplaced):
		if !w.broken[id] {
			w.broken[id] = true
			w.engine.opts.Logger.Warn("a container cannot be watched", "container", id, "reason", err)
		}
		return nil
	}
	return err
}

// see tells the sink what is new.
func (w *watcher) see(c runtime.Container) {
	if known, ok := w.known[c.ID.Container]; !ok || !reflect.DeepEqual(known, c) {
		w.announce(c)
	}
}

// announce tells the sink even what it knows, as a first listing does.
func (w *watcher) announce(c runtime.Container) {
	w.known[c.ID.Container] = c
	w.emit(runtime.Event{Kind: runtime.EventSeen, Container: c})
}

func (w *watcher) gone(c runtime.Container) {
	delete(w.known, c.ID.Container)
	w.emit(runtime.Event{Kind: runtime.EventGone, Container: c})
}

// dropDead notices, while Docker is away, which containers have ended with it.
func (w *watcher) dropDead() {
	for _, c := range w.known {
		if errors.Is(w.engine.alive(c), runtime.ErrGone) {
			w.gone(c)
		}
	}
}

func (w *watcher) noteLost(err error) {
	if w.lost {
		return
	}
	w.lost = true
	reason := fmt.Sprintf("Docker does not answer at %s (%v); waiting for it: start it with \"systemctl start docker\", or correct its address",
		w.engine.opts.Host, err)
	w.engine.opts.Logger.Warn("Docker does not answer; waiting for it", "host", w.engine.opts.Host, "reason", err)
	w.emit(runtime.Event{Kind: runtime.EventLost, Reason: reason})
}

func (w *watcher) noteSynced() {
	if w.lost {
		w.engine.opts.Logger.Info("Docker answers", "host", w.engine.opts.Host, "containers", len(w.known))
	}
	w.lost = false
	w.emit(runtime.Event{Kind: runtime.EventSynced})
}

func (w *watcher) emit(event runtime.Event) {
	event.Engine = EngineName
	w.sink(event)
}
