package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/gdamore/tcell/v3/vt"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/top"
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// patience is how long a terminal is waited for: a bound of failure, no measurement.
const patience = 30 * time.Second

// liveDaemon is the fixed state, of now.
type liveDaemon struct {
	hostileDaemon
	pid int
}

// Series has a point of half an hour ago, when its quota stopped it.
func (liveDaemon) Series(string) []series.Point {
	p := series.Point{UnixNs: time.Now().Add(-30 * time.Minute).UnixNano(), Rate: 3, Steps: true, Quota: 0.7, Shares: make([]float64, policies.NumParts)}
	p.Shares[policies.PartInputThrottled] = 1
	return []series.Point{p}
}

func (d liveDaemon) Snapshot() *state.Snapshot {
	s := d.fake.Snapshot()
	if d.names != nil {
		s = d.hostileDaemon.Snapshot()
	}
	s.UnixNs, s.Daemon.PID = time.Now().UnixNano(), d.pid
	for i := range s.Containers {
		c := &s.Containers[i]
		c.Key, c.Windows = fmt.Sprintf("docker-%d", i), uint64(i+1)
		c.Breakdown.WallNs, c.Breakdown.Ns[policies.PartCompute] = 1e9, 1e9
	}
	return s
}

// serveAt answers at a socket until stop is called.
func serveAt(t testing.TB, socket string, backend api.Backend) (stop func()) {
	t.Helper()
	l, err := api.Listen(socket, api.Groups{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- api.NewServer(backend, slog.New(slog.DiscardHandler), time.Now).Run(ctx, l) }()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return stop
}

// onTerminal is a process on a terminal of its own, and what that shows.
type onTerminal struct {
	t      testing.TB
	cmd    *exec.Cmd
	ptmx   *os.File
	before unix.Termios // of the terminal

	mu      sync.Mutex
	screen  vt.MockTerm
	size    vt.Coord
	raw     strings.Builder
	changed chan struct{}
	closed  chan struct{} // all that was written is read
}

func startOnTerminal(t testing.TB, env []string, name string, args ...string) *onTerminal {
	t.Helper()
	ptmx, tty, err := pty.Open()
	if err != nil {
		t.Skipf("needs pseudo terminals: %v", err)
	}
	defer tty.Close() //nolint:errcheck // the child has it
	size := vt.Coord{X: 80, Y: 24}
	o := &onTerminal{t: t, ptmx: ptmx, screen: vt.NewMockTerm(vt.MockOptSize(size)), size: size, changed: make(chan struct{}, 1), closed: make(chan struct{})}
	o.resize(80, 24)
	o.before = o.termios()
	if err := o.screen.Start(); err != nil {
		t.Fatal(err)
	}
	o.cmd = exec.Command(name, args...)
	o.cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR=", "COLORTERM="}, env...)...)
	o.cmd.Stdin, o.cmd.Stdout, o.cmd.Stderr = tty, tty, tty
	o.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go o.read()
	t.Cleanup(func() {
		_ = o.cmd.Process.Kill() // it has ended, where the test went well
		_ = o.cmd.Wait()
		_ = ptmx.Close()
		<-o.closed
		_ = o.screen.Stop()
	})
	return o
}

func (o *onTerminal) termios() unix.Termios {
	o.t.Helper()
	settings, err := unix.IoctlGetTermios(int(o.ptmx.Fd()), unix.TCGETS)
	if err != nil {
		o.t.Fatal(err)
	}
	return *settings
}

func (o *onTerminal) resize(width, height int) {
	o.t.Helper()
	o.mu.Lock()
	o.size = vt.Coord{X: vt.Col(width), Y: vt.Row(height)}
	o.screen.SetSize(o.size)
	o.mu.Unlock()
	if err := pty.Setsize(o.ptmx, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)}); err != nil {
		o.t.Fatal(err)
	}
}

