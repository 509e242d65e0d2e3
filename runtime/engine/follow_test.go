package engine

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// oneContainer is a runtime with a container, whose first session breaks, and which is not found
// once in the second.
type oneContainer struct {
	sessions, looks int
	failed          chan error
	c               runtime.Container
}

func anyKey(string) bool { return true }

func (s *oneContainer) Open(ctx context.Context) (Session, error) {
	failed := make(chan error, 2)
	s.sessions, s.looks, s.failed = s.sessions+1, 0, failed
	if s.sessions == 1 {
		failed <- errors.New("it was restarted")
	}
	context.AfterFunc(ctx, func() { failed <- ctx.Err() })
	return s, nil
}

func (s *oneContainer) List(context.Context) ([]string, error) { return []string{"a"}, nil }

func (s *oneContainer) Inspect(context.Context, string) (runtime.Container, error) {
	if s.looks++; s.sessions == 2 && s.looks == 1 {
		return runtime.Container{}, ErrUnplaced
	}
	return s.c, nil
}

func (s *oneContainer) Notices() <-chan Notice { return nil }

func (s *oneContainer) Failed() <-chan error { return s.failed }

// TestFoundAfterAReconnect: who follows takes what is not told before it is synced for gone. So a
// container that cannot be placed just then is told of again, though nothing of it has changed.
func TestFoundAfterAReconnect(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick, err := cgroup.StartTick("/proc", os.Getpid()) // a process that lives on
	if err != nil {
		t.Fatal(err)
	}
	c := runtime.Container{ID: runtime.ID{Container: "a", StartTick: tick}, Name: "train", InitPID: os.Getpid()}
	synced, seenAfter := 0, false
	err = Follow(ctx, &oneContainer{c: c}, Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.DiscardHandler),
		CallTimeout: time.Second, RelistEvery: 20 * time.Millisecond, Host: Host{ProcRoot: "/proc"}, IsKey: anyKey}, func(e runtime.Event) {
		switch e.Kind {
		case runtime.EventSynced:
			synced++
		case runtime.EventSeen:
			if synced == 2 {
				seenAfter = true
				cancel()
			}
		}
	})
	if !seenAfter {
		t.Errorf("it was not told of again: %v, synced %d times", err, synced)
	}
}

// crowd is a runtime with many containers, of which some are never told of.
type crowd struct {
	oneContainer
	hang func(key string) bool
	keys []string
}

func (s *crowd) Open(ctx context.Context) (Session, error) {
	failed := make(chan error, 1)
	s.failed = failed
	context.AfterFunc(ctx, func() { failed <- ctx.Err() })
	return s, nil
}

func (s *crowd) List(context.Context) ([]string, error) { return s.keys, nil }

func (s *crowd) Inspect(ctx context.Context, key string) (runtime.Container, error) {
	if s.hang(key) {
		<-ctx.Done()
		return runtime.Container{}, ctx.Err()
	}
	c := s.c
	c.Name, c.ID.Container = key, key
	return c, nil
}

// TestContainersThatHang: each costs itself alone, all others are told of; where nobody answers, the
// runtime hangs.
func TestContainersThatHang(t *testing.T) {
	var keys []string
	for i := range 3 * lookers {
		keys = append(keys, string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	for name, c := range map[string]struct {
		hang func(key string) bool
		seen int
	}{
		"one": {func(key string) bool { return key == keys[0] }, len(keys) - 1},
		"those asked first": {func(key string) bool {
			time.Sleep(time.Millisecond) // nobody answers before those are known to hang
			return slices.Contains(keys[:lookers], key)
		}, len(keys) - lookers},
		"all but the last": {func(key string) bool { return key != keys[len(keys)-1] }, 1},
		"all but two":      {func(key string) bool { return key[1] != 'p' }, 2},
		"all":              {func(string) bool { return true }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			seen, synced, unseen := 0, false, 0
			began := time.Now()
			err := Follow(ctx, &crowd{hang: c.hang, keys: keys}, Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.DiscardHandler),
				CallTimeout: time.Second, RelistEvery: time.Hour, Host: Host{ProcRoot: "/proc"}, IsKey: anyKey}, func(e runtime.Event) {
				switch e.Kind {
				case runtime.EventSeen:
					seen++
				case runtime.EventSynced, runtime.EventLost:
					synced, unseen = e.Kind == runtime.EventSynced, len(e.Unseen)
					cancel()
				}
			})
			if want := c.seen > 0; seen != c.seen || synced != want || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %d are seen, want %d; synced: %v (%v)", name, seen, c.seen, synced, err)
			}
			if synced && seen+unseen != len(keys) {
				t.Errorf("%s: %d are seen and %d unseen, of %d", name, seen, unseen, len(keys))
			}
			if took := time.Since(began); took > 2500*time.Millisecond { // sixteen of them, then all others at once
				t.Errorf("%s: it took %s", name, took)
			}
		})
	}
}

