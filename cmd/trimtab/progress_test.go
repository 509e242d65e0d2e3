package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// slowDaemon records, reports and restores once it is told to go on.
type slowDaemon struct {
	fake
	goOn chan struct{}
}

func (d *slowDaemon) wait(ctx context.Context) {
	select {
	case <-d.goOn:
	case <-ctx.Done():
	}
}

func (d *slowDaemon) Record(ctx context.Context, w io.Writer, _ time.Duration) error {
	d.wait(ctx)
	_, err := io.WriteString(w, "recorded")
	return err
}

func (d *slowDaemon) Report(ctx context.Context, _ api.ReportQuery) (state.Report, error) {
	d.wait(ctx)
	return state.Report{}, nil
}

func (d *slowDaemon) Restore(ctx context.Context, name string) ([]state.ActionResult, error) {
	d.wait(ctx)
	return []state.ActionResult{{Name: "train", OK: true, Text: "restored"}}, nil
}

// TestProgressLine: each text stands alone, what is written goes above it, and nothing is left.
func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, columns: 20}
	p.show("restoring: 12 left")
	p.show("restoring: 9 left")
	_, _ = p.Write([]byte("a warning\n"))
	p.show("a\x1b[2J\u202e" + strings.Repeat("x", 99))
	p.show("")
	p.show("")
	want := "\rrestoring: 12 left" + "\rrestoring: 9 left " + "\r" + strings.Repeat(" ", 17) + "\ra warning\n" +
		"\ra?[2J?xxxxxxxxxxxxxx" + "\r" + strings.Repeat(" ", 20) + "\r"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestProgressEnds(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, columns: 79}
	ticks, ending, ended := make(chan time.Time), make(chan struct{}), make(chan struct{})
	start := time.Unix(1000, 0)
	go func() {
		defer close(ended)
		p.run(start, ticks, ending, recordingLeft(time.Minute))
	}()
	ticks <- start.Add(time.Second)
	ticks <- start.Add(61 * time.Second)
	close(ending)
	<-ended
	want := "\rrecording: 59 s left" + "\rrecording: 0 s left " + "\r                   \r"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestNoProgressWithoutTerminal: scripts get what they got.
func TestNoProgressWithoutTerminal(t *testing.T) {
	var out bytes.Buffer
	w, stop := startProgress(&out, func(time.Duration) string { t.Error("asked"); return "" })
	_, _ = fmt.Fprint(w, "as before")
	stop()
	stop()
	if w != &out || out.String() != "as before" {
		t.Errorf("%T got %q", w, out.String())
	}
}

func TestSteps(t *testing.T) {
	var s steps
	var wg sync.WaitGroup
	wg.Go(func() { s.begin("loading programs") })
	wg.Wait()
	if got := s.text(3900 * time.Millisecond); got != "loading programs, 3 s" {
		t.Errorf("%q", got)
	}
}

// TestRecordShowsSecondsLeft on a terminal, and gives that line back.
func TestRecordShowsSecondsLeft(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "t.sock")
	daemon := &slowDaemon{goOn: make(chan struct{})}
	serveAt(t, socket, daemon)
	o := startOnTerminal(t, nil, "trimtab", "record", "--socket", socket, "--for", "90s", filepath.Join(t.TempDir(), "node.rec"))
	o.want("recording: 8", true) // 89 s or less left
	close(daemon.goOn)
	o.ends()
	o.want("recording:", false)
}

// TestReportShowsThatItIsAtWork on a terminal, whoever it asks; scripts and files see none of it.
func TestReportShowsThatItIsAtWork(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "t.sock")
	daemon := &slowDaemon{goOn: make(chan struct{})}
	serveAt(t, socket, daemon)
	prometheus := onePrometheus(t, daemon.goOn)
	asked := []*onTerminal{startOnTerminal(t, nil, "trimtab", "report", "--socket", socket), startOnTerminal(t, nil, "trimtab", "report", "--prometheus", prometheus)}
	asked[0].want("adding up, ", true)
	asked[1].want("asking Prometheus, ", true)
	close(daemon.goOn)
	for _, o := range asked {
		o.ends()
		o.want("adding up", false)
		o.want("asking", false)
	}
}

// TestRestoreShowsWhatIsLeft, as the daemon counts it.
func TestRestoreShowsWhatIsLeft(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "t.sock")
	daemon := &slowDaemon{goOn: make(chan struct{})}
	serveAt(t, socket, daemon)
	o := startOnTerminal(t, nil, "trimtab", "restore", "--socket", socket)
	o.want("restoring: containers that are still changed: 1, ", true)
	close(daemon.goOn)
	o.want("restored", true)
	o.want("restoring:", false)
}

// TestDoctorShowsWhatItTries on a terminal, while one that it asks does not answer.
func TestDoctorShowsWhatItTries(t *testing.T) {
	goOn := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "own.yaml")
	if err := os.WriteFile(config, []byte("stateDir: "+dir+"\nnotify: {webhook: {url: '"+receiver.URL+"'}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := startOnTerminal(t, nil, "trimtab", "doctor", "--config", config, "--conf-dir", filepath.Join(dir, "none"), "--socket", filepath.Join(dir, "none.sock"))
	o.want("asking those that are told of decisions, ", true)
	close(goOn)
	o.want("webhook", true)
	o.want("asking those that are told", false)
}

// TestRestoreOfflineShowsWhatIsLeft, while the engine does not answer.
func TestRestoreOfflineShowsWhatIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: restore --offline writes to containers")
	}
	dir := t.TempDir()
	engine, err := net.Listen("unix", filepath.Join(dir, "docker.sock")) // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	config := filepath.Join(dir, "own.yaml")
	text := "stateDir: " + dir + "\ndocker: {host: 'unix://" + engine.Addr().String() + "', containerd: " + filepath.Join(dir, "none.sock") + "}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := startOnTerminal(t, nil, "trimtab", "restore", "--offline", "--config", config, "--conf-dir", filepath.Join(dir, "none"))
	o.want("restoring: originals still on disk: 0, ", true)
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	o.want("restoring:", false)
}
