// Package recording keeps what the daemon saw, so that it can be replayed: one
// stream of JSON lines, zstd-compressed.
//
//	line 1:  Header, with the state needed to begin here
//	line 2…: {"t":KIND,"v":PAYLOAD}
//
// Payloads are opaque to this package. Struct fields are written in order and maps
// sorted, so equal payloads give equal bytes. A stream that was
// cut (kill -9) reads up to its last whole record. The reader trusts nothing: a
// recording may come from anywhere.
//
// Ring is the flight recorder: the last stretch of such a stream on disk, in
// segments that each begin with a header of their own.
package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	fastjson "github.com/segmentio/encoding/json"
)

const (
	// Format and Version stand in each header. A reader reads all versions up to its own.
	Format  = "trimtab-recording"
	Version = 1
	// KindSegment is a record that Join writes where a later segment began; its
	// payload is that segment's Header. A rise of Dropped tells of records lost there.
	KindSegment = "segment"
	// MaxRecordBytes caps one line, uncompressed: a sample of 10,000 threads is about 8 MB.
	MaxRecordBytes = 32 << 20
	// windowBytes is how far back zstd looks: about a tick's samples of a busy node.
	// It bounds what the encoder holds in memory all day.
	windowBytes = 1 << 20
	// maxWindowBytes is the most that a stream may ask of the reader, zstd's own
	// recommended minimum for decoders.
	maxWindowBytes = 8 << 20
)

// Errors that a caller acts on.
var (
	ErrNotRecording = errors.New("not a trimtab recording")
	ErrVersion      = errors.New("recording has a newer format")
	ErrTooLarge     = errors.New("record is too large")
	ErrDamaged      = errors.New("recording is damaged")
)

// Header begins a stream. Format and Version are filled in by the writer.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Trimtab string `json:"trimtab"` // the version that recorded
	// WallUnixNs is the wall clock when CLOCK_MONOTONIC read MonoNs, the only clock in records.
	WallUnixNs int64           `json:"wall"`
	MonoNs     int64           `json:"mono"`
	Boot       string          `json:"boot"`             // /proc/sys/kernel/random/boot_id
	Arch       string          `json:"arch"`             // GOARCH: replay is equal to the bit on one architecture
	Config     json.RawMessage `json:"config,omitempty"` // opaque
	State      json.RawMessage `json:"state,omitempty"`  // state to begin with, opaque
	Dropped    uint64          `json:"dropped,omitempty"`
}

// record is one line after the header.
type record struct {
	Kind  string          `json:"t"`
	Value json.RawMessage `json:"v"`
}

// encodeRecord returns a whole line, newline included, in buf if it has room. Beside a thousand
// containers a tick is megabytes each second: encoding/json takes another 4 % of a core for it, and
// makes garbage of its size [measured, make bench, group scale].
func encodeRecord(buf []byte, kind string, v any) ([]byte, error) {
	if kind == "" {
		return nil, errors.New("record without a kind")
	}
	const flags = fastjson.EscapeHTML | fastjson.SortMapKeys // as encoding/json writes
	line := append(buf[:0], `{"t":`...)
	line, err := fastjson.Append(line, kind, flags)
	if err == nil {
		line, err = fastjson.Append(append(line, `,"v":`...), v, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", kind, err)
	}
	return endLine(append(line, '}'))
}

func encodeHeader(h Header) ([]byte, error) {
	h.Format, h.Version = Format, Version
	line, err := json.Marshal(h)
	if err == nil {
		line, err = endLine(line)
	}
	if err != nil {
		return nil, fmt.Errorf("recording header: %w", err)
	}
	return line, nil
}

func endLine(line []byte) ([]byte, error) {
	if len(line) >= MaxRecordBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(line), MaxRecordBytes)
	}
	return append(line, '\n'), nil
}

func decodeHeader(line []byte) (Header, error) {
	var h Header
	err := json.Unmarshal(line, &h) // a field of another type leaves the others read
	switch {
	case h.Format != Format || h.Version < 1:
		return Header{}, ErrNotRecording
	case h.Version > Version:
		return Header{}, fmt.Errorf("%w: version %d, this trimtab reads up to %d: upgrade trimtab", ErrVersion, h.Version, Version)
	case err != nil:
		return Header{}, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	return h, nil
}

func decodeRecord(line []byte) (record, error) {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if r.Kind == "" {
		return record{}, fmt.Errorf("%w: a record without a kind", ErrDamaged)
	}
	if len(r.Value) == 0 {
		r.Value = json.RawMessage("null")
	}
	r.Value = bytes.TrimSpace(r.Value)
	return r, nil
}
