// Package disk keeps the known jobs (tuner/profiles) on disk, in one state file
// (tuner/statefile), topic "fingerprints":
//
//	{"version":1,"known":[profiles.Known,…],"more":"…"}
//
// Known are the jobs that are worth the most by age and use, as many as versions of before could
// hold. More are the rest, with their numbers rounded: JSON lines, compressed with zstd. Those
// versions do not know them, and do without.
//
// An empty or missing file is the normal case, and nothing that trimtab does needs
// it. So whatever is wrong with it costs what was learned and nothing else: a file
// that cannot be read, or is of another version, is set aside; entries that cannot
// be true are left out; a disk that is full leaves the file as it was.
package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"

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
	More    []byte            `json:"more,omitempty"`
}

const (
	// maxPlain are those that stand in Known: the bound of the versions that read nothing else.
	maxPlain = 256
	// maxMore bytes are unpacked: 10,000 jobs with all that can be known of them take 15 MB.
	maxMore = 64 << 20
)

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
	more, lost := unpack(c.More)
	book, err := decode(append(c.Known, more...), nowUnixNs)
	err = errors.Join(lost, err)
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

func decode(raw []json.RawMessage, nowUnixNs int64) (*profiles.Store, error) {
	var errs []error
	var all []profiles.Known
	for i, text := range raw {
		if i == 2*profiles.MaxKnown {
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
	return book, errors.Join(profiles.Few(errs), err)
}

// Save makes what is known durable. On an error what was kept before stands.
func Save(s *statefile.Store, all []profiles.Known) error {
	c := content{Version: version, Known: make([]json.RawMessage, 0, min(len(all), maxPlain))}
	plain, rest := profiles.Divide(all, maxPlain)
	for _, k := range plain {
		text, err := json.Marshal(k)
		if err != nil {
			return fmt.Errorf("known job %d: %w", k.ID, err)
		}
		c.Known = append(c.Known, text)
	}
	var err error
	if c.More, err = pack(rest); err != nil {
		return err
	}
	return s.PutState(topic, c)
}

func pack(all []profiles.Known) ([]byte, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(256<<10))
	if err != nil {
		return nil, err
	}
	lines := json.NewEncoder(z)
	for _, k := range all {
		if err := lines.Encode(k.Rounded()); err != nil {
			return nil, fmt.Errorf("known job %d: %w", k.ID, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unpack returns what can be read. What comes after a fault is lost.
func unpack(packed []byte) (lines []json.RawMessage, err error) {
	if len(packed) == 0 {
		return nil, nil
	}
	z, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<20))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	in := json.NewDecoder(io.LimitReader(z, maxMore))
	for {
		var line json.RawMessage
		if err := in.Decode(&line); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return lines, fmt.Errorf("known jobs after the first %d: %w", maxPlain+len(lines), err)
		}
		lines = append(lines, line)
	}
}
