package enrolment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/durable"
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
	// UntilBootNs is the same by CLOCK_BOOTTIME, which nobody sets and which goes on while the host
	// sleeps; it goes before the other. 0: of an earlier version. Key names the boot.
	UntilBootNs int64 `json:"untilBoot,omitempty"`
}

// Now is an instant by both clocks.
type Now struct{ UnixNs, BootNs int64 }

// Store keeps the records on disk. Save must be durable when it returns: a
// container that was enabled before a crash is enabled after it.
type Store interface {
	Load() ([]Manual, error)
	Save([]Manual) error
}

// Manuals are the records in force. Its methods may be called concurrently; Get and Prune
// never wait for the disk.
type Manuals struct {
	byKey *durable.Value[map[string]Manual]
}

// OpenManuals loads the records. On error it still returns usable, empty Manuals:
// a store that cannot be read enrols nobody.
func OpenManuals(store Store) (*Manuals, error) {
	byKey := map[string]Manual{}
	all, err := store.Load()
	if err != nil {
		all, err = nil, fmt.Errorf("records of trimtab enable: %w", err)
	}
	for _, r := range all {
		byKey[r.Key] = r
	}
	return &Manuals{durable.New(byKey, func(byKey map[string]Manual) error {
		all := slices.SortedFunc(maps.Values(byKey), func(a, b Manual) int { return cmp.Compare(a.Key, b.Key) })
		if err := store.Save(all); err != nil {
			return fmt.Errorf("records of trimtab enable: %w", err)
		}
		return nil
	})}, err
}

// Get returns the record of a container that is in force at an instant, or nil.
func (m *Manuals) Get(key string, now Now) *Manual {
	r, ok := m.byKey.Get()[key]
	if !ok || r.expired(now) {
		return nil
	}
	r.Knobs = slices.Clone(r.Knobs)
	return &r
}

// Set stores a record; on error nothing has changed.
func (m *Manuals) Set(r Manual) error {
	return m.byKey.Change(func(all map[string]Manual) map[string]Manual {
		all = maps.Clone(all)
		all[r.Key] = r
		return all
	})
}

// Prune forgets records that have expired and those of containers that are gone;
// alive must come from a complete listing. Save makes that durable: what a crash brings
// back is forgotten again after the next listing.
func (m *Manuals) Prune(now Now, alive func(key string) bool) {
	m.byKey.Edit(func(all map[string]Manual) map[string]Manual {
		all = maps.Clone(all)
		maps.DeleteFunc(all, func(key string, r Manual) bool { return r.expired(now) || !alive(key) })
		return all
	})
}

// Save puts on disk what was pruned, if anything was.
func (m *Manuals) Save() error { return m.byKey.Save() }

func (r Manual) expired(now Now) bool {
	if r.UntilBootNs > 0 {
		return now.BootNs >= r.UntilBootNs
	}
	return r.UntilUnixNs > 0 && now.UnixNs >= r.UntilUnixNs
}
