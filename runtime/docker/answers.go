package docker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/runtime/engine"
)

// What an engine may say at once: a user's may be hostile, and its answers are decoded whole.
// Several containers are asked about at the same time.
const (
	maxAnswerBytes = 4 << 20  // about one container: its arguments, environment and labels, twice
	maxListBytes   = 64 << 20 // of all that run, and one event, which has all labels of a container
	// maxListValues are 64 of each container that is followed: 8,192. One without labels and ports has 40.
	maxListValues = 64 * 8192
	dialTimeout   = 10 * time.Second
)

var (
	errTooLong = errors.New("Docker's answer is longer than any that is read")
	errTooMany = errors.New("Docker's answer has more values than are read")
)

// answers bounds what is read of each answer. Logs are bounded by who reads them.
type answers struct {
	base             *http.Transport
	most, mostListed int64
	event            allowance // what may still come of the stream of events, see renew
}

// allowance is what may still be read: bytes, and values of JSON in them.
type allowance struct{ bytes, values atomic.Int64 }

func (a *allowance) set(bytes, values int64) {
	a.bytes.Store(bytes)
	a.values.Store(values)
}

// dialer connects to an address.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newAnswers has what Docker's own client has of a transport: to a socket, by dial, neither a proxy nor
// compression; nil: to another host.
func newAnswers(dial dialer) *answers {
	base := &http.Transport{MaxIdleConns: 6, IdleConnTimeout: 30 * time.Second, DialContext: dial, DisableCompression: true}
	if dial == nil {
		base.DialContext, base.Proxy, base.DisableCompression = (&net.Dialer{Timeout: dialTimeout}).DialContext, http.ProxyFromEnvironment, false
	}
	return &answers{base: base, most: maxAnswerBytes, mostListed: maxListBytes}
}

// renew is for after each event: each has the room of one.
func (a *answers) renew() { a.event.set(a.mostListed, engine.MaxValues) }

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	left := new(allowance)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/logs"):
		return resp, nil
	case strings.HasSuffix(path, "/events"):
		a.renew()
		left = &a.event
	case strings.HasSuffix(path, "/containers/json"):
		left.set(a.mostListed, maxListValues)
	default:
		left.set(a.most, engine.MaxValues)
	}
	resp.Body = &answer{ReadCloser: resp.Body, left: left}
	return resp, nil
}

// answer is the body of one, of which so much may still be read.
type answer struct {
	io.ReadCloser
	left   *allowance
	values engine.Values
}

func (a *answer) Read(p []byte) (int, error) {
	left := a.left.bytes.Load()
	switch {
	case left <= 0:
		return 0, errTooLong
	case a.left.values.Load() < 0:
		return 0, errTooMany
	}
	n, err := a.ReadCloser.Read(p[:min(int64(len(p)), left)])
	a.left.bytes.Add(-int64(n))
	if a.left.values.Add(-a.values.Count(p[:n])) < 0 {
		return n, errTooMany
	}
	return n, err
}
