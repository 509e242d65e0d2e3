// Package disk keeps the known jobs (tuner/profiles) on disk, in one state file
// (tuner/statefile), topic "fingerprints":
//
//	{"version":1,"known":[profiles.Known,…]}
//
// An empty or missing file is the normal case, and nothing that trimtab does needs
// it. So whatever is wrong with it costs what was learned and nothing else: a file
// that cannot be read, or is of another version, is set aside; entries that cannot
// be true are left out; a disk that is full leaves the file as it was.
package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/statefile"
)

const (
	topic   = "fingerprints"
	version = 1
)

// ErrVersion: the contents are of another version than this one writes.
var ErrVersion = errors.New("known jobs of another version")

type content struct {
	Version int               `json:"version"`
	Known   []json.RawMessage `json:"known"` // one by one: a broken entry costs itself
}

// Load returns the Store that was kept, or an empty one; never nil. The error is for
// people: it says what was lost, and where it is now.
func Load(s *statefile.Store, nowUnixNs int64) (*profiles.Store, error) {
	var c content
	err := s.GetState(topic, &c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return profiles.NewStore(), nil
	case errors.Is(err, statefile.ErrVersion):
		return profiles.NewStore(), s.SetAside(topic, err)
	case err != nil:
		return profiles.NewStore(), err
	case c.Version != version:
		return profiles.NewStore(), s.SetAside(topic, fmt.Errorf("%w: %d, this one knows %d", ErrVersion, c.Version, version))
	}
	book, err := decode(c.Known, nowUnixNs)
	if err != nil && book.Len() == 0 {
		return book, s.SetAside(topic, err)
	}
	return book, err
}

// Decode makes a Store of what Encode made, as a recording holds it.
func Decode(text []byte, nowUnixNs int64) (*profiles.Store, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return profiles.NewStore(), fmt.Errorf("known jobs: %w", err)
	}
	return decode(all, nowUnixNs)
}

// Encode is what a recording holds of known jobs.
func Encode(all []profiles.Known) (json.RawMessage, error) { return json.Marshal(all) }

// maxTold bounds how many broken entries are told of.
const maxTold = 3

func decode(raw []json.RawMessage, nowUnixNs int64) (*profiles.Store, error) {
	var errs []error
	var all []profiles.Known
	for i, text := range raw {
		if i == 4*profiles.MaxKnown {
			errs = append(errs, fmt.Errorf("%d known jobs, more than can be: the rest is left out", len(raw)))
			break
		}
		var k profiles.Known
		if err := json.Unmarshal(text, &k); err != nil {
			errs = append(errs, fmt.Errorf("known job at place %d: %w", i, err))
			continue
		}
		all = append(all, k)
	}
	book, err := profiles.Open(all, nowUnixNs)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > maxTold {
		errs = append(errs[:maxTold], fmt.Errorf("%d known jobs are left out in all", len(raw)-book.Len()))
	}
	return book, errors.Join(errs...)
}

// Save makes what is known durable. On an error what was kept before stands.
func Save(s *statefile.Store, all []profiles.Known) error {
	c := content{Version: version, Known: make([]json.RawMessage, 0, len(all))}
	for _, k := range all {
		text, err := json.Marshal(k)
		if err != nil {
			return fmt.Errorf("known job %d: %w", k.ID, err)
		}
		c.Known = append(c.Known, text)
	}
	return s.PutState(topic, c)
}
