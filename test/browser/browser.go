// Package browser drives one Chromium for tests that look at the web page as people do.
package browser

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Start is one Chromium for all that a test opens; without it the test skips, and fails where apt offers it to CI.
func Start(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		const missing = "needs chromium in PATH: scripts/setup-host.sh --dev installs it"
		if offered, err := exec.Command("apt-cache", "show", "chromium").Output(); os.Getenv("CI") == "true" && err == nil && len(offered) > 0 {
			t.Fatal(missing) // apt has it: somebody forgot
		}
		t.Skip(missing)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // events that this version does not know
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until Chromium has ended
		cancel()
	})
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	return ctx
}

// Action is something done in a tab.
type Action = chromedp.Action[chromedp.Void]

// Call is one command of the protocol.
func Call[P any](command cdp.Command[P, cdp.Empty], params P) Action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// Tab is one page.
type Tab struct {
	context.Context
	t        *testing.T
	mu       sync.Mutex
	problems []string           // what the browser complained of
	bytes    map[string]float64 // transferred, by address
	address  map[network.RequestID]string
}

// Open is a tab of such a size, in pixels.
func Open(t *testing.T, in context.Context, width, height int64, actions ...Action) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(in)
	t.Cleanup(cancel)
	p := &Tab{Context: ctx, t: t, bytes: map[string]float64{}, address: map[network.RequestID]string{}}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	p.Run(append([]Action{Call(network.Enable, network.EnableParams{}), Call(cdpruntime.Enable, cdp.Empty{}), chromedp.EmulateViewport(width, height)}, actions...)...)
	return p
}

func (p *Tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprintf("%s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description))
	case *cdpruntime.EventConsoleAPICalled:
		if e.Type == cdpruntime.ConsoleAPICalledTypeError || e.Type == cdpruntime.ConsoleAPICalledTypeAssert {
			p.problems = append(p.problems, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	case *network.EventRequestWillBeSent:
		p.address[e.RequestID] = e.Request.URL
	case *network.EventLoadingFinished:
		p.bytes[p.address[e.RequestID]] += e.EncodedDataLength
	}
}

// Run does such things, within a minute.
func (p *Tab) Run(actions ...Action) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p, time.Minute)
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// Eval evaluates an expression, awaiting it if it is a promise.
func Eval[T any](p *Tab, js string) T {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p, time.Minute)
	defer stop()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%v\n%.300s", err, js)
	}
	return out
}

// Do evaluates what returns nothing.
func (p *Tab) Do(js string) {
	p.t.Helper()
	p.Run(chromedp.Evaluate[chromedp.Void](js))
}

// Until waits for a condition in the page. An error is of a page that is just being left, or
// not there yet; the last one is told.
func (p *Tab) Until(js string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p, 2*time.Minute)
	defer stop()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+js+")"))
		if err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("waiting for %s: %v\n%s", js, err, Eval[string](p, "document.body.innerText.slice(0, 2000)"))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// View goes to one of the page's views, and waits until it shows something.
func (p *Tab) View(url, hash string) {
	p.t.Helper()
	p.Run(chromedp.Navigate("about:blank"), chromedp.Navigate(url+"/"+hash))
	p.Until("document.getElementById('main')?.dataset.ready")
}

// Fine fails the test by each complaint of the browser.
func (p *Tab) Fine() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.t.Errorf("the browser complains: %s", problem)
	}
}

// Bytes are those transferred so far, by address.
func (p *Tab) Bytes() map[string]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.bytes)
}

// Picture writes what is seen at the top of the page to a file, as PNG.
func (p *Tab) Picture(file string) {
	p.t.Helper()
	p.Do("scrollTo(0, 0)")
	png, err := chromedp.Run(p, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if len(png) > 100<<10 {
		p.t.Errorf("%s would have %d bytes, more than 100 KB", file, len(png))
	}
	if err := os.WriteFile(file, png, 0o644); err != nil { //nolint:gosec // a page's picture is for all
		p.t.Fatal(err)
	}
}
