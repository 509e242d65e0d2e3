package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Reader reads one stream. It is for one goroutine.
type Reader struct {
	dec       *zstd.Decoder
	lines     *bufio.Reader
	header    Header
	records   int
	truncated bool
	err       error // sticky, io.EOF included
}

// NewReader reads the header from r. Close the Reader to free its memory; r
// stays open. Errors: ErrNotRecording, ErrVersion, ErrDamaged, ErrTooLarge.
func NewReader(r io.Reader) (*Reader, error) {
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	out := &Reader{dec: dec, lines: bufio.NewReaderSize(dec, 64<<10)}
	line, err := out.line()
	if err == nil {
		out.header, err = decodeHeader(line)
	} else if !errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%w: no whole header: %w", ErrNotRecording, err)
	}
	if err != nil {
		dec.Close()
		return nil, err
	}
	return out, nil
}

// Header returns the stream's header.
func (r *Reader) Header() Header { return r.header }

// Next returns the next record; its payload belongs to the caller. io.EOF is
// the end, also of a stream that was cut: see Truncated. ErrDamaged and
// ErrTooLarge end the reading as well; what came before them is whole.
func (r *Reader) Next() (kind string, v json.RawMessage, err error) {
	if r.err != nil {
		return "", nil, r.err
	}
	line, err := r.line()
	if err != nil {
		return "", nil, r.end(err)
	}
	rec, err := decodeRecord(line)
	if err != nil {
		return "", nil, r.end(err)
	}
	r.records++
	return rec.Kind, rec.Value, nil
}

// Truncated reports whether the stream ended without its end mark: the recorder
// was killed or still runs, or the copy is incomplete.
func (r *Reader) Truncated() bool { return r.truncated }

// Close frees the reader's memory.
func (r *Reader) Close() { r.dec.Close() }

// end remembers why the stream ended, in the caller's terms.
func (r *Reader) end(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.truncated = true
		r.err = io.EOF
	case err == io.EOF:
		r.err = io.EOF
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrTooLarge):
		r.err = fmt.Errorf("after record %d: %w", r.records, err)
	default:
		r.err = fmt.Errorf("after record %d: %w: %w", r.records, ErrDamaged, err)
	}
	return r.err
}

// line returns the next whole line without its newline, at most MaxRecordBytes;
// io.ErrUnexpectedEOF for the beginning of one.
func (r *Reader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		if len(line)+len(part) > MaxRecordBytes {
			return nil, fmt.Errorf("%w: at most %d bytes", ErrTooLarge, MaxRecordBytes)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}
