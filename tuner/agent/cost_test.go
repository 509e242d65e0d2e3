package agent

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/page"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

//nolint:gochecknoglobals // a test's flag
var costFor = flag.Duration("cost", 0, "measure TestCostOfLooking over so much of a daemon's time, with 1,000 containers")

// TestLookersAreAnswered: a daemon, its probes and its engine aside, answers on its page what each
// view asks, with what it stored and published.
func TestLookersAreAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		v := n.viewed(t, filepath.Join(t.TempDir(), "history.db"), 12)
		defer v.file.Close()
		v.points.Add(v.d.Snapshot())
		h := lookAt(t.Context(), t, v.d, 0, nil, nil).page
		c := v.d.Snapshot().Containers[0]
		for path, want := range map[string]string{
			"/v1/status": string(v.d.Snapshot().Daemon.Mode), "/v1/containers": `"name":"train-11"`, "/v1/containers/" + c.Key: c.Image, "/v1/devices": "{",
			"/v1/series?name=" + c.Key: c.Key, "/v1/history?limit=200&name=" + url.QueryEscape(c.Name): "records",
			"/v1/report?since=24h&by=team": "team-7", "/v1/report?since=7d&by=container": "train-11",
		} {
			r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %d, and no %q in %.200s", path, w.Code, want, w.Body)
			}
			r.Header.Set("If-None-Match", w.Header().Get("ETag"))
			again := httptest.NewRecorder()
			if h.ServeHTTP(again, r); again.Code != http.StatusNotModified {
				t.Errorf("%s, which is known: %d", path, again.Code)
			}
		}
		v.d.stop(false)
	})
}

// TestCostOfLooking logs what it costs that people look at such a daemon, and what is kept for them:
//
//	go test -v -run TestCostOfLooking -cost 5m ./tuner/agent
//
// Time is fake, so a share of a core is CPU time over time of the daemon's. It is that of the
// threads that store, add up and answer; what the collector of garbage takes is in the whole alone.
// Answers wait for CPU time that is real, so how many are refused is another figure each time.
func TestCostOfLooking(t *testing.T) {
	if *costFor <= 0 {
		t.Skip("needs minutes, and a machine that does nothing else: run with -cost 5m")
	}
	containers, length := 1000, *costFor
	for _, viewers := range []int{0, 1, 50} {
		t.Run(fmt.Sprint(viewers), func(t *testing.T) {
			got := costOfLooking(t, filepath.Join(t.TempDir(), "history.db"), containers, length, viewers)
			share := func(d time.Duration) float64 { return 100 * d.Seconds() / got.of.Seconds() }
			t.Logf("%d containers, %d viewers: series %.3f %%, history and accounts %.3f %%, answers %.3f %% of a core, of %.1f %% with the simulated jobs; page %.1f MiB; %d answers, %d refused, a list at most %s old",
				containers, viewers, share(got.series), share(got.stored), share(got.looked), share(got.whole), got.page, got.answers, got.refused, got.oldest.Round(100*time.Millisecond))
		})
	}
}

type lookingCost struct {
	of                            time.Duration // the daemon's time
	series, stored, looked, whole time.Duration // CPU
	page                          float64       // MiB that it holds
	answers, refused              int
	oldest                        time.Duration
}

// metered is a history whose writes are timed.
type metered struct {
	*history.Store
	spent *cpuMeter
}

func (m metered) Append(records ...state.Record) (err error) {
	m.spent.add(func() { err = m.Store.Append(records...) })
	return err
}

func (m metered) AddAccounts(hours ...account.Hour) (err error) {
	m.spent.add(func() { err = m.Store.AddAccounts(hours...) })
	return err
}

// cpuMeter adds up CPU time of whoever works.
type cpuMeter struct{ ns atomic.Int64 }

func (c *cpuMeter) add(work func()) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	before := api.ThreadCPU()
	work()
	c.ns.Add(int64(api.ThreadCPU() - before))
}

