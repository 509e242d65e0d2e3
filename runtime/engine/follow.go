package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/trimtab/trimtab/runtime"
)

const (
	// firstRetry and lastRetry bound the wait between attempts to reach a runtime: it
	// restarts within a second, and a host without it should not be bothered.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 15 * time.Second
	// lookers is how many containers a listing asks about at once; each that hangs brings one more,
	// so that none keeps others waiting. As many that hang, and nobody who answers, are a runtime that hangs.
	lookers = 16
	// maxContainers is far above what a host runs: who tells of more is broken, or means harm.
	maxContainers  = 8192
	maxReasonBytes = 1024 // of why a runtime is lost
)

var errTooMany = fmt.Errorf("it tells of more than %d containers", maxContainers)

// Source is a runtime that can be followed.
type Source interface {
	// Open connects and opens the event stream, both within the source's own time
	// limit; the session ends with ctx and leaves nothing behind.
	Open(ctx context.Context) (Session, error)
}

// Session is one connection to a runtime. Only one goroutine calls it, but for Inspect,
// which is called by several at once. Its keys end with the container's ID, after a slash
// where there is more to them.
type Session interface {
	// List names all containers that may run.
	List(ctx context.Context) (keys []string, err error)
	// Inspect looks at one. ErrGone (or errdefs' not found): it does not run;
	// ErrUnplaced, ErrNotBelieved: it cannot be watched; any other error: the runtime does not answer.
	Inspect(ctx context.Context, key string) (runtime.Container, error)
	// Notices names containers to which something happened since Open.
	Notices() <-chan Notice
	// Failed tells once why the stream of notices ended.
	Failed() <-chan error
}

// Notice says that a container is to be looked at again.
type Notice struct {
	Key     string
	Updated bool // somebody changed its resources
}

// Options configures Follow; all fields are needed.
type Options struct {
	Engine      string // its Name
	Title       string // for people: "Docker"
	Address     string
	Hint        string // what to do where it does not answer
	Logger      *slog.Logger
	CallTimeout time.Duration // of each look and each listing
	RelistEvery time.Duration // time between listings that find what a stream lost, and notice a runtime that hangs
	Host        Host
	IsKey       func(string) bool // its session's keys are such
}

// watcher is the state of one Follow.
type watcher struct {
	o      Options
	source Source
	sink   func(runtime.Event)
	known  map[string]runtime.Container // by key: seen and not gone; without Start, which may be megabytes of each
	broken map[string]bool              // by key: run, but their control group cannot be found
	synced bool                         // the runtime answers
	lost   bool                         // EventLost is out, EventSynced not yet
	odd    bool                         // a word that is no ID has been logged
}

// Follow is runtime.Engine's Run. An event of a container that changed fast tells
// what it is when it is looked at, so states may be skipped, never reordered.
func Follow(ctx context.Context, source Source, o Options, sink func(runtime.Event)) error {
	w := &watcher{o: o, source: source, sink: sink, known: make(map[string]runtime.Container), broken: make(map[string]bool)}
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

// session follows the runtime until the connection breaks. The stream is open
// before the listing, so nothing falls between.
func (w *watcher) session(ctx context.Context) error {
	w.synced = false
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the session
	s, err := w.source.Open(ctx)
	if err != nil {
		return err
	}
	if err := w.list(ctx, s, w.announce); err != nil {
		return err
	}
	w.synced = true
	w.noteSynced()
	relist := time.NewTicker(w.o.RelistEvery)
	defer relist.Stop()
	for {
		select {
		case notice := <-s.Notices():
			err = w.handle(ctx, s, notice)
		case err = <-s.Failed():
			if err == nil {
				err = errors.New("the event stream ended")
			}
		case <-relist.C:
			err = w.list(ctx, s, w.see)
		}
		if err != nil {
			return err
		}
	}
}

// found is told of a container that runs.
type found func(key string, c runtime.Container)

// list looks at all running containers and hands each to tell; those known that
// are not listed are gone.
func (w *watcher) list(ctx context.Context, s Session, tell found) error {
	call, cancel := context.WithTimeout(ctx, w.o.CallTimeout)
	defer cancel()
	keys, err := s.List(call)
	if err != nil {
		return err
	}
	if len(keys) > maxContainers {
		return errTooMany
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !w.named(key) })
	listed := make(map[string]bool, len(keys))
	asking, stop := context.WithCancel(ctx)
	answers, ended := w.askAll(asking, s, keys)
	defer ended()
	defer stop()
	var silent []answer
	for range keys {
		a := <-answers
		if listed[a.key] = true; errors.Is(a.err, errSilent) {
			silent = append(silent, a)
		} else if err := w.take(a, tell); err != nil {
			return err
		}
	}
	if len(silent) == len(keys) && len(silent) >= lookers {
		return silent[0].err
	}
	for _, a := range silent {
		if err := w.take(a, tell); err != nil {
			return err
		}
	}
	for key, c := range w.known {
		if !listed[key] {
			w.gone(key, c)
		}
	}
	maps.DeleteFunc(w.broken, func(key string, _ bool) bool { return !listed[key] })
	return nil
}

// handle looks at the container that an event is about.
func (w *watcher) handle(ctx context.Context, s Session, n Notice) error {
	if len(w.known)+len(w.broken) > 2*maxContainers { // since the latest listing, which forgets those that are not in it
		return errTooMany
	}
	if !w.named(n.Key) {
		return nil
	}
	if err := w.take(w.ask(ctx, s, n.Key), w.see); err != nil {
		return err
	}
	if c, running := w.known[n.Key]; running && n.Updated {
		w.emit(runtime.Event{Kind: runtime.EventUpdate, Container: c})
	}
	return nil
}

