package httpd

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/tuner/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// another is a user whose connections a test makes: a socket is of who makes it.
const another = 65534

// dialAs connects as a user of the host.
func dialAs(t *testing.T, uid int, network, address string) net.Conn {
	t.Helper()
	if uid != os.Geteuid() && os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	type result struct {
		conn net.Conn
		err  error
	}
	made := make(chan result)
	go func() {
		goruntime.LockOSThread() // ends with the thread, which is the other user's
		var r result
		if uid != os.Geteuid() {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 { // of this thread alone
				r.err = errno
			}
		}
		if r.err == nil {
			r.conn, r.err = net.Dial(network, address)
		}
		made <- r
	}()
	r := <-made
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.conn.Close() })
	return r.conn
}

// listening is a listener that two users may connect to.
func listening(t *testing.T, network, address string) net.Listener {
	t.Helper()
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err) // a host without IPv6
	}
	for path, mode := range map[string]os.FileMode{address: 0o666, filepath.Dir(address): 0o755, filepath.Dir(filepath.Dir(address)): 0o755} {
		if network != "unix" {
			break
		}
		if err := os.Chmod(path, mode); err != nil { // any user comes to it
			t.Fatal(err)
		}
	}
	return l
}

// serving is a server's address, and the CPU time that it counts for connections.
func serving(t *testing.T, network string) (string, *api.Meter) {
	t.Helper()
	meter := &api.Meter{}
	s := &Server{Name: "test", Logger: slog.New(slog.DiscardHandler), Meter: meter,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })}
	l := listening(t, network, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), meter
}

// asks reports whether a connection is answered.
func asks(conn net.Conn) bool {
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// TestOwners: within the host a connection is its user's, by the kernel's word, also on IPv6; one that is closed
// is nobody's, for the kernel may tell it as root's.
func TestOwners(t *testing.T) {
	for _, listens := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0"} {
		l, err := net.Listen("tcp", listens)
		if err != nil {
			t.Log(err) // a host without IPv6
			continue
		}
		o := &owners{}
		for _, uid := range []int{os.Geteuid(), another} {
			client := dialAs(t, uid, "tcp", l.Addr().String())
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := o.of(conn), "uid "+strconv.Itoa(uid); got != want {
				t.Errorf("%s: %q, want %q", listens, got, want)
			}
			_ = client.Close()
			if got := o.of(conn); got != conn.RemoteAddr().(*net.TCPAddr).IP.String() && listens != "[::1]:0" || got == "uid 0" {
				t.Errorf("%s, closed: %q", listens, got)
			}
			_ = conn.Close()
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := o.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOthersHoldEverything: a user who makes connections in a loop, and holds them, neither ends another's
// nor keeps that one out; who makes them too fast is refused, and what that takes is told.
func TestOthersHoldEverything(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) { othersHoldEverything(t, network) })
	}
}

func othersHoldEverything(t *testing.T, network string) {
	address, meter := serving(t, network)
	scraper := dialAs(t, os.Geteuid(), network, address)
	if !asks(scraper) {
		t.Fatal("no answer before")
	}
	held, refused := 0, 0
	for i := range 20 * MaxConnections {
		if conn := dialAs(t, another, network, address); i%16 == 0 {
			if asks(conn) {
				held++
			} else {
				refused++
			}
		}
	}
	if held == 0 || refused == 0 {
		t.Errorf("of connections in a loop %d were answered and %d refused", held, refused)
	}
	if !asks(scraper) {
		t.Error("the connection that was there before was ended for others'")
	}
	if !asks(dialAs(t, os.Geteuid(), network, address)) {
		t.Error("a new one finds no room")
	}
	if spent := meter.Spent(); spent <= 0 || spent > time.Minute {
		t.Errorf("taking them took %v of a CPU", spent)
	}
}

// TestOwnersOfAUnixSocket: also there a connection is its user's, as of when it was made.
func TestOwnersOfAUnixSocket(t *testing.T) {
	l := listening(t, "unix", "")
	defer l.Close()
	o := &owners{}
	for _, uid := range []int{os.Geteuid(), another} {
		client := dialAs(t, uid, "unix", l.Addr().String())
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for _, closed := range []bool{false, true} {
			if got, want := o.of(conn), "uid "+strconv.Itoa(uid); got != want {
				t.Errorf("closed: %v: %q, want %q", closed, got, want)
			}
			_ = client.Close()
		}
		_ = conn.Close()
	}
}

// TestPace: each owner has its own, and it comes back.
func TestPace(t *testing.T) {
	p, now := &paced{}, time.Now()
	take := func(owner string) (n int) {
		for p.may(owner, now) {
			n++
		}
		return n
	}
	if n := take("uid 1"); n != ownerBurst {
		t.Errorf("%d at once, want %d", n, ownerBurst)
	}
	if n := take("uid 2"); n != ownerBurst {
		t.Errorf("another: %d at once, want %d", n, ownerBurst)
	}
	now = now.Add(time.Second)
	if n := take("uid 1"); n != ownerRate {
		t.Errorf("%d a second later, want %d", n, ownerRate)
	}
	for i := range 10 * maxOwners {
		p.may(strconv.Itoa(i), now)
	}
	if len(p.rates) > maxOwners {
		t.Errorf("%d are remembered", len(p.rates))
	}
}

// TestWhoGoes: of those who hold most the one that has asked nothing for longest, else the longest served.
func TestWhoGoes(t *testing.T) {
	c := connections{since: map[net.Conn]standing{}, held: map[string]int{}}
	now := time.Now()
	add := func(owner string, state http.ConnState) (conn, victim net.Conn) {
		conn, _ = net.Pipe()
		now = now.Add(time.Second)
		return conn, c.change(conn, state, owner, now)
	}
	few, _ := add("few", http.StateIdle)
	var many []net.Conn
	for i := range MaxConnections - 1 {
		state := http.StateActive
		if i == 5 || i == 7 {
			state = http.StateIdle
		}
		conn, victim := add("many", state)
		if many = append(many, conn); victim != nil {
			t.Fatalf("one goes, of %d", len(c.since))
		}
	}
	for _, want := range []net.Conn{many[5], many[7], many[0], many[1]} {
		if _, victim := add("few", http.StateActive); victim != want {
			t.Errorf("the wrong one goes")
		}
	}
	if c.change(few, http.StateClosed, "few", now); c.held["few"] != 4 || c.held["many"] != MaxConnections-5 || len(c.since) != MaxConnections-1 {
		t.Errorf("held are %v, in all %d", c.held, len(c.since))
	}
}