func (c *cpuMeter) spent() time.Duration { return time.Duration(c.ns.Load()) }

// viewedDaemon is one with all that is kept for people.
type viewedDaemon struct {
	d      *daemon
	file   *history.Store
	points *series.Store
	stored *cpuMeter // what writing the file takes
}

// viewed starts one with a week of accounts, and returns once all containers are met and something
// is stored.
func (n *node) viewed(t *testing.T, path string, containers int) viewedDaemon {
	t.Helper()
	for i := range containers {
		values := runtimetest.DefaultValues()
		values[runtime.KnobCPUQuota] = "200000 100000"
		n.engine.Add(runtime.Container{Name: fmt.Sprintf("train-%d", i), Image: fmt.Sprintf("registry.example.com/team-%d/train:%d", i%20, i%7)}, values)
	}
	file, err := history.Open(path, history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	week(t, file, containers)
	v := viewedDaemon{file: file, points: new(series.Store), stored: new(cpuMeter)}
	v.d = n.start(func(o *Options) {
		o.ReadHost = n.roomy
		o.Settings.Rules.Observe, o.Settings.Rules.Mode = enrolment.ObserveAll, policies.ModeObserve
		o.History, o.Accounts, o.Series = metered{file, v.stored}, metered{file, v.stored}, v.points
	})
	time.Sleep(90 * time.Second)
	return v
}

func costOfLooking(t *testing.T, path string, containers int, length time.Duration, viewers int) (out lookingCost) {
	bubble(t, func(t *testing.T, n *node) {
		v, kept, looked := n.viewed(t, path, containers), new(cpuMeter), new(cpuMeter)
		defer v.file.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { keep(ctx, v.d, v.points, kept) })
		began, spent, before := time.Now(), cpuTime(t), v.stored.spent()
		look := lookAt(ctx, t, v.d, viewers, &all, looked)
		time.Sleep(length)
		out.of, out.whole, out.stored, out.series = time.Since(began), cpuTime(t)-spent, v.stored.spent()-before, kept.spent()
		cancel()
		all.Wait()
		out.looked = looked.spent()
		out.answers, out.refused, out.oldest = look.answers, look.refused, look.oldest
		v.d.stop(false)
		out.page = heap()
		goruntime.KeepAlive(look) // and what it looked at is alive below
		out.page -= heap()
		goruntime.KeepAlive(v)
		goruntime.KeepAlive(n)
	})
	return out
}

// roomy is a host on which no container wants for anything: what they cost is measured, not what
// plans cost.
func (n *node) roomy() (probes.Host, error) {
	h, err := n.sim.host()
	h.CPUs, h.MemTotal, h.MemAvail = 4096, 8<<40, 6<<40
	h.IdleNs = uint64(h.AtNs)*4096 - h.BusyNs
	return h, err
}

// keep is what the daemon does beside its loop.
func keep(ctx context.Context, d *daemon, to *series.Store, spent *cpuMeter) {
	for ctx.Err() == nil {
		spent.add(func() { to.Add(d.Snapshot()) })
		time.Sleep(time.Second)
	}
}

