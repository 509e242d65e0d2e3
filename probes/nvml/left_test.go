package nvml

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// These commands make the test binary a child that leaves a process behind, and that process.
const (
	leavesCommand = "nvml-leaves" // then a folder: the process is in its file "left", and each child adds to "started"
	hangsCommand  = "nvml-hangs"  // until its standard input ends
)

// asLeaving runs such a command; it returns where there is none.
func asLeaving(args []string) {
	if len(args) < 2 || args[1] != leavesCommand && args[1] != hangsCommand {
		return
	}
	if args[1] == hangsCommand {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that counts
		os.Exit(0)
	}
	if err := leavingChild(args[2], args[3] == "works"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// leavingChild finds no driver, or one whose device is lost.
func leavingChild(dir string, works bool) error {
	started, err := os.OpenFile(filepath.Join(dir, "started"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := started.WriteString("x"); err != nil {
		return err
	}
	var left wire.Left
	if b, err := os.ReadFile(filepath.Join(dir, "left")); err != nil || json.Unmarshal(b, &left) != nil {
		return fmt.Errorf("left: %q, %w", b, err)
	}
	out := os.NewFile(wire.AnswerFD, "answers")
	say := func(all ...wire.Answer) (err error) {
		for _, a := range all {
			err = errors.Join(err, wire.WriteLine(out, a))
		}
		return err
	}
	if err := say(wire.Answer{Left: &left}); err != nil {
		return err
	}
	if !works {
		return say(wire.Answer{Failed: &wire.Failure{Why: "no NVIDIA driver here", Normal: true}})
	}
	if err := say(wire.Answer{Hello: &wire.Hello{Protocol: wire.Protocol, Landlock: 7, LeftOut: left.At}}); err != nil {
		return err
	}
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		d := probes.Device{UUID: "GPU-a", AtNs: procfs.MonotonicNs(), Lost: "fell off the bus"}
		if err := say(wire.Answer{Device: &d}, wire.Answer{End: &wire.End{}}); err != nil {
			return err
		}
	}
	return nil
}

// hangingProcess bears a name, and ends when it is told to.
func hangingProcess(t *testing.T, name string) (left wire.Left, end func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, hangsCommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = in.Close() // it may have been told before
		_ = cmd.Wait() // likewise
	}
	t.Cleanup(end)
	stat, err := procfs.ReadStat("/proc", int32(cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return wire.Left{PID: int32(cmd.Process.Pid), StartTick: stat.StartTick, At: "/mnt/a"}, end
}

// While a process hangs that a child left behind, that child is the last: each further one would leave
// more. A child that works goes on, though another would open new nodes or find a lost device.
func TestNoChildWhileOneHangs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mode    string
		process string
		start   uint64 // more than it has
		held    bool
	}{
		"no driver":      {"fails", ChildName, 0, true},
		"a lost device":  {"works", ChildName, 0, true},
		"another's PID":  {"fails", ChildName, 1, false},
		"another's name": {"fails", "other", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			left, end := hangingProcess(t, c.process)
			left.StartTick += c.start
			b, err := json.Marshal(left)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "left"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			children := func() int {
				b, _ := os.ReadFile(filepath.Join(dir, "started")) // none was started yet
				return len(b)
			}
			var log journal
			r := New(fast(Options{Child: []string{self, leavesCommand, dir, c.mode}, Logger: log.logger()}))
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
			if !c.held {
				eventually(t, "a third child", func() bool { return children() > 2 })
				return
			}
			why := fmt.Sprintf("no further NVML child is started until what hangs in a folder of the loader's has ended: process %d at /mnt/a", left.PID)
			until(t, r, "a word on it", func() bool {
				s, _, err := r.summary()
				return strings.Contains(s.Absent+s.Files+fmt.Sprint(err), why)
			})
			before := readings(r)
			time.Sleep(4 * r.o.LookAgain) // of three more tries
			if n := children(); n != 1 {
				t.Errorf("%d children", n)
			}
			if n := log.count(why); n != 1 {
				t.Errorf("it is logged %d times", n)
			}
			if ok, lost := r.Status(); c.mode == "fails" && (!ok || !strings.HasPrefix(lost, "no NVIDIA driver here; ")) {
				t.Errorf("status %v, %q", ok, lost)
			}
			if n := readings(r); c.mode == "works" && n == before {
				t.Error("the child that works is not asked any more")
			}
			end()
			eventually(t, "another child", func() bool { return children() > 1 })
			until(t, r, "no more word on it", func() bool { _, lost := r.Status(); return !strings.Contains(lost, why) })
		})
	}
}

// A child that was taken over fills no list of what it left behind.
func TestLeftIsBounded(t *testing.T) {
	left, _ := hangingProcess(t, ChildName)
	gone := left
	gone.StartTick++
	for name, c := range map[string]struct {
		left  wire.Left
		times int
		ok    bool
	}{
		"as many as may be":  {left, maxLeft, true},
		"more":               {left, maxLeft + 1, false},
		"those that ended":   {gone, 3 * maxLeft, true},
		"a folder that long": {wire.Left{PID: 1, At: strings.Repeat("x", maxText+1)}, 1, false},
	} {
		p := sayingChild(t, func(out io.Writer) {
			for range c.times {
				_ = wire.WriteLine(out, wire.Answer{Left: &c.left}) // until it is not listened to
			}
			_ = wire.WriteLine(out, wire.Answer{End: &wire.End{}}) // as above
		})
		r := &Reader{o: Options{}.withDefaults(), book: newBook(), news: make(chan struct{})}
		if _, err := r.reading(t.Context(), p); (err == nil) != c.ok || err != nil && !errors.Is(err, errNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