// read feeds the emulator until the last process has closed the terminal.
func (o *onTerminal) read() {
	defer close(o.closed)
	buf := make([]byte, 64<<10)
	for {
		n, err := o.ptmx.Read(buf)
		o.mu.Lock()
		_, _ = o.screen.Write(buf[:n])
		o.raw.Write(buf[:n])
		o.mu.Unlock()
		select {
		case o.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (o *onTerminal) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.screen.Drain()
	var out strings.Builder
	for y := range o.size.Y {
		for x := vt.Col(0); x < o.size.X; x++ {
			c := o.screen.GetCell(vt.Coord{X: x, Y: y})
			if c.C == "" {
				c.C = " "
			}
			out.WriteString(c.C)
			x += max(vt.Col(c.W), 1) - 1
		}
		out.WriteString("\n")
	}
	return out.String()
}

// want waits until the terminal shows a text, or shows it no more.
func (o *onTerminal) want(text string, there bool) {
	o.t.Helper()
	deadline := time.After(patience)
	for strings.Contains(o.text(), text) != there {
		select {
		case <-o.changed:
		case <-deadline:
			o.t.Fatalf("%q is shown: want %v\n%s", text, there, o.text())
		}
	}
}

func (o *onTerminal) press(keys string) {
	o.t.Helper()
	if _, err := o.ptmx.WriteString(keys); err != nil {
		o.t.Fatal(err)
	}
}

// ends waits for the end of the process, and looks whether the terminal is as it was.
func (o *onTerminal) ends() {
	o.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- o.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			o.t.Errorf("ended: %v", err)
		}
	case <-time.After(patience):
		o.t.Fatalf("does not end:\n%s", o.text())
	}
	<-o.closed
	if diff := cmp.Diff(o.before, o.termios()); diff != "" {
		o.t.Errorf("the terminal's settings (-before +after):\n%s", diff)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for on, off := range map[string]string{"\x1b[?1049h": "\x1b[?1049l", "\x1b[?25l": "\x1b[?25h"} {
		if raw := o.raw.String(); strings.Contains(raw, on) && strings.LastIndex(raw, on) > strings.LastIndex(raw, off) {
			o.t.Errorf("%q is not undone", on)
		}
	}
}

func TestTopOnATerminal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "t.sock")
	stop := serveAt(t, socket, liveDaemon{pid: 812})
	o := startOnTerminal(t, nil, "trimtab", "top", "--socket", socket, "--interval", "500ms")
	o.want("train", true)
	o.want("a all (+1)", true)
	o.press("?")
	o.want("select a container", true)
	o.press("\x1b")
	o.want("select a container", false)
	o.want("TEAM", false)
	o.resize(140, 40)
	o.want("TEAM", true)
	o.press("\r")
	o.want("What bounds it: nothing in particular", true)
	o.want("CCCCCCCC", true)
	o.want("0.7   tttttttt", true) // from before top ran
	o.press("\x1b")
	o.want("SPEEDUP", true)
	stop()
	o.want("the trimtab daemon is not running", true)
	o.want("train", true) // the last that is known
	serveAt(t, socket, liveDaemon{pid: 900})
	o.want("the daemon was restarted", true)
	o.want("is not running", false)
	o.resize(20, 5)
	o.want("TEAM", false)
	o.press("q")
	o.ends()
}

func TestTopGivesTheTerminalBack(t *testing.T) {
	for name, end := range map[string]func(*onTerminal){
		"ctrl-C":  func(o *onTerminal) { o.press("\x03") },
		"SIGTERM": func(o *onTerminal) { _ = o.cmd.Process.Signal(unix.SIGTERM) },
		"SIGQUIT": func(o *onTerminal) { _ = o.cmd.Process.Signal(unix.SIGQUIT) },
		"SIGHUP":  func(o *onTerminal) { _ = o.cmd.Process.Signal(unix.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			o := startOnTerminal(t, nil, "trimtab", "top", "--socket", filepath.Join(t.TempDir(), "none"))
			o.want("the trimtab daemon is not running", true)
			end(o)
			o.ends()
		})
	}
}

// TestTopIsStopped: by ctrl-Z, and goes on where it was.
func TestTopIsStopped(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash: a shell with jobs")
	}
	socket := filepath.Join(t.TempDir(), "t.sock")
	serveAt(t, socket, liveDaemon{pid: 812})
	o := startOnTerminal(t, []string{"PS1=ready> ", "PROMPT_COMMAND=", "HISTFILE="}, "bash", "--norc", "--noprofile", "-i")
	o.want("ready>", true)
	o.press("trimtab top --socket " + socket + "\n")
	o.want("STALLED", true)
	o.press("\x1a")
	o.want("Stopped", true)
	o.want("STALLED", false)
	o.press("fg; echo ended with $?\n")
	o.want("STALLED", true)
	o.press("q")
	o.want("ended with 0", true)
	o.press("exit\n")
	o.ends()
}

// TestTopWithoutColour: attributes at most, and nothing that a name says.
func TestTopWithoutColour(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "t.sock")
	serveAt(t, socket, liveDaemon{hostileDaemon{names: append(hostileNames(), "\x1b]0;owned\a", "\u202egnp", strings.Repeat("x", 4096))}, 812})
	for name, tc := range map[string]struct {
		env      string
		coloured bool
	}{"NO_COLOR": {"NO_COLOR=1", false}, "a colour terminal": {"NO_COLOR=", true}} {
		t.Run(name, func(t *testing.T) {
			o := startOnTerminal(t, []string{tc.env}, "trimtab", "top", "--socket", socket, "--interval", "500ms")
			o.want("SPEEDUP", true)
			o.want("balanced", true)
			o.press("\r")
			o.want("WHERE ITS TIME WENT", true)
			o.want("CCCCCCCC", true)
			o.press("q")
			o.ends()
			raw := o.raw.String()
			if got := regexp.MustCompile(`\x1b\[[34]\d`).MatchString(raw); got != tc.coloured {
				t.Errorf("colours: %v", got)
			}
			for _, bad := range []string{"\x1b]0", "\x1b[2J", "\u009b", "\u202e", "owned\a"} {
				if strings.Contains(raw, bad) {
					t.Errorf("%q reaches the terminal", bad)
				}
			}
		})
	}
}