// week stores what a report of 7 days reads.
func week(t *testing.T, store *history.Store, containers int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for h := range 7 * 24 {
		hour := account.Hour{StartUnixNs: time.Now().Truncate(time.Hour).Add(-time.Duration(7*24-h) * time.Hour).UnixNano(), Hours: 1, Observed: 3600e3}
		for i := range containers {
			r := account.Row{Key: fmt.Sprintf("docker-%064x", i), Name: fmt.Sprintf("train-%d", i), Image: fmt.Sprintf("registry.example.com/team-%d/train:%d", i%20, i%7), Team: fmt.Sprint("team-", i%20)}
			for _, u := range []*account.Use{&r.GPU, &r.CPU} {
				for _, c := range []account.Cause{0, 3, 4, account.Idle, account.Unknown} {
					u[c][account.Held] = random.Int64N(3600e3)
				}
			}
			hour.Rows = append(hour.Rows, r)
		}
		if err := store.AddAccounts(hour); err != nil {
			t.Fatal(err)
		}
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// heap is what is left once all that can be is collected, MiB.
func heap() float64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// lookers are browsers that all have the page open, each in another view.
type lookers struct {
	page  http.Handler
	spent *cpuMeter

	mu               sync.Mutex
	answers, refused int
	oldest           time.Duration // of a list of containers
}

func lookAt(ctx context.Context, t *testing.T, d *daemon, n int, all *sync.WaitGroup, spent *cpuMeter) *lookers {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	l := &lookers{page: page.Handler("", nil, d.Snapshot, api.NewServer(d, log, time.Now).Looking()), spent: spent}
	for i := range n {
		all.Go(func() { l.follow(ctx) })
		all.Go(func() { l.browse(ctx, d, i) })
	}
	return l
}

// follow has the stream of events; a browser asks anew where it ends.
func (l *lookers) follow(ctx context.Context) {
	for ctx.Err() == nil {
		l.get(ctx, "/events", nil)
	}
}

// browse goes from view to view each minute, and in each asks as assets/*.js do.
func (l *lookers) browse(ctx context.Context, d *daemon, i int) {
	have, at := map[string]string{}, map[string]time.Time{}
	throttle := func(every time.Duration, path string) {
		if time.Since(at[path]) > every {
			at[path] = time.Now()
			l.get(ctx, path, have)
		}
	}
	for began := time.Now(); ctx.Err() == nil; {
		asked, view := time.Now(), i+int(time.Since(began)/time.Minute)
		containers := d.Snapshot().Containers
		c := containers[view%len(containers)]
		switch view % 3 {
		case 0:
			l.get(ctx, "/v1/containers", have)
		case 1:
			l.get(ctx, "/v1/containers/"+c.Key, have)
			throttle(5*time.Second, "/v1/series?name="+c.Key)
			throttle(5*time.Second, "/v1/history?limit=200&name="+url.QueryEscape(c.Name))
		case 2:
			by := account.AllBy()[view/3%4]
			throttle(time.Minute, fmt.Sprintf("/v1/report?since=%s&by=%s", []string{"24h", "7d"}[view/12%2], by))
		}
		time.Sleep(max(time.Second, min(9*time.Since(asked), 2*time.Second)))
	}
}

// get asks, with the tags of what a browser has.
func (l *lookers) get(ctx context.Context, path string, have map[string]string) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("If-None-Match", have[path])
	w := &sink{header: http.Header{}, keep: path == "/v1/containers"}
	l.spent.add(func() { l.page.ServeHTTP(w, r) })
	l.mu.Lock()
	defer l.mu.Unlock()
	switch w.status {
	case http.StatusOK:
		l.answers++
		if have != nil {
			have[path] = w.header.Get("ETag")
		}
		if w.keep {
			l.oldest = max(l.oldest, time.Since(w.told()))
		}
	case http.StatusNotModified:
		l.answers++
	default:
		l.refused++
	}
}

// sink is a connection whose bytes are nobody's, but for the begin of a list.
type sink struct {
	header http.Header
	status int
	keep   bool
	body   []byte
}

func (s *sink) Header() http.Header    { return s.header }
func (s *sink) WriteHeader(status int) { s.status = status }
func (s *sink) Flush()                 {}
func (s *sink) Write(p []byte) (int, error) {
	s.status = cmp.Or(s.status, http.StatusOK)
	if s.keep {
		s.body = p
	}
	return len(p), nil
}

// told is when the snapshot of a list was taken.
func (s *sink) told() time.Time {
	z, err := gzip.NewReader(bytes.NewReader(s.body))
	if err != nil {
		return time.Time{}
	}
	begin := make([]byte, 40)
	_, _ = io.ReadFull(z, begin)
	var ns int64
	_, _ = fmt.Sscanf(string(begin), `{"time":%d`, &ns)
	return time.Unix(0, ns)
}
