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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// These commands make the test binary a child that leaves processes behind, and such a process.
const (
	leavesCommand = "nvml-leaves" // then a folder: the processes are in its file "left", and each child adds a line to "started"
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
	var told []string
	for _, arg := range os.Args {
		if at, is := strings.CutPrefix(arg, wire.SilentFlag); is {
			told = append(told, at)
		}
	}
	started, err := os.OpenFile(filepath.Join(dir, "started"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(started, "%q with %s\n", told, os.Getenv(wire.LibraryPath)); err != nil {
		return err
	}
	var left []wire.Left
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
	for _, l := range left {
		if slices.Contains(told, l.At) {
			continue // nobody is left where nobody looks
		}
		if err := say(wire.Answer{Left: &l}); err != nil {
			return err
		}
	}
	if !works {
		return say(wire.Answer{Failed: &wire.Failure{Why: "no NVIDIA driver here", Normal: true}})
	}
	if err := say(wire.Answer{Hello: &wire.Hello{Protocol: wire.Protocol, Landlock: 7, LeftOut: left[0].At}}); err != nil {
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

// A process hangs that a child left behind, and the child ends: the next one is told where, and leaves it
// alone, until that has answered. Where as many hang as may be, the child is the last until some have ended.
func TestNextChildLeavesAloneWhatHangs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const libraries = "/mnt/a:/opt/lib"
	t.Setenv(wire.LibraryPath, libraries)
	for name, c := range map[string]struct {
		mode    string
		process string
		start   uint64 // more than it has
		many    int    // folders in which it hangs; 0: one
		told    bool
		held    bool
	}{
		"no driver":           {mode: "fails", process: ChildName, told: true},
		"a lost device":       {mode: "works", process: ChildName, told: true},
		"another's PID":       {mode: "fails", process: ChildName, start: 1},
		"another's name":      {mode: "fails", process: "other"},
		"as many as may be":   {mode: "fails", process: ChildName, many: maxHanging, told: true},
		"more, and no driver": {mode: "fails", process: ChildName, many: maxHanging + 1, held: true},
		"more, and it works":  {mode: "works", process: ChildName, many: maxHanging + 1, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			left, end := hangingProcess(t, c.process)
			left.StartTick += c.start
			all := []wire.Left{left}
			for i := 1; i < c.many; i++ {
				left.At = fmt.Sprintf("/mnt/a%d", i)
				all = append(all, left)
			}
			b, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "left"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			children := func() []string {
				b, _ := os.ReadFile(filepath.Join(dir, "started")) // none was started yet
				return strings.Split(string(b), "\n")
			}
			var log journal
			r := New(fast(Options{Child: []string{self, leavesCommand, dir, c.mode}, Logger: log.logger()}))
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
			first := `[] with ` + libraries
			if c.held {
				r.holds(t, &log, c.mode, c.many, func() int { return len(children()) - 1 }, end)
				return
			}
			eventually(t, "a third child", func() bool { return len(children()) > 3 })
			var at []string
			for _, l := range all {
				at = append(at, l.At)
			}
			again := fmt.Sprintf("%q with /opt/lib", at)
			if !c.told {
				again = first
			}
			if got := children(); got[0] != first || got[1] != again || got[2] != again {
				t.Fatalf("children are told %q; want %q, then %q", got, first, again)
			}
			if n := log.count("a process that looked at the loader's folders"); c.told && n != len(all) || !c.told && n > 0 {
				t.Errorf("%d processes are logged", n)
			}
			if end(); c.told {
				eventually(t, "a child that looks there again", func() bool { got := children(); return got[len(got)-2] == first })
			}
		})
	}
}

// holds: while so much hangs no further child is started, and one that works goes on, though another would
// find a lost device.
func (r *Reader) holds(t *testing.T, log *journal, mode string, many int, children func() int, end func()) {
	t.Helper()
	const why = "no further NVML child is started until some of what hangs in folders of the loader's has ended: process "
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
	if ok, lost := r.Status(); mode == "fails" && (!ok || !strings.HasPrefix(lost, "no NVIDIA driver here; ") || strings.Count(lost, "process ") != many) {
		t.Errorf("status %v, %q", ok, lost)
	}
	if n := readings(r); mode == "works" && n == before {
		t.Error("the child that works is not asked any more")
	}
	end()
	eventually(t, "another child", func() bool { return children() > 1 })
	until(t, r, "no more word on it", func() bool { _, lost := r.Status(); return !strings.Contains(lost, why) })
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
		"no argument":        {wire.Left{PID: 1, At: "/mnt/a\x00b"}, 1, false},
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
