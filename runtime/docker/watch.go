package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// watched are the events after which a container is looked at again. The rest,
// above all exec's, which health checks make many of, stays in Docker.
//
//trimtab:table an array of names, only read
var watched = [...]events.Action{events.ActionStart, events.ActionRestart, events.ActionPause, events.ActionUnPause,
	events.ActionRename, events.ActionUpdate, events.ActionDie, events.ActionDestroy}

// Run implements runtime.Engine.
func (e *Engine) Run(ctx context.Context, sink func(runtime.Event)) error {
	return engine.Follow(ctx, source{e}, engine.Options{
		Engine: EngineName, Title: "Docker", Address: e.opts.Host,
		Hint:   `start it with "systemctl start docker", or correct its address`,
		Logger: e.opts.Logger, CallTimeout: e.opts.CallTimeout, RelistEvery: relistEvery, Host: e.host, IsKey: isID,
	}, func(event runtime.Event) {
		if event.Kind == runtime.EventGone {
			e.updates.Delete(event.Container.ID.Container)
		}
		sink(event)
	})
}

// source is the engine as engine.Follow sees it.
type source struct{ engine *Engine }

// session is one event stream; its keys are Docker's container IDs.
type session struct {
	engine  *Engine
	notices chan engine.Notice
	failed  <-chan error
}

// Open waits for the stream's header, for which the client has no time limit; a
// ping has one, and settles the API version.
func (s source) Open(ctx context.Context) (engine.Session, error) {
	ping, cancel := context.WithTimeout(ctx, s.engine.opts.CallTimeout)
	defer cancel()
	if _, err := s.engine.client.Ping(ping, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, err
	}
	filters := make(client.Filters).Add("type", string(events.ContainerEventType))
	for _, action := range watched {
		filters.Add("event", string(action))
	}
	opened := make(chan client.EventsResult, 1)
	streamCtx, stop := context.WithCancel(ctx)
	go func() { opened <- s.engine.client.Events(streamCtx, client.EventsListOptions{Filters: filters}) }()
	select {
	case stream := <-opened:
		context.AfterFunc(ctx, stop)
		out := &session{engine: s.engine, notices: make(chan engine.Notice), failed: stream.Err}
		go out.translate(ctx, stream.Messages)
		return out, nil
	case <-ping.Done():
		stop()
		<-opened
		return nil, fmt.Errorf("no event stream within %s: %w", s.engine.opts.CallTimeout, ping.Err())
	}
}

// translate ends with ctx.
func (s *session) translate(ctx context.Context, messages <-chan events.Message) {
	for {
		select {
		case m := <-messages:
			s.engine.answers.renew()
			if m.Actor.ID == "" {
				continue
			}
			select {
			case s.notices <- engine.Notice{Key: m.Actor.ID, Updated: m.Action == events.ActionUpdate}:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) Notices() <-chan engine.Notice { return s.notices }

func (s *session) Failed() <-chan error { return s.failed }

func (s *session) List(ctx context.Context) (keys []string, err error) {
	answer, err := s.engine.client.ContainerList(ctx, client.ContainerListOptions{})
	if err != nil {
		return nil, err
	}
	for _, item := range answer.Items {
		keys = append(keys, item.ID)
	}
	return keys, nil
}

func (s *session) Inspect(ctx context.Context, key string) (runtime.Container, error) {
	return s.engine.inspect(ctx, key)
}
