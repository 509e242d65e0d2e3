// Package client talks to the daemon's API over its Unix socket.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// ErrNoDaemon says that nobody answers at the socket.
var ErrNoDaemon = errors.New("the trimtab daemon is not running")

// ErrNoAnswer says that a daemon took the call, and did not answer within the time that it bounds itself to.
var ErrNoAnswer = errors.New("the trimtab daemon has not answered")

// grace is how much later than the daemon's own bound an answer may come.
const grace = 5 * time.Second

// maxAnswerBytes bounds what is held of one answer: a history of 256 MiB fits.
const maxAnswerBytes = 1 << 30

// Client calls one daemon. Its methods may be called concurrently. Errors are
// *api.Error where the daemon answered, and wrap ErrNoDaemon where none runs, ErrNoAnswer where it hangs.
type Client struct {
	socket string
	http   *http.Client
	grace  time.Duration
}

// New makes a client; it connects only when a method is called.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, grace: grace}
}

// Status is GET /v1/status.
func (c *Client) Status(ctx context.Context) (out api.Status, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/status", nil, &out)
}

// Containers is GET /v1/containers.
func (c *Client) Containers(ctx context.Context) (out api.Containers, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/containers", nil, &out)
}

// Container is GET /v1/containers/{name}: a name, an ID or the beginning of one.
func (c *Client) Container(ctx context.Context, name string) (out state.Container, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/containers/"+url.PathEscape(name), nil, &out)
}

// Advice is GET /v1/advice: of one container, or of all where no name is given.
func (c *Client) Advice(ctx context.Context, name string) (out api.Advice, err error) {
	path := "/v1/advice"
	if name != "" {
		path += "?" + url.Values{"name": {name}}.Encode()
	}
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}

// Devices is GET /v1/devices.
func (c *Client) Devices(ctx context.Context) (out api.Devices, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/devices", nil, &out)
}

// Series is GET /v1/series.
func (c *Client) Series(ctx context.Context, name string) (out series.Series, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/series?"+url.Values{"name": {name}}.Encode(), nil, &out)
}

// GPUs is GET /v1/gpus.
func (c *Client) GPUs(ctx context.Context) ([]state.GPUVisibility, error) {
	var out api.GPUs
	err := c.call(ctx, http.MethodGet, "/v1/gpus", nil, &out)
	return out.GPUs, err
}

// Fingerprints is GET /v1/fingerprints.
func (c *Client) Fingerprints(ctx context.Context) ([]state.Fingerprint, error) {
	var out api.Fingerprints
	err := c.call(ctx, http.MethodGet, "/v1/fingerprints", nil, &out)
	return out.Fingerprints, err
}

// History is GET /v1/history.
func (c *Client) History(ctx context.Context, q api.HistoryQuery) ([]state.Record, error) {
	form := url.Values{}
	if q.SinceUnixNs != 0 {
		form.Set("since", time.Unix(0, q.SinceUnixNs).UTC().Format(time.RFC3339Nano))
	}
	if q.UntilUnixNs != 0 {
		form.Set("until", time.Unix(0, q.UntilUnixNs).UTC().Format(time.RFC3339Nano))
	}
	if q.Changed {
		form.Set("changed", "true")
	}
	if q.Name != "" {
		form.Set("name", q.Name)
	}
	if q.Limit > 0 {
		form.Set("limit", strconv.Itoa(q.Limit))
	}
	var out api.History
	err := c.call(ctx, http.MethodGet, "/v1/history?"+form.Encode(), nil, &out)
	return out.Records, err
}

// Report is GET /v1/report; without an instant it is of the last week.
func (c *Client) Report(ctx context.Context, q api.ReportQuery) (out state.Report, err error) {
	form := url.Values{}
	if q.SinceUnixNs != 0 {
		form.Set("since", time.Unix(0, q.SinceUnixNs).UTC().Format(time.RFC3339Nano))
	}
	if q.By != "" {
		form.Set("by", string(q.By))
	}
	return out, c.call(ctx, http.MethodGet, "/v1/report?"+form.Encode(), nil, &out)
}

// Place is POST /v1/place.
func (c *Client) Place(ctx context.Context, req state.PlaceRequest) (out state.Placement, err error) {
	return out, c.call(ctx, http.MethodPost, "/v1/place", req, &out)
}

