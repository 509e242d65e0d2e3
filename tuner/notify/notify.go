// Package notify tells others of decisions: an OpenTelemetry collector, Grafana, a webhook, a
// script of the host. What it tells is what the history records (package event) and nothing else.
//
// Offer never waits. Each receiver has a bounded queue and a goroutine of its own, so one that is
// slow or gone costs neither the loop nor the others. What cannot be told is tried again with
// growing pauses, then counted, and said once in the log.
//
// The one trap: URLs and answers may hold secrets. Errors name a receiver's key in the config and
// its host, never the rest of its URL.
package notify

import (
	"context"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/event"
	"github.com/trimtab/trimtab/tuner/state"
)

// receiver is one who is told. Its methods are called by one goroutine at a time.
type receiver interface {
	// deliver hands events over. An error that is a refusal is not worth another try.
	deliver(ctx context.Context, events []event.Event) error
	// check reports whether it could, as far as that is known without telling anything.
	check(ctx context.Context) error
}

// Options are what a Notifier needs.
type Options struct {
	Config        config.Notify
	Host, Version string
	Latest        func() *state.Snapshot
	Healthy       func() error        // nil while the agent does its work
	Metrics       prometheus.Gatherer // for OTLP; nil: none
	// Start starts a script without privileges, as the leader of a group that ends with it; the channel is closed when it
	// has been waited for.
	Start func(cmd *exec.Cmd) (ended <-chan struct{}, err error)
	Log   *slog.Logger
}

// Notifier tells whom the config names. Its methods may be called from any goroutine.
type Notifier struct {
	o       Options
	queues  []*queue // of events
	metrics *queue   // of exports; nil: none
	closing chan struct{}
	ended   sync.WaitGroup
	cancel  context.CancelFunc
}

// New makes the receivers; nothing is reached before Start.
func New(o Options) *Notifier {
	n := &Notifier{o: o, closing: make(chan struct{}), cancel: func() {}}
	c := o.Config
	if c.OTLP.URL != "" {
		e := newEndpoint("notify.otlp", c.OTLP.Receiver(), o.Version)
		n.queues = append(n.queues, newQueue("otlp", logs{e, o}, otlpBatch, c.OTLP.Events, c.OTLP.Receiver().PerMinute, o.Log))
		if c.OTLP.MetricsEvery > 0 && o.Metrics != nil {
			n.metrics = newQueue("otlp-metrics", metricsExport{e, o}, 1, nil, c.OTLP.Receiver().PerMinute, o.Log)
			n.metrics.waiting, n.metrics.instead = make(chan event.Event, 1), "the next export has the same metrics"
		}
	}
	if c.Grafana.URL != "" {
		to := grafana{newEndpoint("notify.grafana", c.Grafana, o.Version)}
		n.queues = append(n.queues, newQueue("grafana", to, 1, c.Grafana.Events, c.Grafana.PerMinute, o.Log))
	}
	if c.Webhook.URL != "" {
		to := webhook{newEndpoint("notify.webhook", c.Webhook, o.Version)}
		n.queues = append(n.queues, newQueue("webhook", to, 1, c.Webhook.Events, c.Webhook.PerMinute, o.Log))
	}
	if c.Script.Path != "" {
		s := script{path: c.Script.Path, timeout: c.Script.Timeout.D(), start: o.Start, top: "/"}
		n.queues = append(n.queues, newQueue("script", s, 1, c.Script.Events, c.Script.PerMinute, o.Log))
	}
	return n
}

// Start begins to tell what is offered; Close ends it.
func (n *Notifier) Start() {
	if len(n.queues) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	for _, q := range n.all() {
		n.ended.Go(func() { q.run(ctx, n.closing) })
	}
}

func (n *Notifier) all() []*queue {
	if n.metrics == nil {
		return n.queues
	}
	return append(n.queues[:len(n.queues):len(n.queues)], n.metrics)
}

// Offer queues what records tell, and returns at once.
func (n *Notifier) Offer(records []state.Record) {
	if len(n.queues) == 0 {
		return
	}
	for _, r := range records {
		n.offer(event.Of(r, n.o.Host))
	}
}

func (n *Notifier) offer(e event.Event) {
	for _, q := range n.queues {
		q.offer(e)
	}
}

// watchEvery is how often the daemon's own state is looked at.
const watchEvery = 5 * time.Second

// Run tells until ctx ends when the daemon is unwell, also when its loop hangs, and has metrics
// sent. It is for the time in which the agent runs.
func (n *Notifier) Run(ctx context.Context) error {
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	var export <-chan time.Time
	if n.metrics != nil {
		t := time.NewTicker(n.o.Config.OTLP.MetricsEvery.D())
		defer t.Stop()
		export = t.C
	}
	var h event.Health
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-export:
			n.metrics.offer(event.Event{})
		case now := <-watch.C:
			for _, e := range h.Next(n.o.Latest(), n.o.Healthy(), n.o.Host, now.UnixNano()) {
				n.offer(e)
			}
		}
	}
}

// Receivers say how each fares.
func (n *Notifier) Receivers() (out []state.Receiver) {
	for _, q := range n.all() {
		out = append(out, q.state())
	}
	return out
}

// Check asks each whether it can be told, and tells it nothing. It is for a Notifier that was not started.
func (n *Notifier) Check(ctx context.Context, each func(name string, err error)) {
	for _, q := range n.queues {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		each(q.name, q.to.check(ctx))
		cancel()
	}
}

// lastWait is for requests to be broken off, and for a script to be killed with what it started.
const lastWait = time.Second

// Close tells what waits, each at most once more, until ctx ends. How much is left is logged.
func (n *Notifier) Close(ctx context.Context) {
	close(n.closing)
	done := make(chan struct{})
	go func() { n.ended.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	n.cancel()
	select {
	case <-done:
	case <-time.After(lastWait): // one that hangs on a file that does not answer is left
	}
	for _, q := range n.queues {
		if left := len(q.waiting); left > 0 {
			n.o.Log.Warn("not all was told before the end; trimtab history has it", "receiver", q.name, "events", left)
		}
	}
}