// TestTooManyContainers: an engine that tells of more than any host runs is lost, and costs no more.
func TestTooManyContainers(t *testing.T) {
	for name, listed := range map[string]int{"listed": maxContainers + 1, "by events": 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			notices := make(chan Notice)
			s := &talker{notices: notices, crowd: crowd{hang: func(string) bool { return false }, keys: make([]string, listed)}}
			for i := range s.keys {
				s.keys[i] = strconv.Itoa(i)
			}
			go func() {
				for n := 0; listed == 0 && ctx.Err() == nil; n++ {
					select {
					case notices <- Notice{Key: strconv.Itoa(n)}:
					case <-ctx.Done():
					}
				}
			}()
			seen, lost := 0, ""
			err := Follow(ctx, s, Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.DiscardHandler),
				CallTimeout: time.Second, RelistEvery: time.Hour, Host: Host{ProcRoot: "/proc"}, IsKey: anyKey}, func(e runtime.Event) {
				switch e.Kind {
				case runtime.EventSeen:
					if seen++; seen > 3*maxContainers {
						cancel()
					}
				case runtime.EventLost:
					lost = e.Reason
					cancel()
				}
			})
			if !strings.Contains(lost, errTooMany.Error()) || seen > 3*maxContainers || listed > 0 && seen > 0 {
				t.Errorf("%s: lost %q after %d (%v)", name, lost, seen, err)
			}
		})
	}
}

// liar answers about another container than it is asked about, where its key says so.
type liar struct{ talker }

func (s *liar) Open(ctx context.Context) (Session, error) {
	_, err := s.crowd.Open(ctx)
	return s, err
}

func (s *liar) Inspect(ctx context.Context, key string) (runtime.Container, error) {
	c, err := s.crowd.Inspect(ctx, key)
	c.ID.Container = strings.TrimPrefix(idOf(key), "of-another-")
	return c, err
}

// TestWordsThatAreNoIDs: a runtime is asked about IDs alone, whether it lists other words or tells of
// them, and is believed on the container that it was asked about. Nothing is kept of another word.
func TestWordsThatAreNoIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		notices := make(chan Notice)
		var asked []string
		var mu sync.Mutex
		s := &liar{talker{notices: notices, crowd: crowd{keys: []string{"ns/a", "ns/../b", "ns/", "ns/c?x=", "ns/of-another-d"}}}}
		s.hang = func(key string) bool {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, key)
			return false
		}
		isKey := func(key string) bool {
			id, ok := strings.CutPrefix(key, "ns/")
			return ok && id != "" && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz-") == ""
		}
		go func() {
			for _, key := range []string{"ns/" + strings.Repeat("/..", 1<<20), "ns/c/json?", "", "ns/d", "ns/of-another-e", "ns/f"} {
				notices <- Notice{Key: key}
			}
		}()
		var seen, unseen []string
		var log strings.Builder
		err := Follow(ctx, s, Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			CallTimeout: time.Second, RelistEvery: time.Hour, Host: Host{ProcRoot: "/proc"}, IsKey: isKey}, func(e runtime.Event) {
			switch e.Kind {
			case runtime.EventSynced:
				unseen = e.Unseen
			case runtime.EventSeen:
				if seen = append(seen, e.Container.ID.Container); e.Container.ID.Container == "f" {
					cancel()
				}
			}
		})
		slices.Sort(asked)
		if want := []string{"ns/a", "ns/d", "ns/f", "ns/of-another-d", "ns/of-another-e"}; !slices.Equal(asked, want) {
			t.Errorf("asked about %q, want %q", asked, want)
		}
		if !slices.Equal(seen, []string{"a", "d", "f"}) || !slices.Equal(unseen, []string{"of-another-d"}) || !errors.Is(err, context.Canceled) {
			t.Errorf("seen are %q, unseen %q, %v", seen, unseen, err)
		}
		if strings.Count(log.String(), "whose ID is none") != 1 || log.Len() > 4096 {
			t.Errorf("%d bytes are logged: %.4096s", log.Len(), log.String())
		}
	})
}

