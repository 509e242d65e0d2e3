package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/recording"
)

// TestRecordingsReplayToTheSameDecisions runs what real jobs did through today's
// code. Each recording holds what was decided when it was made; the golden text
// is what people saw. Make them anew with `go run ./test/accuracy -record DIR` (with -tune those that are
// to hold trials), those of the zoo with `.cache/zoo -record DIR`, of these with `-watch 14s` those of
// launchers and pools; and the texts with `go test ./cmd/trimtab -run Recordings -update`, when a change of
// decisions is meant. That also writes the verdicts anew that recordings tell: of these they hold what was seen, not what was said.
//
// The trap: recordings of before 2026-11-26 do not hold who was forked and who was started. Of a thread of
// zoo-go and zoo-openmp nothing tells then that it makes no batches, and their class is input. Those of the
// same programs with facts tell the truth, which is compute.
func TestRecordingsReplayToTheSameDecisions(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*.trimtab")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".trimtab"), func(t *testing.T) {
			if *update {
				retellFile(t, file)
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var out bytes.Buffer
			if err := replay(f, &out, io.Discard, outputTable); err != nil && !*update {
				t.Error(err)
			}
			golden := strings.TrimSuffix(file, ".trimtab") + ".golden"
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("decisions differ from %s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

//trimtab:table a flag of this test
var update = flag.Bool("update", false, "write the golden texts anew")

// TestReplayTwiceIsEqual: replay is a function of its input alone.
func TestReplayTwiceIsEqual(t *testing.T) {
	data, err := os.ReadFile("testdata/recordings/starved.trimtab")
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		_ = replay(bytes.NewReader(data), out, io.Discard, outputJSON) // a difference from the recording is the other test's
	}
	if first.String() != second.String() || first.Len() == 0 {
		t.Error("two replays differ")
	}
}

// TestReplayAsCSV: a line for each reading of each watched container, and of nothing else.
func TestReplayAsCSV(t *testing.T) {
	f, err := os.Open("testdata/recordings/neighbour-another-slice.trimtab")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	if err := replay(f, &out, io.Discard, outputCSV); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&out).ReadAll() // which holds each line to the columns of the first
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, line := range lines[1:] {
		seen[line[1]]++
	}
	if diff := cmp.Diff(map[string]int{"fairness-borrower": 43, "fairness-other0": 42}, seen); diff != "" {
		t.Errorf("lines of each container (-want +got):\n%s", diff)
	}
}

// Without a reading there is a header, and that the recording was cut is said beside the lines.
func TestReplayOfNothingAsCSV(t *testing.T) {
	r := opened(t, "testdata/recordings/neighbour-another-slice.trimtab")
	var in, out, notes bytes.Buffer
	w, err := recording.NewWriter(&in, r.Header())
	if err := errors.Join(err, w.Flush(), replay(&in, &out, &notes, outputCSV)); err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(render.ReadingColumns(), ",") + "\n"; out.String() != want || notes.String() != wasCut+"\n" {
		t.Errorf("%q, and beside it %q", out.String(), notes.String())
	}
}

// opened is a recording's reader, until the test ends.
func opened(t *testing.T, file string) *recording.Reader {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r, err := recording.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// rewritten is a recording written as a daemon does that may be killed at any
// instant: each record reaches the file before the next, as edit leaves it.
func rewritten(t *testing.T, file string, edit func(json.RawMessage) json.RawMessage) []byte {
	t.Helper()
	r := opened(t, file)
	var out bytes.Buffer
	w, err := recording.NewWriter(&out, r.Header())
	if err != nil {
		t.Fatal(err)
	}
	for {
		kind, raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out.Bytes()
		}
		if err := errors.Join(err, w.Write(kind, edit(raw)), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayOfACutRecording reads what is whole.
func TestReplayOfACutRecording(t *testing.T) {
	data := rewritten(t, "testdata/recordings/starved.trimtab", func(raw json.RawMessage) json.RawMessage { return raw })
	var out bytes.Buffer
	if err := replay(bytes.NewReader(data[:len(data)*2/3]), &out, io.Discard, outputTable); err != nil && !strings.Contains(err.Error(), "differ") {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "the recording was cut") {
		t.Errorf("not told that it was cut:\n%s", out.String())
	}
	if err := replay(strings.NewReader("not a recording"), &out, io.Discard, outputTable); err == nil {
		t.Error("any file replays")
	}
}

// TestReplayOfHostileNames: recordings are sent by others, and their names reach a terminal as text.
func TestReplayOfHostileNames(t *testing.T) {
	name, err := json.Marshal("\x1b]0;pwned\a\x1b[2J\u202etrain\nNEXT LINE\u009b")
	if err != nil {
		t.Fatal(err)
	}
	data := rewritten(t, "testdata/recordings/starved.trimtab", func(raw json.RawMessage) json.RawMessage {
		return bytes.ReplaceAll(raw, []byte(`"acc-starved"`), name)
	})
	var out bytes.Buffer
	if err := replay(bytes.NewReader(data), &out, io.Discard, outputTable); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "?]0;pwned??[2J?train?NEXT LINE?: cpu.quota") || strings.ContainsAny(out.String(), "\x1b\a\u202e\u009b") || strings.Contains(out.String(), "\nNEXT") {
		t.Errorf("%q", out.String())
	}
}
