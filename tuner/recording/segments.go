package recording

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Segment is one file of a Ring.
type Segment struct {
	Run   uint64 `json:"run"` // number of the first segment of the same run of the daemon
	Seq   uint64 `json:"seq"` // ascending over all runs
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

const segmentName = "flight-%012d-%012d.zst"

// List returns the segments in a Ring's directory, oldest first. It needs no
// Ring, so that a dead daemon's last stretch can be read.
func List(dir string) ([]Segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("flight recorder: %w", err)
	}
	var out []Segment
	for _, e := range entries {
		var s Segment
		if n, err := fmt.Sscanf(e.Name(), segmentName, &s.Run, &s.Seq); err != nil || n != 2 ||
			e.Name() != fmt.Sprintf(segmentName, s.Run, s.Seq) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // deleted in the meantime, as the oldest
		}
		s.Path, s.Bytes = filepath.Join(dir, e.Name()), info.Size()
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Segment) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}

// LastRun returns the segments of the newest run.
func LastRun(all []Segment) []Segment {
	if len(all) == 0 {
		return nil
	}
	run := all[len(all)-1].Run
	return slices.DeleteFunc(slices.Clone(all), func(s Segment) bool { return s.Run != run })
}

// ErrEmpty: no segment could be read.
var ErrEmpty = errors.New("the flight recorder holds nothing to read")

// Join writes segments as one recording: the header of the first that can be
// read, then all records, with a KindSegment record where each later one began.
// A segment that was cut or damaged gives what is whole of it.
func Join(w io.Writer, segments []Segment) error {
	// Opened at once: a running Ring may delete the oldest, open files stay readable.
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close() // read only: nothing to lose
		}
	}()
	for _, s := range segments {
		f, err := os.Open(s.Path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("flight recorder: %w", err)
		}
		files = append(files, f)
	}
	var out *Writer
	for _, f := range files {
		if err := appendSegment(&out, w, f); err != nil {
			return err
		}
	}
	if out == nil {
		return ErrEmpty
	}
	return out.Close()
}

// appendSegment copies one segment, and begins the output with the first.
func appendSegment(out **Writer, w io.Writer, f io.Reader) error {
	in, err := NewReader(f)
	if errors.Is(err, ErrVersion) {
		return err
	}
	if err != nil {
		return nil // cut before its header was whole
	}
	defer in.Close()
	if *out == nil {
		*out, err = NewWriter(w, in.Header())
	} else {
		err = (*out).Write(KindSegment, in.Header())
	}
	for err == nil {
		var kind string
		var v json.RawMessage
		if kind, v, err = in.Next(); err != nil {
			return nil
		}
		err = (*out).Write(kind, v)
	}
	return err
}
