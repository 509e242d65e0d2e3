package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// encodedFor is how long answers are kept that nobody may ask for again.
const encodedFor = 5 * time.Second

// encoded is an answer that is JSON already.
type encoded []byte

func encode(v any) (encoded, error) {
	if body, ok := v.(encoded); ok {
		return body, nil
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be written as JSON: %w", err)
	}
	return body, nil
}

// encodings are the answers of one snapshot, by path: each is made once for all who ask.
type encodings struct {
	mu   sync.Mutex
	of   *state.Snapshot
	made map[string]func() (encoded, error)
}

// whole answers from the latest snapshot, and from nothing else: neither who asks nor what for beside
// the path makes a difference. Fifty who follow a thousand containers cost one encoding a snapshot.
func (s *Server) whole(path string, answer func(*state.Snapshot) any) answerFunc {
	return func(http.ResponseWriter, *http.Request) (any, error) {
		body, err := s.encoding(path, answer)
		if err != nil {
			return nil, err
		}
		return body()
	}
}

// encoding returns what makes an answer, or waits for it and returns what another made.
func (s *Server) encoding(path string, answer func(*state.Snapshot) any) (func() (encoded, error), error) {
	e := &s.shared
	e.mu.Lock()
	defer e.mu.Unlock()
	snap, err := s.snapshot() // with the lock: who read an older one would have it encoded again
	if err != nil {
		return nil, err
	}
	if e.of != snap {
		e.of, e.made = snap, map[string]func() (encoded, error){}
		time.AfterFunc(encodedFor, func() { e.drop(snap) })
	}
	if e.made[path] == nil {
		e.made[path] = sync.OnceValues(func() (encoded, error) { return encode(answer(snap)) })
	}
	return e.made[path], nil
}

func (e *encodings) drop(snap *state.Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == snap {
		e.of, e.made = nil, nil
	}
}