// Enable is POST /v1/enable.
func (c *Client) Enable(ctx context.Context, req state.EnableRequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/enable", req)
}

// Disable is POST /v1/disable.
func (c *Client) Disable(ctx context.Context, req state.EnableRequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/disable", req)
}

// Restore is POST /v1/restore; "" restores all.
func (c *Client) Restore(ctx context.Context, name string) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/restore", api.NameRequest{Name: name})
}

// Resume is POST /v1/resume; "" resumes all.
func (c *Client) Resume(ctx context.Context, name string) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/resume", api.NameRequest{Name: name})
}

// Pause is POST /v1/pause.
func (c *Client) Pause(ctx context.Context) error {
	_, err := c.act(ctx, "/v1/pause", struct{}{})
	return err
}

// Forget is POST /v1/fingerprints/forget.
func (c *Client) Forget(ctx context.Context, req state.ForgetRequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/fingerprints/forget", req)
}

// HideGPU is POST /v1/gpus/hide.
func (c *Client) HideGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/gpus/hide", req)
}

// ShowGPU is POST /v1/gpus/show.
func (c *Client) ShowGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/gpus/show", req)
}

// Record is GET /v1/record: it copies a recording of the next d to w. On an error
// w holds a part of one.
func (c *Client) Record(ctx context.Context, w io.Writer, d time.Duration) error {
	seconds := strconv.Itoa(int(d.Round(time.Second).Seconds()))
	body, err := c.open(ctx, d+api.LookTimeout, http.MethodGet, "/v1/record?seconds="+seconds, nil)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // only read
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("recording broke off: %w", err)
	}
	return nil
}

func (c *Client) act(ctx context.Context, path string, req any) ([]state.ActionResult, error) {
	var out api.Results
	err := c.ask(ctx, api.ActTimeout, http.MethodPost, path, req, &out)
	return out.Results, err
}

func (c *Client) call(ctx context.Context, method, path string, req, out any) error {
	return c.ask(ctx, api.LookTimeout, method, path, req, out)
}

// ask sends a request that the daemon answers within bound, and decodes the answer.
func (c *Client) ask(ctx context.Context, bound time.Duration, method, path string, req, out any) error {
	var body io.Reader
	if req != nil {
		data, err := json.Marshal(req)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		body = bytes.NewReader(data)
	}
	answer, err := c.open(ctx, bound, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close() //nolint:errcheck // only read
	if err := json.NewDecoder(io.LimitReader(answer, maxAnswerBytes)).Decode(out); err != nil {
		return fmt.Errorf("answer of the daemon to %s: %w", path, err)
	}
	return nil
}

// answer is a body that is read while the daemon goes on sending it.
type answer struct {
	io.ReadCloser
	ctx context.Context // of the request that it answers
	end func()
}

func (a answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = late(a.ctx, err)
	}
	return n, err
}

func (a answer) Close() error {
	defer a.end()
	return a.ReadCloser.Close()
}

// late is ErrNoAnswer where that ended ctx, else err.
func late(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrNoAnswer) {
		return cause
	}
	return err
}

// open sends a request and returns the body of a good answer; the caller closes it. The answer must
// begin within bound, and again as much is given to its body: the daemon bounds both.
func (c *Client) open(ctx context.Context, bound time.Duration, method, path string, body io.Reader) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	patience := bound + c.grace
	timer := time.AfterFunc(patience, func() { cancel(fmt.Errorf("%w in %s (at %s)", ErrNoAnswer, patience, c.socket)) })
	end := func() { timer.Stop(); cancel(nil) }
	got, err := c.send(ctx, method, path, body)
	if err != nil {
		defer end()
		return nil, late(ctx, err)
	}
	timer.Reset(patience)
	return answer{got, ctx, end}, nil
}

// send sends a request and returns the body of a good answer.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://trimtab"+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	answer, err := c.http.Do(r)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("%w (nobody answers at %s)", ErrNoDaemon, c.socket)
	case err != nil:
		return nil, fmt.Errorf("the daemon at %s: %w", c.socket, err)
	case answer.StatusCode == http.StatusOK:
		return answer.Body, nil
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	e := &api.Error{}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(e); err != nil || e.Text == "" {
		e.Text = "the daemon answered " + answer.Status
	}
	e.Status = answer.StatusCode
	return nil, e
}
