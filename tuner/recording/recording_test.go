package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

type entry struct {
	Kind  string
	Value string
}

func header() Header {
	return Header{Trimtab: "v0", WallUnixNs: 5, MonoNs: 3, Boot: "b", Arch: "amd64",
		Config: json.RawMessage(`{"mode":"tune"}`), State: json.RawMessage(`[1]`)}
}

func encode(t testing.TB, entries []entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, header())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := errors.Join(w.Write(e.Kind, e.Value), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// readAll returns all whole records, whether the stream was cut, and the error
// other than io.EOF.
func readAll(r io.Reader) (out []entry, truncated bool, err error) {
	in, err := NewReader(r)
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	for {
		kind, raw, err := in.Next()
		if err == io.EOF {
			return out, in.Truncated(), nil
		}
		if err != nil {
			return out, in.Truncated(), err
		}
		var v string
		if err := json.Unmarshal(raw, &v); err != nil {
			v = string(raw)
		}
		out = append(out, entry{kind, v})
	}
}

func someEntries(n int) []entry {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]entry, n)
	for i := range out {
		out[i] = entry{"sample", fmt.Sprint(i, " ", strings.Repeat(fmt.Sprint(rng.Uint64()), 1+rng.IntN(40)))}
	}
	return out
}

func compress(t testing.TB, text string) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return enc.EncodeAll([]byte(text), nil)
}

func TestRoundTripIsExactAndStable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) entry {
			return entry{rapid.StringN(1, 10, 40).Draw(t, "kind"), rapid.String().Draw(t, "value")}
		})).Draw(rt, "entries")
		text := encode(t, want)
		if !bytes.Equal(text, encode(t, want)) {
			rt.Fatal("two encodings of the same records differ")
		}
		got, truncated, err := readAll(bytes.NewReader(text))
		if err != nil || truncated || !cmp.Equal(got, want) && len(want) > 0 {
			rt.Fatalf("got %v, truncated %v, %v; want %v", got, truncated, err, want)
		}
	})
}