// named tells a key with an ID. Another word is asked nothing about and not kept: the runtime is asked
// by an ID in a path, and files and control groups are found by it.
func (w *watcher) named(key string) bool {
	if w.o.IsKey(key) {
		return true
	}
	if !w.odd {
		w.odd = true
		w.o.Logger.Warn(w.o.Title+" tells of a container whose ID is none: such are not looked at", "id", fmt.Sprintf("%.128q", key))
	}
	return false
}

// idOf is the ID that a key ends with.
func idOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// answer is what a runtime says of one container.
type answer struct {
	key string
	c   runtime.Container
	err error
}

// errSilent: nothing was said of a container in time.
var errSilent = errors.New("nothing is said of it in time")

// ask asks for one container. Silence about it is its own trouble: a runtime that hangs is found by the
// next listing.
func (w *watcher) ask(ctx context.Context, s Session, key string) answer {
	call, cancel := context.WithTimeout(ctx, w.o.CallTimeout)
	defer cancel()
	c, err := s.Inspect(call, key)
	if err != nil && ctx.Err() == nil && (call.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		err = fmt.Errorf("%w: %w: %w", ErrUnplaced, errSilent, err)
	}
	if err == nil && c.ID.Container != idOf(key) {
		err = fmt.Errorf("%w: asked about one container it tells of another, %.64q", ErrNotBelieved, c.ID.Container)
	}
	return answer{key: key, c: c, err: err}
}

// askAll asks for all, some at once, and more at once the more are silent: if all are, seven times
// CallTimeout are enough for two thousand. Each has one answer. ended waits for those who ask, which end with ctx.
func (w *watcher) askAll(ctx context.Context, s Session, keys []string) (answers <-chan answer, ended func()) {
	out, next := make(chan answer, len(keys)), make(chan string, len(keys))
	for _, key := range keys {
		next <- key
	}
	close(next)
	var asking sync.WaitGroup
	var look func()
	look = func() {
		for key := range next {
			a := w.ask(ctx, s, key)
			if out <- a; errors.Is(a.err, errSilent) {
				asking.Go(look)
			}
		}
	}
	for range min(lookers, len(keys)) {
		asking.Go(look)
	}
	return out, asking.Wait
}

// take takes in what was said: tell gets a container that runs; else it is gone. Only a
// runtime that does not answer is an error.
func (w *watcher) take(a answer, tell found) error {
	key, c, err := a.key, a.c, a.err
	known, isKnown := w.known[key]
	switch {
	case err == nil:
		if w.broken[key] { // when all were told anew it was not
			tell = w.announce
			delete(w.broken, key)
		}
		if isKnown && known.ID != c.ID {
			w.gone(key, known)
		}
		tell(key, c)
		return nil
	case errors.Is(err, runtime.ErrGone) || errdefs.IsNotFound(err):
		delete(w.broken, key)
		if isKnown {
			w.gone(key, known)
		}
		return nil
	case errors.Is(err, ErrUnplaced) || errors.Is(err, ErrNotBelieved):
		if !w.broken[key] {
			w.broken[key] = true
			w.o.Logger.Warn("a container cannot be watched", "container", key, "reason", err)
		}
		if !isKnown {
			return nil
		}
		if alive := w.o.Host.Alive(known); alive == nil { // who is not told of before EventSynced is taken for gone
			tell(key, known)
		} else if errors.Is(alive, runtime.ErrGone) {
			w.gone(key, known)
		}
		return nil
	}
	return err
}

// see tells the sink what is new.
func (w *watcher) see(key string, c runtime.Container) {
	told := c
	told.Start = nil // of one life it does not change
	if known, ok := w.known[key]; !ok || !reflect.DeepEqual(known, told) {
		w.announce(key, c)
	}
}

// announce tells the sink even what it knows, as a first listing does.
func (w *watcher) announce(key string, c runtime.Container) {
	w.emit(runtime.Event{Kind: runtime.EventSeen, Container: c})
	c.Start = nil
	w.known[key] = c
}

func (w *watcher) gone(key string, c runtime.Container) {
	delete(w.known, key)
	w.emit(runtime.Event{Kind: runtime.EventGone, Container: c})
}

// dropDead notices, while the runtime is away, which containers have ended with it.
func (w *watcher) dropDead() {
	for key, c := range w.known {
		if errors.Is(w.o.Host.Alive(c), runtime.ErrGone) {
			w.gone(key, c)
		}
	}
}

func (w *watcher) noteLost(err error) {
	if w.lost {
		return
	}
	w.lost = true
	reason := err.Error()
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxReasonBytes)], "") // the engine's own words, shown at each look
	w.o.Logger.Warn(w.o.Title+" does not answer; waiting for it", "address", w.o.Address, "reason", reason)
	w.emit(runtime.Event{Kind: runtime.EventLost,
		Reason: fmt.Sprintf("%s does not answer at %s (%s); waiting for it: %s", w.o.Title, w.o.Address, reason, w.o.Hint)})
}

func (w *watcher) noteSynced() {
	if w.lost {
		w.o.Logger.Info(w.o.Title+" answers", "address", w.o.Address, "containers", len(w.known))
	}
	w.lost = false
	w.emit(runtime.Event{Kind: runtime.EventSynced, Unseen: w.unseen()})
}

// unseen are containers of which nothing is known: what is kept of them waits until they are told of.
func (w *watcher) unseen() (ids []string) {
	for key := range w.broken {
		if _, known := w.known[key]; !known {
			ids = append(ids, idOf(key))
		}
	}
	slices.Sort(ids)
	return ids
}

func (w *watcher) emit(event runtime.Event) {
	event.Engine = w.o.Engine
	w.sink(event)
}
