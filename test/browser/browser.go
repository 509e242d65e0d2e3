package page_test

import (
	"context"
	"fmt"
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

// browser is one Chromium for all that a test opens.
func browser(t *testing.T) context.Context {
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

type action = chromedp.Action[chromedp.Void]

// call is one command of the protocol.
func call[P any](command cdp.Command[P, cdp.Empty], params P) action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// tab is one page; problems are what the browser complained of in it.
type tab struct {
	context.Context
	t        *testing.T
	mu       sync.Mutex
	problems []string
	bytes    map[string]float64 // transferred, by address
	address  map[network.RequestID]string
}

func open(t *testing.T, in context.Context, width, height int64, actions ...action) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(in)
	t.Cleanup(cancel)
	p := &tab{Context: ctx, t: t, bytes: map[string]float64{}, address: map[network.RequestID]string{}}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	p.run(append([]action{call(network.Enable, network.EnableParams{}), call(cdpruntime.Enable, cdp.Empty{}), chromedp.EmulateViewport(width, height)}, actions...)...)
	return p
}

func (p *tab) listen(event any) {
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

func (p *tab) run(actions ...action) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p, time.Minute)
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// eval evaluates an expression, awaiting it if it is a promise.
func eval[T any](p *tab, js string) T {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p, time.Minute)
	defer stop()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%v\n%.300s", err, js)
	}
	return out
}

// do evaluates what returns nothing.
func (p *tab) do(js string) {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void](js))
}

// until waits for a condition in the page. An error is of a page that is just being left, or
// not there yet; the last one is told.
func (p *tab) until(js string) {
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
			p.t.Fatalf("waiting for %s: %v\n%s", js, err, eval[string](p, "document.body.innerText.slice(0, 2000)"))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// view goes to one of the page's views, and waits until it shows something.
func (p *tab) view(url, hash string) {
	p.t.Helper()
	p.run(chromedp.Navigate("about:blank"), chromedp.Navigate(url+"/"+hash))
	p.until("document.getElementById('main')?.dataset.ready")
}

func (p *tab) fine() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.t.Errorf("the browser complains: %s", problem)
	}
}