func TestHeaderRoundTrip(t *testing.T) {
	in, err := NewReader(bytes.NewReader(encode(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	want := header()
	want.Format, want.Version = Format, Version
	if d := cmp.Diff(want, in.Header()); d != "" {
		t.Error(d)
	}
}

// A recorder killed at any byte leaves a stream that reads up to the last whole record.
func TestCutAnywhereReadsWholeRecords(t *testing.T) {
	want := someEntries(12)
	text := encode(t, want)
	most := 0
	for cut := range len(text) {
		got, truncated, err := readAll(bytes.NewReader(text[:cut]))
		if err != nil {
			if !errors.Is(err, ErrNotRecording) {
				t.Fatalf("cut at %d of %d: %v", cut, len(text), err)
			}
			if most > 0 {
				t.Fatalf("cut at %d of %d: header no longer read", cut, len(text))
			}
			continue
		}
		if len(got) > len(want) || !cmp.Equal(got, want[:len(got)]) && len(got) > 0 {
			t.Fatalf("cut at %d: got %v", cut, got)
		}
		if !truncated {
			t.Errorf("cut at %d of %d: not reported as truncated", cut, len(text))
		}
		if len(got) < most {
			t.Fatalf("cut at %d: %d records, %d with less", cut, len(got), most)
		}
		most = len(got)
	}
	if most != len(want) {
		t.Errorf("just before the end %d records can be read, want %d", most, len(want))
	}
}

func TestFlushedRecordsCanBeReadWithoutClose(t *testing.T) {
	var buf bytes.Buffer
	w, err := NewWriter(&buf, header())
	if err != nil {
		t.Fatal(err)
	}
	want := someEntries(3)
	for _, e := range want {
		if err := w.Write(e.Kind, e.Value); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got, truncated, err := readAll(&buf)
	if err != nil || !truncated || !cmp.Equal(got, want) {
		t.Errorf("got %v, truncated %v, %v", got, truncated, err)
	}
}

func TestReaderRefuses(t *testing.T) {
	head := `{"format":"trimtab-recording","version":1}` + "\n"
	for _, tc := range []struct {
		name, text string
		want       error
		records    int
	}{
		{"another JSON", `{"format":"other","version":1}` + "\n", ErrNotRecording, 0},
		{"no JSON", "hello\n", ErrNotRecording, 0},
		{"nothing", "", ErrNotRecording, 0},
		{"the future", `{"format":"trimtab-recording","version":2,"arch":7}` + "\n", ErrVersion, 0},
		{"a bad header", `{"format":"trimtab-recording","version":1,"arch":7}` + "\n", ErrDamaged, 0},
		{"a bad record", head + `{"t":"a","v":1}` + "\n{{\n", ErrDamaged, 1},
		{"no kind", head + `{"t":"a","v":1}` + "\n" + `{"v":1}` + "\n", ErrDamaged, 1},
		{"a huge record", head + `{"t":"a","v":1}` + "\n" + strings.Repeat(" ", MaxRecordBytes+1) + "\n", ErrTooLarge, 1},
		{"a huge header", strings.Repeat(" ", MaxRecordBytes+1), ErrTooLarge, 0},
		{"deep nesting", head + `{"t":"a","v":` + strings.Repeat("[", 1<<20) + "\n", ErrDamaged, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := readAll(bytes.NewReader(compress(t, tc.text)))
			if !errors.Is(err, tc.want) || len(got) != tc.records {
				t.Errorf("got %d records, %v; want %d, %v", len(got), err, tc.records, tc.want)
			}
		})
	}
	if _, _, err := readAll(strings.NewReader(head)); !errors.Is(err, ErrNotRecording) {
		t.Errorf("uncompressed: %v", err)
	}
}

func TestReaderRefusesHugeWindow(t *testing.T) {
	enc, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	enc.Reset(&buf)
	noise := make([]byte, 9<<20)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	_, err = enc.Write(noise)
	if err = errors.Join(err, enc.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := NewReader(&buf); !errors.Is(err, zstd.ErrWindowSizeExceeded) {
		t.Errorf("a stream that asks for 64 MiB: %v, want refusal", err)
	}
}

func TestFlippedBytesGiveOnlyTrueRecords(t *testing.T) {
	want := someEntries(12)
	text := encode(t, want)
	for at := range text {
		damaged := bytes.Clone(text)
		damaged[at] ^= 0x40
		got, _, err := readAll(bytes.NewReader(damaged))
		if err == nil && len(got) == len(want) && !cmp.Equal(got, want) {
			t.Errorf("byte %d changed: other records, no error", at)
		}
	}
}

type failing struct{ room int }

func (f *failing) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errors.New("full")
	}
	return len(p), nil
}

func TestWriterErrorsStay(t *testing.T) {
	w, err := NewWriter(&failing{room: 200}, header())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write("a", func() {}); err == nil || w.err != nil {
		t.Fatalf("a payload that cannot be encoded: %v, stream %v", err, w.err)
	}
	if err := w.Write("a", strings.Repeat("x", MaxRecordBytes)); !errors.Is(err, ErrTooLarge) || w.err != nil {
		t.Fatalf("a huge payload: %v, stream %v", err, w.err)
	}
	for _, e := range someEntries(20) {
		err = errors.Join(w.Write(e.Kind, e.Value), w.Flush())
	}
	if err == nil || w.Write("a", 1) == nil || w.Close() == nil {
		t.Error("a destination that failed is not told of")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encode(f, someEntries(3)))
	f.Add(encode(f, nil)[:20])
	f.Add(compress(f, `{"format":"trimtab-recording","version":1}`+"\n"+`{"t":"a","v":{}}`+"\n{"))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := NewReader(bytes.NewReader(data))
		if err != nil {
			return
		}
		defer in.Close()
		for range 1000 {
			kind, v, err := in.Next()
			if err != nil {
				if _, _, again := in.Next(); again != err {
					t.Fatalf("the end changed from %v to %v", err, again)
				}
				return
			}
			if kind == "" || !json.Valid(v) {
				t.Fatalf("a record that is none: %q %q", kind, v)
			}
		}
	})
}

// FuzzLines goes past the compression, where mutations rarely reach.
func FuzzLines(f *testing.F) {
	f.Add(`{"t":"a","v":{}}` + "\n" + `{"t":"b"}`)
	f.Fuzz(func(t *testing.T, lines string) {
		text := compress(t, `{"format":"trimtab-recording","version":1}`+"\n"+lines)
		got, truncated, err := readAll(bytes.NewReader(text))
		if len(got) > strings.Count(lines, "\n") {
			t.Fatalf("%d records from %q", len(got), lines)
		}
		if err == nil && truncated != (lines != "" && !strings.HasSuffix(lines, "\n")) {
			t.Fatalf("truncated %v for %q", truncated, lines)
		}
	})
}
