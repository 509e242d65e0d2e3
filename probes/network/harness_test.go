package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
)

// actorEnv makes the test binary a process in a box that opens sockets as it is told.
const actorEnv = "TRIMTAB_NETWORK_TEST_ACTOR"

func TestMain(m *testing.M) {
	if os.Getenv(actorEnv) != "" {
		act(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// act obeys one command a line: listen ADDR, dial ADDR, send CONN BYTES, chat
// CONN TIMES (100 bytes each 10 ms), close CONN. Dialled connections are numbered in order; what comes in is discarded.
func act(in io.Reader, out io.Writer) {
	var conns []net.Conn
	drain := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer, err := "ok", error(nil)
		f := strings.Fields(lines.Text())
		number := func(i int) int { n, _ := strconv.Atoi(f[i]); return n }
		switch f[0] {
		case "listen":
			var l net.Listener
			if l, err = net.Listen("tcp", f[1]); err == nil {
				answer = l.Addr().String()
				go func() {
					for c, err := l.Accept(); err == nil; c, err = l.Accept() {
						go drain(c)
					}
				}()
			}
		case "dial":
			var c net.Conn
			if c, err = net.Dial("tcp", f[1]); err == nil {
				conns = append(conns, c)
				go drain(c)
			}
		case "send":
			_, err = io.CopyN(conns[number(1)], zeros{}, int64(number(2)))
		case "chat":
			for range number(2) {
				if _, err = conns[number(1)].Write(make([]byte, 100)); err != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		case "close":
			err = conns[number(1)].Close()
		}
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Fprintln(out, answer)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// box is a cgroup, a network namespace and a process in both.
type box struct {
	t       testing.TB
	cgroup  string
	pid     int
	stdin   io.WriteCloser
	stdout  *bufio.Reader
	hostIf  string
	hostIP  string
	innerIP string
}

func unifiedRoot(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Skip("needs cgroup2: no v2 tree is mounted")
	return ""
}

// newBox starts a process in a cgroup of its own; apart: in a network namespace
// of its own too, joined to the host's by a veth.
func newBox(t testing.TB, apart bool) *box {
	t.Helper()
	b := &box{t: t, cgroup: filepath.Join(unifiedRoot(t), fmt.Sprintf("trimtab-nettest-%d-%d", os.Getpid(), time.Now().UnixNano()))}
	if err := os.Mkdir(b.cgroup, 0o755); err != nil {
		t.Skipf("needs a writable cgroup tree: %v", err)
	}
	t.Cleanup(func() { removeDir(t, b.cgroup) })
	dir, err := os.Open(b.cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), actorEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if apart {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if b.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, os.ErrPermission) {
			t.Skip("needs root: a process in a namespace and cgroup of its own")
		}
		t.Fatal(err)
	}
	b.pid, b.stdout = cmd.Process.Pid, bufio.NewReader(stdout)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if apart {
		b.connect()
	}
	return b
}

func removeDir(t testing.TB, dir string) {
	for range 100 {
		if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("cgroup %s is still busy", dir)
}

// connect joins the box to the host by a veth; both ends go with its namespace.
func (b *box) connect() {
	b.t.Helper()
	third := b.pid%250 + 1
	b.hostIP, b.innerIP = fmt.Sprintf("10.213.%d.1", third), fmt.Sprintf("10.213.%d.2", third)
	b.hostIf = fmt.Sprintf("tt%d", b.pid)
	pid := strconv.Itoa(b.pid)
	b.tool("ip", "link", "add", b.hostIf, "type", "veth", "peer", "name", "eth0", "netns", pid)
	b.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", b.hostIf).Run() })
	b.tool("ip", "addr", "add", b.hostIP+"/30", "dev", b.hostIf)
	b.tool("ip", "link", "set", b.hostIf, "up")
	b.inside("ip", "addr", "add", b.innerIP+"/30", "dev", "eth0")
	b.inside("ip", "link", "set", "eth0", "up")
	b.inside("ip", "link", "set", "lo", "up")
}

func (b *box) inside(args ...string) {
	b.t.Helper()
	b.tool("nsenter", append([]string{"-t", strconv.Itoa(b.pid), "-n"}, args...)...)
}

func (b *box) tool(name string, args ...string) {
	b.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		b.t.Skipf("needs %s: %v", name, err)
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.t.Skipf("needs %s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// do sends a command and returns its answer.
func (b *box) do(format string, args ...any) string {
	b.t.Helper()
	if _, err := fmt.Fprintf(b.stdin, format+"\n", args...); err != nil {
		b.t.Fatal(err)
	}
	answer, err := b.stdout.ReadString('\n')
	if err != nil || strings.HasPrefix(answer, "error") {
		b.t.Fatalf("%s: %s %v", fmt.Sprintf(format, args...), answer, err)
	}
	return strings.TrimSpace(answer)
}

func (b *box) target(key string) probes.Target {
	b.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(b.cgroup, &st); err != nil {
		b.t.Fatal(err)
	}
	return probes.Target{Key: key, CgroupID: st.Ino, InitPID: b.pid, Unified: b.cgroup}
}

// server accepts in the host's namespace; what it gets is discarded.
func server(t testing.TB, ip string) (addr string, conns chan net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	conns = make(chan net.Conn, 8192)
	var all []net.Conn // the accepting goroutine's until it is done
	var draining, accepting sync.WaitGroup
	accepting.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			all = append(all, c)
			conns <- c
			draining.Go(func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range all {
			_ = c.Close()
		}
		draining.Wait()
	})
	return l.Addr().String(), conns
}

func newProbe(t testing.TB) *Probe {
	t.Helper()
	return newProbeWith(t, Options{ReadEvery: time.Nanosecond})
}

func newProbeWith(t testing.TB, opts Options) *Probe {
	t.Helper()
	p := New(opts)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if missing := p.Missing(); len(missing) > 0 {
		t.Skipf("needs BPF, BTF and root: %v", missing)
	}
	return p
}

func watch(t testing.TB, p *Probe, b *box, key string) {
	t.Helper()
	if err := p.Watch(b.target(key)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Unwatch(key) })
}

// read makes a reading now, whatever the rest of the last one.
func read(t testing.TB, p *Probe, key string) probes.Network {
	t.Helper()
	p.nextWalk = time.Time{}
	for before, _ := p.links.topology.latest(); ; {
		if now, _ := p.links.topology.get(); now != before {
			break
		}
	}
	into := map[string]*probes.Sample{}
	if err := p.Read(context.Background(), into); err != nil {
		t.Fatal(err)
	}
	if into[key] == nil || into[key].Network == nil {
		t.Fatalf("no network part for %q", key)
	}
	return *into[key].Network
}

// eventually reads until ok, since the network needs a moment to acknowledge.
func eventually(t testing.TB, p *Probe, key string, ok func(probes.Network) bool) probes.Network {
	t.Helper()
	var n probes.Network
	for range 100 {
		if n = read(t, p, key); ok(n) {
			return n
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("never as wanted: %+v", n)
	return n
}
