package main

import (
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/durable"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// holds keeps what people froze.
type holds struct{ state *durable.Value[heldState] }

// heldState is what holds.json has. What it points to is replaced, never changed in place.
type heldState struct {
	Paused bool     `json:"paused"`
	Held   []string `json:"held,omitempty"` // container keys, sorted: each container is looked up each second
	// Yielded are the knobs that somebody else wrote, by container key.
	Yielded map[string][]runtime.Knob `json:"yielded,omitempty"`
}

func openHolds(s *statefile.Store, log *slog.Logger) *holds {
	held, err := stored[heldState]{s, topicHolds}.Load()
	if err == nil {
		return newHolds(s, held)
	}
	// Who froze what is not known any more: freeze all, a person can resume.
	log.Error("holds and pause cannot be read: paused until `trimtab resume`", "error", err)
	if corrupt := new(statefile.CorruptError); !errors.As(err, &corrupt) {
		return newHolds(s, heldState{Paused: true}) // the file stays until something is to be stored
	}
	h := newHolds(s, heldState{})
	if err := h.SetPaused(true); err != nil {
		log.Error("the pause ends with this daemon: it could not be stored", "error", err)
	}
	return h
}

func newHolds(s *statefile.Store, held heldState) *holds {
	held.Held = slices.Sorted(slices.Values(held.Held))
	return &holds{durable.New(held, stored[heldState]{s, topicHolds}.Save)}
}

func (h *holds) Held(key string) bool {
	_, held := slices.BinarySearch(h.state.Get().Held, key)
	return held
}

func (h *holds) Paused() bool { return h.state.Get().Paused }

func (h *holds) Yielded(key string) []runtime.Knob { return h.state.Get().Yielded[key] }

func (h *holds) AddYield(key string, knob runtime.Knob) {
	h.state.Edit(func(s heldState) heldState {
		if !slices.Contains(s.Yielded[key], knob) {
			all := map[string][]runtime.Knob{}
			maps.Copy(all, s.Yielded)
			all[key] = append(slices.Clone(all[key]), knob)
			s.Yielded = all
		}
		return s
	})
}

func (h *holds) Prune(alive func(key string) bool) {
	h.state.Edit(func(s heldState) heldState {
		s.Held = slices.DeleteFunc(slices.Clone(s.Held), func(key string) bool { return !alive(key) })
		s.Yielded = maps.Clone(s.Yielded)
		maps.DeleteFunc(s.Yielded, func(key string, _ []runtime.Knob) bool { return !alive(key) })
		return s
	})
}

func (h *holds) Save() error { return h.state.Save() }

func (h *holds) SetHeld(held bool, keys ...string) error {
	keys = slices.Sorted(slices.Values(keys))
	return h.freeze(held, func(s heldState) heldState {
		s.Held = slices.DeleteFunc(slices.Clone(s.Held), func(k string) bool {
			_, named := slices.BinarySearch(keys, k)
			return named
		})
		if held {
			s.Held = slices.Compact(slices.Sorted(slices.Values(append(s.Held, keys...))))
		}
		return s
	})
}

func (h *holds) SetPaused(on bool) error {
	return h.freeze(on, func(s heldState) heldState {
		s.Paused = on
		return s
	})
}

// freeze returns when it is on disk. What is frozen is in force before, and though the disk
// refuses, while this daemon lives: a full disk must not keep originals from going back. What
// is lifted is in force only after.
func (h *holds) freeze(freezing bool, edit func(heldState) heldState) error {
	if !freezing {
		return h.state.Change(edit)
	}
	h.state.Edit(edit)
	return h.state.Save()
}
