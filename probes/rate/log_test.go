package rate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
)

// kernelPart is what the kernel probe leaves for this one.
func kernelPart(keys ...string) map[string]*probes.Sample {
	into := map[string]*probes.Sample{}
	for _, key := range keys {
		into[key] = &probes.Sample{Container: key, Kernel: &probes.Kernel{}}
	}
	return into
}

func ticks(t *testing.T, p *Probe, key string) []probes.Ticks {
	t.Helper()
	into := kernelPart(key)
	if err := p.Read(t.Context(), into); err != nil {
		t.Fatal(err)
	}
	return into[key].Kernel.Ticks
}

// wait reads until ok.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}

func newProbe(t *testing.T, opts Options) *Probe {
	t.Helper()
	p := New(opts)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// pipeLogs serves one log that the test writes.
func pipeLogs() (Logs, *io.PipeWriter) {
	r, w := io.Pipe()
	return func(ctx context.Context, _ string) (io.ReadCloser, error) { return r, nil }, w
}

func TestLogLines(t *testing.T) {
	logs, w := pipeLogs()
	p := newProbe(t, Options{Logs: logs})
	if err := p.Watch(probes.Target{Key: "a", InitPID: 42, ContainerID: "c", RateLog: `step=(\d+)`}); err != nil {
		t.Fatal(err)
	}
	if got := ticks(t, p, "a"); len(got) != 0 {
		t.Errorf("before the first line: %+v", got)
	}
	before := procfs.MonotonicNs()
	old := time.Now().Add(-10 * time.Second).Format(time.RFC3339Nano)
	for _, line := range []string{old + " step=10", "noise", "", strings.Repeat("x", 100_000) + " step=999", old + " step=15"} {
		fmt.Fprintln(w, line)
	}
	wait(t, "five steps", func() bool { got := ticks(t, p, "a"); return len(got) == 1 && got[0].Count == 5 })
	got := ticks(t, p, "a")[0]
	if got.Source != probes.SourceLog || got.TGID != 42 || !got.Steps {
		t.Errorf("%+v", got)
	}
	if age := time.Duration(before - got.LastNs); age < 9*time.Second || age > 11*time.Second {
		t.Errorf("the log's time is 10 s ago, the tick's %v", age)
	}
	fmt.Fprint(w, "step=2") // half of step=20
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ticks(t, p, "a")[0]; got.Count != 5 {
		t.Errorf("half a line counted: %+v", got)
	}
	if into := map[string]*probes.Sample{"a": {}}; p.Read(t.Context(), into) != nil || into["a"].Kernel != nil {
		t.Error("a sample without a kernel part got one")
	}
}

// flood is a log without end.
type flood struct {
	line []byte
	read atomic.Int64
}

func (f *flood) Read(b []byte) (int, error) {
	n := copy(b, bytes.Repeat(f.line, len(b)/len(f.line)+1))
	f.read.Add(int64(n))
	return n, nil
}

func (f *flood) Close() error { return nil }

func TestFloodsCostABoundedReading(t *testing.T) {
	for name, tc := range map[string]struct{ line, expression, want string }{
		"lines":          {"step=1 and more\n", `step=(\d+)`, "not read for"}, // on a slow machine the matching is what is over its bound
		"one long line":  {"xxxxxxxxxxxxxxxx", `step=(\d+)`, "floods"},
		"a costly match": {strings.Repeat("a", 4000) + "\n", `(a?a?a?a?a?a?a?a?a?a?){20}(a?a?a?a?a?a?a?a?a?a?){20}b`, "costly"},
	} {
		f := &flood{line: []byte(tc.line)}
		opened := atomic.Int32{}
		p := newProbe(t, Options{Logs: func(context.Context, string) (io.ReadCloser, error) { opened.Add(1); return f, nil }})
		if err := p.Watch(probes.Target{Key: "a", InitPID: 42, ContainerID: "c", RateLog: tc.expression}); err != nil {
			t.Fatal(err)
		}
		wait(t, name+" is told", func() bool { return strings.Contains(p.Problem("a")[probes.SourceLog], tc.want) })
		// A second's refill and a buffer on top of the burst, at the most.
		if read := f.read.Load(); read > logBytesAtOnce+logBytesPerS+4*maxLine || opened.Load() != 1 {
			t.Errorf("%s: read %d bytes, opened %d times", name, read, opened.Load())
		}
	}
}

func TestUnusableExpressions(t *testing.T) {
	p := newProbe(t, Options{Logs: func(context.Context, string) (io.ReadCloser, error) {
		t.Error("a log was opened")
		return nil, errors.New("no")
	}})
	if err := p.Watch(probes.Target{Key: "a", ContainerID: "c", RateLog: "step ("}); err != nil {
		t.Fatal(err)
	}
	if problem := p.Problem("a")[probes.SourceLog]; !strings.Contains(problem, "allowed") {
		t.Errorf("%q", problem)
	}
	if p.Unwatch("a"); p.Problem("a") != nil {
		t.Error("the problem outlives the container")
	}
}

func TestLogsThatCannotBeOpened(t *testing.T) {
	p := newProbe(t, Options{Logs: func(context.Context, string) (io.ReadCloser, error) {
		return nil, errors.New("driver none cannot be read")
	}})
	if err := p.Watch(probes.Target{Key: "a", ContainerID: "c", RateLog: "step"}); err != nil {
		t.Fatal(err)
	}
	wait(t, "told", func() bool { return strings.Contains(p.Problem("a")[probes.SourceLog], "driver none") })
}

func TestReadLine(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader("a\r\n"+strings.Repeat("b", 3*maxLine)+"\nc"), 2*maxLine)
	total := 0
	for _, want := range []string{"a", strings.Repeat("b", maxLine), "c"} {
		line, n, err := readLine(r, func(n int) bool { total += n; return true })
		if string(line) != want || err != nil && err != io.EOF {
			t.Errorf("%d bytes %.5q, of %d: %v", len(line), line, n, err)
		}
	}
	if total != 3+3*maxLine+1+1 {
		t.Errorf("%d bytes were paid for", total)
	}
}

