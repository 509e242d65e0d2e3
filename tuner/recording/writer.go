package recording

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Writer writes one stream. It is for one goroutine.
type Writer struct {
	enc *zstd.Encoder
	buf []byte // of the latest record
	err error  // the first failure of the destination; nothing is written after it
}

// NewWriter begins a stream on w, which the caller closes after Close.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	line, err := encodeHeader(h)
	if err != nil {
		return nil, err
	}
	return newRawWriter(w, line)
}

func newRawWriter(w io.Writer, headerLine []byte) (*Writer, error) {
	enc, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowBytes), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	out := &Writer{enc: enc}
	return out, out.writeLine(headerLine)
}

// Write appends a record. A payload that cannot be encoded or is too large
// (ErrTooLarge) is left out and the stream goes on; an error of the destination
// ends it.
func (w *Writer) Write(kind string, v any) error {
	line, err := encodeRecord(w.buf, kind, v)
	if err != nil {
		return err
	}
	w.buf = line
	return w.writeLine(line)
}

func (w *Writer) writeLine(line []byte) error {
	if w.err == nil {
		if _, err := w.enc.Write(line); err != nil {
			w.err = fmt.Errorf("recording: %w", err)
		}
	}
	return w.err
}

// Flush hands all records so far to the destination, where a reader finds them
// even if Close is never called. Once a tick costs little; once a record costs compression.
func (w *Writer) Flush() error {
	if w.err == nil {
		if err := w.enc.Flush(); err != nil {
			w.err = fmt.Errorf("recording: %w", err)
		}
	}
	return w.err
}

// Close ends the stream; the destination stays open.
func (w *Writer) Close() error {
	err := w.enc.Close()
	if w.err != nil {
		return w.err
	}
	w.err = errors.New("recording: closed")
	if err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	return nil
}
