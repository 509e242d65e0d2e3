package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/event"
)

// Bounds of what is read.
const (
	maxAnswer     = 64 << 10
	maxFile       = 1 << 20 // of a token or certificates
	maxRetryAfter = 5 * time.Minute
)

// endpoint is a server that is told by HTTP.
type endpoint struct {
	key     string // of the config
	c       config.Receiver
	version string
	mu      sync.Mutex
	made    *http.Client
}

func newEndpoint(key string, c config.Receiver, version string) *endpoint {
	return &endpoint{key: key, c: c, version: version}
}

// client is made with the first request, and not kept while the certificates cannot be read.
func (e *endpoint) client() (*http.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.made != nil {
		return e.made, nil
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		MaxConnsPerHost: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer}
	if e.c.CAFile != "" {
		pem, err := readFile(e.c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%s.caFile: %w: make it readable for root, without CAP_DAC_OVERRIDE", e.key, err)
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool() // a host without any
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.caFile: %s holds no certificate in PEM", e.key, e.c.CAFile)
		}
		t.TLSClientConfig.RootCAs = roots
	}
	// A redirect is an answer, and is not followed: a token is for the host that the config names.
	e.made = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return e.made, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// at is the URL with a path behind it.
func (e *endpoint) at(path string) string {
	if path == "" {
		return e.c.URL
	}
	at, err := url.JoinPath(e.c.URL, path)
	if err != nil {
		return e.c.URL // its request says what is wrong with it
	}
	return at
}

// request sends one and returns what was answered, up to maxAnswer bytes. Errors name the key, the
// host, and what to do.
func (e *endpoint) request(ctx context.Context, method, at, contentType string, body []byte, more ...string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	client, err := e.client()
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return 0, nil, refusal{error: fmt.Errorf("%s.url is not a URL", e.key)}
	}
	for name, value := range e.c.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("User-Agent", "trimtab/"+e.version)
	if body != nil {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	if e.c.TokenFile != "" {
		token, err := readFile(e.c.TokenFile)
		if err != nil {
			return 0, nil, fmt.Errorf("%s.tokenFile: %w: make it root's own, mode 0600: the service may not open what root by user ID may not", e.key, err)
		}
		if len(bytes.TrimSpace(token)) == 0 {
			return 0, nil, fmt.Errorf("%s.tokenFile: %s is empty", e.key, e.c.TokenFile)
		}
		r.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, e.unreached(r.URL, err)
	}
	defer resp.Body.Close()                                      //nolint:errcheck // only read
	answer, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status counts
	return resp.StatusCode, answer, e.judge(resp)
}

// post sends what v is as JSON.
func (e *endpoint) post(ctx context.Context, path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return refusal{error: err}
	}
	_, _, err = e.request(ctx, http.MethodPost, e.at(path), "application/json", body)
	return err
}

// maxWhy bounds what a server or the network says in an error, bytes.
const maxWhy = 200

// unreached says why there was no answer.
func (e *endpoint) unreached(at *url.URL, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // its text has the whole URL
	}
	why := err.Error()
	if before, _, is := strings.Cut(why, "malformed "); is {
		why = before + "malformed answer" // what follows is the answer, which may be the request's echo
	}
	hint := "is it up, and does a firewall let this host through?"
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		hint = "name the CA that signed its certificate in " + e.key + ".caFile"
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "nothing listens there: start it, or correct " + e.key + ".url"
	case errors.Is(err, context.DeadlineExceeded):
		hint = fmt.Sprintf("it did not answer in %s", tryTimeout)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EAFNOSUPPORT):
		hint = "the service's unit or a drop-in refuses it: docs/notify.md"
	}
	return fmt.Errorf("%s: %s: %s: %s", e.key, origin(at), event.Clean(why, maxWhy), hint)
}

// origin is a URL without what may be secret in it.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// judge makes an error of an answer that is none of success. Of the answer it shows the status
// alone: pages of errors repeat the path and headers that they were asked with.
func (e *endpoint) judge(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	status := strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	err := fmt.Errorf("%s: %s answered %q", e.key, origin(resp.Request.URL), status)
	switch s := resp.StatusCode; {
	case s/100 == 3:
		to := "elsewhere"
		if u, bad := resp.Location(); bad == nil {
			to = event.Clean(origin(u), maxWhy)
		}
		return refusal{error: fmt.Errorf("%w: it redirects to %s, which is not followed: correct %s.url", err, to, e.key)}
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return refusal{error: fmt.Errorf("%w: give a token that it takes in %s.tokenFile", err, e.key)}
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests, s/100 == 5:
		if after := retryAfter(resp.Header.Get("Retry-After"), time.Now()); after > 0 {
			return later{err, after}
		}
		return err
	}
	return refusal{error: fmt.Errorf("%w: is %s.url right?", err, e.key)}
}

// retryAfter is how long a server asks to be left alone, up to maxRetryAfter; 0: it does not say. It
// is in seconds or a date (RFC 9110, 10.2.3).
func retryAfter(text string, now time.Time) time.Duration {
	after := time.Duration(0)
	if seconds, err := strconv.Atoi(text); err == nil {
		after = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = at.Sub(now)
	}
	return min(max(after, 0), maxRetryAfter)
}

// webhook is told each event as JSON.
type webhook struct{ *endpoint }

func (w webhook) deliver(ctx context.Context, events []event.Event) error {
	return w.post(ctx, "", events[0])
}

// check asks for no more than the head: what a server makes of another method is its own, so any answer but a
// refusal of the token, a redirect or a fault of its own will do.
func (w webhook) check(ctx context.Context) error {
	status, _, err := w.request(ctx, http.MethodHead, w.at(""), "", nil)
	if status/100 == 4 && status != http.StatusUnauthorized && status != http.StatusForbidden || status == http.StatusNotImplemented {
		return nil
	}
	return err
}

// grafana is told by annotations: https://grafana.com/docs/grafana/latest/developers/http_api/annotations/
type grafana struct{ *endpoint }

// annotation is the body of POST /api/annotations.
type annotation struct {
	Time int64    `json:"time"` // ms since 1970
	Tags []string `json:"tags"`
	Text string   `json:"text"` // HTML
}

// maxTag is what Grafana's database holds of a tag's key, and of its value.
const maxTag = 100

func annotationOf(e event.Event) annotation {
	tags, text := []string{"trimtab", "event:" + string(e.Kind), "host:" + event.Clean(e.Host, maxTag)}, e.Text
	if name := e.Container(); name != "" {
		tags = append(tags, "container:"+event.Clean(name, maxTag))
		text = name + ": " + text
	}
	return annotation{Time: e.UnixNs / int64(time.Millisecond), Tags: tags, Text: html.EscapeString(text)}
}

func (g grafana) deliver(ctx context.Context, events []event.Event) error {
	return g.post(ctx, "api/annotations", annotationOf(events[0]))
}

// check asks for an annotation: a token that may write need not be one that may read.
func (g grafana) check(ctx context.Context) error {
	status, _, err := g.request(ctx, http.MethodGet, g.at("api/annotations")+"?"+url.Values{"limit": {"1"}}.Encode(), "", nil)
	if status == http.StatusForbidden && strings.TrimSpace(g.c.TokenFile) != "" {
		return nil
	}
	return err
}