// dockerLogs follows a log with the command, as the engine's method does by the API.
func dockerLogs(ctx context.Context, id string) (io.ReadCloser, error) {
	cmd := exec.CommandContext(ctx, "docker", "logs", "--follow", "--timestamps", "--tail", "0", id)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = w.CloseWithError(cmdEnd(cmd.Wait())) }()
	return r, nil
}

func cmdEnd(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

func TestLogOfARealContainer(t *testing.T) {
	out, err := exec.Command("docker", "run", "--detach", "--rm", "--network", "none", "trimtab-train:1", "sh", "-c",
		`i=0; while true; do i=$((i+10)); echo "epoch 1 step $i/1000 loss 0.1"; echo warning >&2; sleep 0.1; done`).Output()
	if err != nil {
		t.Skipf("needs Docker and the image trimtab-train:1: %v", err)
	}
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "--force", id).Run() })
	p := newProbe(t, Options{Logs: dockerLogs})
	if err := p.Watch(probes.Target{Key: "a", InitPID: 7, ContainerID: id, RateLog: `step (?P<step>\d+)`}); err != nil {
		t.Fatal(err)
	}
	var first probes.Ticks
	wait(t, "a first line", func() bool {
		got := ticks(t, p, "a")
		if len(got) == 1 {
			first = got[0]
		}
		return len(got) == 1
	})
	wait(t, "a hundred steps", func() bool { return ticks(t, p, "a")[0].Count >= first.Count+100 })
	last := ticks(t, p, "a")[0]
	perS := float64(last.Count-first.Count) / (float64(last.LastNs-first.LastNs) / 1e9)
	if logged := loggedPerS(t, id, first, last); perS < 0.9*logged || perS > 1.1*logged || p.Problem("a") != nil {
		t.Errorf("%.1f steps/s, the log has %.1f; %v", perS, logged, p.Problem("a"))
	}
}

// loggedPerS is the pace between two readings by the stamps of their lines in the engine's own log, whatever a
// busy machine made of the container's. Lines are ten steps apart.
func loggedPerS(t *testing.T, id string, first, last probes.Ticks) float64 {
	t.Helper()
	out, err := exec.Command("docker", "logs", "--timestamps", id).Output()
	if err != nil {
		t.Fatal(err)
	}
	var stamps []int64 // of all lines with a step
	for line := range strings.Lines(string(out)) {
		at, text, _ := strings.Cut(line, " ")
		if stamp, err := time.Parse(time.RFC3339Nano, at); err == nil && strings.Contains(text, "step") {
			stamps = append(stamps, stamp.UnixNano()-time.Now().UnixNano()+procfs.MonotonicNs())
		}
	}
	lines, best, perS := int(last.Count-first.Count)/10, int64(math.MaxInt64), 0.0
	for i := 0; i+lines < len(stamps); i++ {
		if off := max(first.LastNs-stamps[i], stamps[i]-first.LastNs); off < best {
			best, perS = off, float64(10*lines)/(float64(stamps[i+lines]-stamps[i])/1e9)
		}
	}
	t.Logf("%d lines, the first %v off its stamp, %.1f steps/s", lines, time.Duration(best), perS)
	return perS
}
