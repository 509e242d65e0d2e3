package rate

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
)

// senderEnv makes the test binary a process in a box that sends what it is told.
const senderEnv = "TRIMTAB_RATE_TEST_SENDER"

func TestMain(m *testing.M) {
	if path := os.Getenv(senderEnv); path != "" {
		send(path, os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// filesToo before a message: open files go with it.
const filesToo = "with files "

// send obeys "COUNT MESSAGE" lines.
func send(path string, in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		times, message, _ := strings.Cut(lines.Text(), " ")
		count, _ := strconv.Atoi(times)
		conn, err := net.Dial("unixgram", path)
		for range count {
			if text, with := strings.CutPrefix(message, filesToo); err == nil && with {
				err = sendWithFiles(path, text)
			} else if err == nil {
				_, err = conn.Write([]byte(strings.ReplaceAll(message, `\n`, "\n")))
			}
		}
		fmt.Fprintln(out, err)
	}
}

// sendWithFiles goes past net, which sends no files by a socket that is connected.
func sendWithFiles(path, message string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendmsg(fd, []byte(message), unix.UnixRights(0, 1, 2), &unix.SockaddrUnix{Name: path}, 0)
}

// unifiedRoot is where the v2 tree is mounted.
func unifiedRoot(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err == nil {
			return root
		}
	}
	t.Skip("needs cgroup2")
	return ""
}

// owners are told of each target that a test makes.
var (
	owners  = procfs.NewOwners("/proc")
	targets = map[string]probes.Target{}
)

// box is a process in a cgroup of its own.
type box struct {
	t      *testing.T
	cgroup string
	pid    int
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

func newBox(t *testing.T, path string) *box {
	t.Helper()
	b := &box{t: t, cgroup: filepath.Join(unifiedRoot(t), fmt.Sprintf("trimtab-ratetest-%d-%d", os.Getpid(), time.Now().UnixNano()))}
	inner := filepath.Join(b.cgroup, "inner") // containers may nest cgroups
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Skipf("needs a writable cgroup tree: %v", err)
	}
	t.Cleanup(func() { removeDirs(t, inner, b.cgroup) })
	dir, err := os.Open(inner)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), senderEnv+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if b.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs root: a process in a cgroup of its own: %v", err)
	}
	b.pid, b.stdout = cmd.Process.Pid, bufio.NewReader(stdout)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return b
}