// TestTopOnADumbTerminal: frame after frame of plain text.
func TestTopOnADumbTerminal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "t.sock")
	serveAt(t, socket, liveDaemon{pid: 812})
	o := startOnTerminal(t, []string{"TERM=dumb"}, "trimtab", "top", "--socket", socket, "--interval", "500ms")
	o.want("train", true)
	o.press("\x03")
	o.ends()
	if raw := o.raw.String(); strings.Contains(raw, "\x1b") {
		t.Errorf("escapes on a dumb terminal: %q", raw)
	}
}

func TestPause(t *testing.T) {
	for _, tc := range []struct{ interval, took, want time.Duration }{
		{2 * time.Second, 10 * time.Millisecond, 2 * time.Second}, {2 * time.Second, 200 * time.Millisecond, 4 * time.Second},
		{2 * time.Second, time.Minute, 10 * time.Second}, {time.Minute, time.Second, time.Minute},
	} {
		if got := pause(tc.interval, tc.took); got != tc.want {
			t.Errorf("each %s, answered in %s: %s, want %s", tc.interval, tc.took, got, tc.want)
		}
	}
}

// TestHourOfAJobIsAskedFor: when it is opened, and each minute while it is shown.
func TestHourOfAJobIsAskedFor(t *testing.T) {
	var h hourAsked
	a, b, none, at := "a", "b", "", time.Unix(1000, 0)
	for i, tc := range []struct {
		shown *string
		after time.Duration
		want  string
	}{{nil, 0, ""}, {&none, 0, ""}, {&a, 0, "a"}, {&a, time.Second, ""}, {&b, time.Second, "b"}, {&b, 59 * time.Second, ""}, {&b, time.Second, "b"}, {&none, 0, ""}, {&b, 0, "b"}} {
		at = at.Add(tc.after)
		if got := h.due(tc.shown, at); got != tc.want {
			t.Errorf("%d: %q, want %q", i, got, tc.want)
		}
	}
}

// TestRestAfterAnAnswer: a key skips the interval, and never what an answer's cost asks for.
func TestRestAfterAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		asked      bool
		took, want time.Duration
	}{{false, 10 * time.Millisecond, time.Minute}, {true, 10 * time.Millisecond, minInterval}, {true, 100 * time.Millisecond, 2 * time.Second}, {true, time.Minute, maxPause}} {
		synctest.Test(t, func(t *testing.T) {
			p := poller{interval: time.Minute, now: make(chan struct{}, 1)}
			if tc.asked {
				p.now <- struct{}{}
			}
			began := time.Now()
			p.rest(t.Context(), tc.took)
			if got := time.Since(began); got != tc.want {
				t.Errorf("answered in %s, asked for at once %v: %s until the next question, want %s", tc.took, tc.asked, got, tc.want)
			}
		})
	}
}

// TestPanicOfThePoller: is told on the screen, which stays whole.
func TestPanicOfThePoller(t *testing.T) {
	got, ok := poller{}.answer(t.Context(), "").(top.Failed) // without a client
	if !ok || !strings.Contains(got.Text, "nil pointer") {
		t.Errorf("got %+v", got)
	}
}

// thousand is a daemon of as many containers, each of which closes a window every second.
type thousand struct{ fake }

func (d thousand) Snapshot() *state.Snapshot {
	s := d.fake.Snapshot()
	s.UnixNs = time.Now().UnixNano()
	one := s.Containers[0]
	one.Breakdown.WallNs, one.Windows = 1e9, uint64(s.UnixNs/1e9)
	one.Cost = policies.Cost{TrainerCPU: 0.02, LoaderCPU: 0.05, Device: 0.04, Batch: 0.05, Loaders: 2, Ticks: 100}
	for p := range one.Breakdown.Ns {
		one.Breakdown.Ns[p] = 7e7 + s.UnixNs%1e7
	}
	s.Containers = nil
	for i := range 1000 {
		one.Name, one.Key, one.ID = fmt.Sprintf("train-%04d", i), fmt.Sprintf("docker-%064d", i), fmt.Sprintf("%064d", i)
		s.Containers = append(s.Containers, one)
	}
	return s
}

// BenchmarkTopOfAThousand is what `trimtab top` costs with 1,000 containers, asked every two
// seconds as by default: its CPU over twenty seconds on a terminal of 140×40, its start included.
func BenchmarkTopOfAThousand(b *testing.B) {
	const stretch = 20 * time.Second
	socket := filepath.Join(b.TempDir(), "t.sock")
	serveAt(b, socket, thousand{})
	for b.Loop() {
		o := startOnTerminal(b, nil, "trimtab", "top", "--socket", socket)
		o.resize(140, 40)
		o.want("train-0001", true)
		began := time.Now()
		time.Sleep(stretch)
		o.press("G") // it answers keys
		o.want("train-0999", true)
		o.press("q")
		o.ends()
		ps := o.cmd.ProcessState
		b.ReportMetric(100*(ps.UserTime()+ps.SystemTime()).Seconds()/time.Since(began).Seconds(), "%cpu")
		b.ReportMetric(float64(ps.SysUsage().(*syscall.Rusage).Maxrss)/1024, "MiB")
	}
}
