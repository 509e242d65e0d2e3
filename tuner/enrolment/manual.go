package enrolment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/policies"
)

// Manual is one record of `trimtab enable` or `trimtab disable`, for one life of
// one container.
type Manual struct {
	Key         string        `json:"key"` // runtime.Container.Key
	Name        string        `json:"name"`
	Mode        policies.Mode `json:"mode"` // tune: enabled; observe: disabled
	Knobs       []string      `json:"knobs,omitempty"`
	SetUnixNs   int64         `json:"set"`
	UntilUnixNs int64         `json:"until,omitempty"` // 0: until disabled, or the container's end
}

// Store keeps the records on disk. Save must be durable when it returns: a
// container that was enabled before a crash is enabled after it.
type Store interface {
	Load() ([]Manual, error)
	Save([]Manual) error
}

// Manuals are the records in force. Its methods may be called concurrently.
type Manuals struct {
	store Store
	mu    sync.Mutex
	byKey map[string]Manual
}

// OpenManuals loads the records. On error it still returns usable, empty Manuals:
// a store that cannot be read enrols nobody.
func OpenManuals(store Store) (*Manuals, error) {
	m := &Manuals{store: store, byKey: map[string]Manual{}}
	all, err := store.Load()
	if err != nil {
		return m, fmt.Errorf("records of trimtab enable: %w", err)
	}
	for _, r := range all {
		m.byKey[r.Key] = r
	}
	return m, nil
}

// Get returns the record of a container that is in force at an instant, or nil.
func (m *Manuals) Get(key string, nowUnixNs int64) *Manual {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.byKey[key]
	if !ok || r.expired(nowUnixNs) {
		return nil
	}
	r.Knobs = slices.Clone(r.Knobs)
	return &r
}

// Set stores a record; on error nothing has changed.
func (m *Manuals) Set(r Manual) error {
	return m.change(func(all map[string]Manual) { all[r.Key] = r })
}

// Prune forgets records that have expired and those of containers that are gone;
// alive must come from a complete listing. It saves only if something went.
func (m *Manuals) Prune(nowUnixNs int64, alive func(key string) bool) error {
	return m.change(func(all map[string]Manual) {
		maps.DeleteFunc(all, func(key string, r Manual) bool { return r.expired(nowUnixNs) || !alive(key) })
	})
}

// change saves first, so that what is in force is never ahead of the disk.
func (m *Manuals) change(edit func(map[string]Manual)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(m.byKey)
	edit(next)
	if maps.EqualFunc(next, m.byKey, Manual.equal) {
		return nil
	}
	all := slices.SortedFunc(maps.Values(next), func(a, b Manual) int { return cmp.Compare(a.Key, b.Key) })
	if err := m.store.Save(all); err != nil {
		return fmt.Errorf("records of trimtab enable: %w", err)
	}
	m.byKey = next
	return nil
}

func (r Manual) expired(nowUnixNs int64) bool {
	return r.UntilUnixNs > 0 && nowUnixNs >= r.UntilUnixNs
}

func (r Manual) equal(o Manual) bool {
	return r.Key == o.Key && r.Name == o.Name && r.Mode == o.Mode && slices.Equal(r.Knobs, o.Knobs) &&
		r.SetUnixNs == o.SetUnixNs && r.UntilUnixNs == o.UntilUnixNs
}