func removeDirs(t *testing.T, dirs ...string) {
	for _, dir := range dirs {
		var err error
		for range 100 {
			if err = os.Remove(dir); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func (b *box) send(count int, message string) {
	b.t.Helper()
	if _, err := fmt.Fprintf(b.stdin, "%d %s\n", count, message); err != nil {
		b.t.Fatal(err)
	}
	if answer, err := b.stdout.ReadString('\n'); err != nil || strings.TrimSpace(answer) != "<nil>" {
		b.t.Fatalf("send %q: %s %v", message, answer, err)
	}
}

func (b *box) target(key string) probes.Target {
	b.t.Helper()
	return targetOf(b.t, key, b.pid, b.cgroup)
}

func targetOf(t *testing.T, key string, pid int, dir string) probes.Target {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	targets[key] = probes.Target{Key: key, InitPID: pid, Unified: dir, CgroupID: st.Ino}
	t.Cleanup(func() { delete(targets, key) })
	if err := owners.Set(slices.Collect(maps.Values(targets))); err != nil {
		t.Fatal(err)
	}
	return targets[key]
}

func newSocket(t *testing.T) (*Probe, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rate")
	p := newProbe(t, Options{Dir: dir, Owner: owners.Key})
	if missing := p.Missing(); len(missing) > 0 {
		t.Skipf("needs BPF: %v", missing)
	}
	return p, filepath.Join(dir, SocketName)
}

func count(t *testing.T, p *Probe, key string, tgid int) (uint64, bool) {
	t.Helper()
	for _, tick := range ticks(t, p, key) {
		if tick.TGID == int32(tgid) && tick.Source == probes.SourceDatagram && tick.Steps {
			return tick.Count, true
		}
	}
	return 0, false
}

func TestDatagrams(t *testing.T) {
	p, path := newSocket(t)
	a, b, foreign := newBox(t, path), newBox(t, path), newBox(t, path)
	for key, x := range map[string]*box{"a": a, "b": b} {
		if err := p.Watch(x.target(key)); err != nil {
			t.Fatal(err)
		}
	}
	before := procfs.MonotonicNs()
	a.send(1, "step=1000")
	a.send(1, `step=1007\n`)
	b.send(3, "step")
	foreign.send(5, "step")
	for _, malformed := range []string{"", "steps", "step=x", "loss=3", "step=" + strings.Repeat("1", 300)} {
		a.send(1, malformed)
	}
	wait(t, "all messages", func() bool { return p.Cost().Lost == 5+5 })
	if n, ok := count(t, p, "a", a.pid); !ok || n != 7 {
		t.Errorf("a: %d", n)
	}
	if n, ok := count(t, p, "b", b.pid); !ok || n != 3 {
		t.Errorf("b: %d", n)
	}
	if got := ticks(t, p, "a"); len(got) != 1 || got[0].LastNs < before || got[0].LastNs > procfs.MonotonicNs() {
		t.Errorf("a has %+v", got)
	}
}

// TestFilesInDatagrams: open files that a sender puts beside its words do not become the
// daemon's, and the words count all the same.
func TestFilesInDatagrams(t *testing.T) {
	p, path := newSocket(t)
	b := newBox(t, path)
	if err := p.Watch(b.target("b")); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	b.send(20, filesToo+"step")
	wait(t, "all messages", func() bool { n, _ := count(t, p, "b", b.pid); return n == 20 })
	if after := open(); after > before {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

func TestTrainerThatBeginsAgain(t *testing.T) {
	p, path := newSocket(t)
	a := newBox(t, path)
	if err := p.Watch(a.target("a")); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{90, 100, 0, 1, 2, 3, 4, 5} {
		a.send(1, fmt.Sprintf("step=%d", n))
	}
	wait(t, "12 steps", func() bool { n, _ := count(t, p, "a", a.pid); return n == 12 })
}

func TestOneContainersFloodIsItsOwn(t *testing.T) {
	p, path := newSocket(t)
	a, b := newBox(t, path), newBox(t, path)
	for key, x := range map[string]*box{"a": a, "b": b} {
		if err := p.Watch(x.target(key)); err != nil {
			t.Fatal(err)
		}
	}
	a.send(1800, "step")
	b.send(1, "step=1")
	b.send(1, "step=5")
	wait(t, "b's steps", func() bool { n, ok := count(t, p, "b", b.pid); return ok && n == 4 })
	if n, _ := count(t, p, "a", a.pid); n < perContainerPerS/2 || n > 1700 { // a try that finds the queue full counts
		t.Errorf("%d of a flood counted", n)
	}
	wait(t, "a is told", func() bool {
		ticks(t, p, "a")
		return strings.Contains(p.Problem("a")[probes.SourceDatagram], "surplus")
	})
	if p.Problem("b") != nil {
		t.Errorf("b: %v", p.Problem("b"))
	}
	wait(t, "a is itself again", func() bool { a.send(1, "step"); ticks(t, p, "a"); return p.Problem("a") == nil })
}

// Eight containers that send without end cost the ninth nothing: each of its steps is counted,
// and what the eight may send is less than one alone may.
func TestManyFloodsAreTheirOwn(t *testing.T) {
	p, path := newSocket(t)
	honest := newBox(t, path)
	if err := p.Watch(honest.target("honest")); err != nil {
		t.Fatal(err)
	}
	var floods sync.WaitGroup
	done := make(chan struct{})
	for i := range 8 {
		b := newBox(t, path)
		if err := p.Watch(b.target(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		floods.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					b.send(1000, "step")
				}
			}
		})
	}
	told := func() bool {
		ticks(t, p, "honest")
		for i := range 8 {
			if p.Problem(fmt.Sprint(i)) == nil {
				return false
			}
		}
		return true
	}
	wait(t, "all eight are told", told)
	const steps = 200
	for range steps {
		honest.send(1, "step")
		told()
	}
	wait(t, "all steps of the honest one", func() bool { n, _ := count(t, p, "honest", honest.pid); return n == steps })
	if p.Problem("honest") != nil {
		t.Errorf("the honest one is told %v", p.Problem("honest"))
	}
	wait(t, "a share of what the reader takes", func() bool { told(); return everyNs(t, p) >= 7*1e9/messagesPerS })
	close(done)
	floods.Wait()
}

func everyNs(t *testing.T, p *Probe) (ns uint64) {
	t.Helper()
	if err := p.listener.shares.objs.EveryNs.Get(&ns); err != nil {
		t.Fatal(err)
	}
	return ns
}

// What honest containers sent in a calm hour is not held against them in the first second of a flood.
func TestTheFirstFloodAfterACalmTime(t *testing.T) {
	p, path := newSocket(t)
	flooder := newBox(t, path)
	if err := p.Watch(flooder.target("flooder")); err != nil {
		t.Fatal(err)
	}
	s, now := p.listener.shares, time.Now().Add(time.Hour)
	const honest, each = 8, 1000
	for i := range honest { // what the kernel counts, as if they had sent it
		b := newBox(t, path)
		if err := p.Watch(b.target(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if err := s.objs.Rooms.Put(s.rooms[fmt.Sprint(i)].key, filterRoom{Sent: each}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.objs.Sent.Set(uint64(honest * each)); err != nil {
		t.Fatal(err)
	}
	deal := func(seconds int) {
		now = now.Add(time.Duration(seconds) * time.Second)
		if err := s.deal(now); err != nil {
			t.Fatal(err)
		}
	}
	deal(3600)
	if !s.calm {
		t.Fatal("1,000 of each in an hour pass for a flood")
	}
	flooder.send(5000, "step")
	deal(2)
	if s.calm {
		t.Fatal("5,000 in two seconds pass for calm")
	}
	if got := everyNs(t, p); got != 1e9/perContainerPerS {
		t.Errorf("one in %d ns is each one's share, as if the hour's steps had come at once", got)
	}
}

// What is dealt fits, nobody's wish is exceeded, and who gets less than its wish gets no less than
// anybody else.
func TestLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wishes := rapid.SliceOf(rapid.Float64Range(0, 5000)).Draw(t, "wishes")
		const total = 2000
		at := level(slices.Clone(wishes), total)
		var dealt, wished float64
		for _, w := range wishes {
			dealt += min(w, at)
			wished += w
		}
		if dealt > total*(1+1e-9) {
			t.Errorf("dealt %v of %v", dealt, total)
		}
		if wished > total && dealt < total*(1-1e-9) || wished <= total && dealt != wished {
			t.Errorf("wished %v, dealt %v", wished, dealt)
		}
	})
}

func TestProcessesThatEnded(t *testing.T) {
	p, path := newSocket(t)
	a := newBox(t, path)
	if err := p.Watch(a.target("a")); err != nil {
		t.Fatal(err)
	}
	a.send(1, "step")
	wait(t, "a step", func() bool { _, ok := count(t, p, "a", a.pid); return ok })
	if err := syscall.Kill(a.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, a.stdout); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	_, _ = syscall.Wait4(a.pid, &status, 0, nil)
	wait(t, "it is forgotten", func() bool { return len(ticks(t, p, "a")) == 0 })
}

func TestSocketOfADaemonBefore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, SocketName)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil { // it was killed: its socket stays
		t.Fatal(err)
	}
	old := unix.Umask(0o077) // as the unit has it
	defer unix.Umask(old)
	p := New(Options{Dir: dir})
	if missing := p.Missing(); len(missing) > 0 {
		t.Skipf("needs BPF: %v", missing)
	}
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v", st, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
	if _, err := os.Lstat(dir); err != nil {
		t.Errorf("containers mounted the directory: %v", err)
	}
}

// What a container puts in the socket's place is not opened up to everybody.
func TestSomethingElseInTheSocketsPlace(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "other"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	link := filepath.Join(dir, SocketName)
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := open(conn, link); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("%v", err)
	}
	if st, err := os.Stat(secret); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(link, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := newProbe(t, Options{Dir: dir})
	if len(p.Missing()) != 1 {
		t.Errorf("a directory in its place: %v", p.Missing())
	}
}
