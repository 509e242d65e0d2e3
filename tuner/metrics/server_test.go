package metrics

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/trimtab/trimtab/tuner/httpd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are what a test asks for.
type options struct {
	listen, group, webConfig string
	healthy                  func() error
}

func newServer(o options) *httpd.Server {
	log := slog.New(slog.DiscardHandler)
	return &httpd.Server{Name: "metrics", Listens: o.listen, Group: o.group, WebConfig: o.webConfig, Handler: Handler("v1", busy, o.healthy, log), Logger: log}
}

// start runs a server until the test ends and returns its address.
func start(t *testing.T, o options) string {
	t.Helper()
	o.listen = "127.0.0.1:0"
	s := newServer(o)
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestPages(t *testing.T) {
	tests := []struct {
		path    string
		healthy error
		code    int
		has     string
	}{
		{"/metrics", nil, 200, `trimtab_container_info{container="trainer"`},
		{"/metrics", nil, 200, "go_goroutines"},
		{"/metrics", nil, 200, "process_cpu_seconds_total"},
		{"/healthz", nil, 200, "ok"},
		{"/healthz", errors.New("no tick for 12 s"), 503, "no tick for 12 s"},
		{"/", nil, 200, "trimtab"},
		{"/debug/pprof/", nil, 404, ""},
	}
	for _, tc := range tests {
		s := newServer(options{healthy: func() error { return tc.healthy }})
		rec := httptest.NewRecorder()
		s.Handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, tc.path, nil))
		if rec.Code != tc.code || !strings.Contains(rec.Body.String(), tc.has) {
			t.Errorf("%s: %d, want %d with %q:\n%.300s", tc.path, rec.Code, tc.code, tc.has, rec.Body)
		}
	}
}

func TestServesPlainHTTPAndStops(t *testing.T) {
	addr := start(t, options{})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		t.Errorf("status %s, %v", resp.Status, err)
	}
}

func TestTLSAndUsers(t *testing.T) {
	config, pool := webConfig(t)
	if err := httpd.CheckWebConfig(config); err != nil {
		t.Fatal(err)
	}
	addr := start(t, options{webConfig: config})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for _, tc := range []struct {
		user, password string
		code           int
	}{{"prom", "right", 200}, {"prom", "wrong", 401}, {"", "", 401}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.user != "" {
			req.SetBasicAuth(tc.user, tc.password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tc.code {
			t.Errorf("%s:%s: %d, want %d", tc.user, tc.password, resp.StatusCode, tc.code)
		}
	}
}

func TestBadWebConfigIsAnError(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(bad, []byte("tls_server_config: {cert_file: /nowhere, key_file: /nowhere}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if httpd.CheckWebConfig(bad) == nil {
		t.Error("CheckWebConfig accepts a certificate that is not there")
	}
	s := newServer(options{listen: "127.0.0.1:0", webConfig: bad})
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), l); err == nil {
		t.Error("Run serves with a bad web config")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the port is still bound")
	}
}

func TestPortInUseNamesTheFix(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = newServer(options{listen: l.Addr().String()}).Listen(t.Context())
	if err == nil || !strings.Contains(err.Error(), "metrics.listen") {
		t.Errorf("error %v does not name the setting", err)
	}
}

// webConfig writes a web config with a self-signed certificate and one user.
func webConfig(t *testing.T) (path string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{
		"cert.pem": cert,
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		"web.yaml": fmt.Appendf(nil, "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {prom: %q}\n", hash),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return filepath.Join(dir, "web.yaml"), pool
}

// Others may hold as many connections as they like, silent, idle, or with half a request:
// few are kept, and a scrape is answered.
func TestConnectionsAreBounded(t *testing.T) {
	addr := start(t, options{})
	var held []net.Conn
	t.Cleanup(func() {
		for _, c := range held {
			_ = c.Close() // the server may have
		}
	})
	for i := range 4 * httpd.MaxConnections {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		switch i % 3 {
		case 1:
			fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		case 2:
			fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost:")
		}
	}
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		open := 0
		for _, c := range held {
			if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				continue
			}
			_, err := io.Copy(io.Discard, c)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				open++
			}
		}
		if open <= httpd.MaxConnections {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are held, of %d at the most", open, httpd.MaxConnections)
		}
	}
	got, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatalf("a scrape is not answered: %v", err)
	}
	if _, err := io.Copy(io.Discard, got.Body); err != nil || got.Body.Close() != nil || got.StatusCode != http.StatusOK {
		t.Errorf("a scrape is answered %s, %v", got.Status, err)
	}
}

// Metrics can be had by a Unix socket (whom it lets in is api's); a socket that a killed daemon left is replaced,
// another file is not.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	s := newServer(options{listen: "unix:" + path, group: "nobody-has-this-group"})
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	got, err := client.Get("http://trimtab/metrics")
	if err != nil || got.StatusCode != http.StatusOK || got.Body.Close() != nil {
		t.Errorf("%v, %v", got, err)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
		t.Errorf("over a file: %v", err)
	}
}

// One HTTP/2 connection may not ask for more at once than a few others do.
func TestStreamsOfAConnection(t *testing.T) {
	file, pool := webConfig(t)
	addr := start(t, options{webConfig: file})
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}, ServerName: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.ConnectionState().NegotiatedProtocol != "h2" {
		return // HTTP/1.1 has one request a connection
	}
	fmt.Fprint(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	head := make([]byte, 9)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	settings := make([]byte, int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(c, settings); err != nil {
		t.Fatal(err)
	}
	for ; len(settings) >= 6; settings = settings[6:] {
		if id, n := binary.BigEndian.Uint16(settings), binary.BigEndian.Uint32(settings[2:]); id == 3 { // SETTINGS_MAX_CONCURRENT_STREAMS
			if n > 8 {
				t.Errorf("%d streams a connection", n)
			}
			return
		}
	}
	t.Error("streams are not bounded")
}