// TestWhatContainersAreMadeOfIsNotKept: their arguments and environment, megabytes of each, are told once, and
// a listing that finds them as they were tells nothing.
func TestWhatContainersAreMadeOfIsNotKept(t *testing.T) {
	const containers, each = 512, 256 << 10
	s := &crowd{hang: func(string) bool { return false }}
	for i := range containers {
		s.keys = append(s.keys, strconv.Itoa(i))
	}
	source := &made{crowd: s, bytes: each}
	heap := func() uint64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before, told, kept := heap(), 0, uint64(0)
	err := Follow(ctx, source, Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.DiscardHandler),
		CallTimeout: time.Second, RelistEvery: 10 * time.Millisecond, Host: Host{ProcRoot: "/proc"}, IsKey: anyKey}, func(e runtime.Event) {
		switch e.Kind {
		case runtime.EventSeen:
			if told++; e.Container.Start == nil || len(e.Container.Start.Env[0]) != each {
				t.Errorf("told without what it is made of: %+.100v", e.Container)
			}
			if told > containers { // it changed its name
				cancel()
			}
		case runtime.EventSynced:
			kept = heap() - before
			source.renamed.Store(true)
		}
	})
	if told != containers+1 || kept > 16<<20 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d were told of, want %d; %d MiB are kept of %d (%v)", told, containers+1, kept>>20, containers*each>>20, err)
	}
}

// made are containers of which much is told; the last may be renamed.
type made struct {
	*crowd
	bytes   int
	renamed atomic.Bool
}

func (s *made) Open(ctx context.Context) (Session, error) {
	_, err := s.crowd.Open(ctx)
	return s, err
}

func (s *made) Inspect(ctx context.Context, key string) (runtime.Container, error) {
	c, err := s.crowd.Inspect(ctx, key)
	c.Start = &runtime.Start{Env: []string{strings.Repeat("x", s.bytes)}}
	if s.renamed.Load() && key == s.keys[len(s.keys)-1] {
		c.Name = "another"
	}
	return c, err
}

// chatty fails with as many words as it likes.
type chatty string

func (c chatty) Open(context.Context) (Session, error) { return nil, errors.New(string(c)) }

// TestReasonIsBounded: why an engine is lost is its own word, and is shown until it is back.
func TestReasonIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	reason := ""
	_ = Follow(ctx, chatty(strings.Repeat("é", 1<<20)), Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.DiscardHandler),
		Host: Host{ProcRoot: "/proc"}, IsKey: anyKey}, func(e runtime.Event) {
		reason = e.Reason
		cancel()
	})
	if len(reason) < maxReasonBytes || len(reason) > 2*maxReasonBytes || !utf8.ValidString(reason) {
		t.Errorf("%d bytes of reason", len(reason))
	}
}

// talker is a crowd that tells of changes.
type talker struct {
	crowd
	notices chan Notice
}

func (s *talker) Open(ctx context.Context) (Session, error) {
	_, err := s.crowd.Open(ctx)
	return s, err
}

func (s *talker) Notices() <-chan Notice { return s.notices }

// TestEndsWhileItHangs: a container that the runtime says nothing of any more is gone when its process is.
func TestEndsWhileItHangs(t *testing.T) {
	process := exec.Command("sleep", "60")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceFunc(func() { _, _ = process.Process.Kill(), process.Wait() }) // killed: an error, and meant
	defer ended()
	tick, err := cgroup.StartTick("/proc", process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var hangs, gone atomic.Bool
	s := &crowd{keys: []string{"a"}, hang: func(string) bool { return hangs.Load() }}
	s.c = runtime.Container{ID: runtime.ID{Container: "a", StartTick: tick}, InitPID: process.Process.Pid}
	err = Follow(ctx, s, Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.DiscardHandler),
		CallTimeout: 10 * time.Millisecond, RelistEvery: 20 * time.Millisecond, Host: Host{ProcRoot: "/proc"}, IsKey: anyKey}, func(e runtime.Event) {
		switch e.Kind {
		case runtime.EventSynced:
			hangs.Store(true)
			ended()
		case runtime.EventGone:
			gone.Store(true)
			cancel()
		}
	})
	if !gone.Load() {
		t.Errorf("it is still told of: %v", err)
	}
}
