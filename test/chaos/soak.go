package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// use is what the daemon holds at one instant.
type use struct {
	at          time.Duration // since it began
	rss         float64       // MiB
	descriptors float64
	threads     float64
	goroutines  float64
	maps        float64 // KiB of BPF maps
	disk        float64 // KiB below its state directory
}

// columns are the table's, with how each is read from a use.
func columns() []column {
	return []column{
		{"RSS MiB", func(u use) float64 { return u.rss }},
		{"DESCRIPTORS", func(u use) float64 { return u.descriptors }},
		{"THREADS", func(u use) float64 { return u.threads }},
		{"GOROUTINES", func(u use) float64 { return u.goroutines }},
		{"BPF MAPS KiB", func(u use) float64 { return u.maps }},
		{"DISK KiB", func(u use) float64 { return u.disk }},
	}
}

type column struct {
	name string
	of   func(use) float64
}

// slope is the least-squares slope of a column over time, in units an hour; 0 where fewer
// than two uses tell.
func slope(all []use, of func(use) float64) float64 {
	var n, st, sv, stt, stv float64
	for _, u := range all {
		t, v := u.at.Hours(), of(u)
		n, st, sv, stt, stv = n+1, st+t, sv+v, stt+t*t, stv+t*v
	}
	spread := n*stt - st*st
	if n < 2 || spread <= 0 {
		return 0
	}
	return (n*stv - st*sv) / spread
}

// table prints at most rows uses, evenly, and the slopes of the later three quarters: what
// is warming up in the first is no leak.
func table(out io.Writer, all []use, rows int) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "AFTER\t")
	for _, c := range columns() {
		fmt.Fprintf(t, "%s\t", c.name)
	}
	fmt.Fprintln(t)
	every := max(1, (len(all)+rows-1)/rows)
	for i, u := range all {
		if i%every != 0 && i != len(all)-1 {
			continue
		}
		fmt.Fprintf(t, "%s\t", u.at.Round(time.Second))
		for _, c := range columns() {
			fmt.Fprintf(t, "%.0f\t", c.of(u))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "an hour\t")
	for _, c := range columns() {
		fmt.Fprintf(t, "%+.1f\t", slope(all[len(all)/4:], c.of))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// measure reads what the daemon holds.
func (w *world) measure(ctx context.Context) (use, error) {
	dir := fmt.Sprintf("/proc/%d", w.daemon.PID())
	u := use{at: time.Since(w.began)}
	descriptors, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return u, err
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return u, err
	}
	s, err := w.daemon.Client().Status(ctx)
	if err != nil {
		return u, err
	}
	if u.goroutines, err = w.metric(ctx, "go_goroutines"); err != nil {
		return u, err
	}
	u.descriptors, u.threads = float64(len(descriptors)), float64(len(threads))
	u.rss, u.maps = float64(resident(dir))/(1<<20), float64(s.Daemon.ProbeMapBytes)/(1<<10)
	err = filepath.WalkDir(w.below, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			u.disk += float64(info.Size()) / (1 << 10)
		}
		return nil
	})
	return u, err
}

// metric reads one of the daemon's that has no labels.
func (w *world) metric(ctx context.Context, name string) (float64, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.metricsSocket())
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("metric %s is not served", name)
}

// resident is VmRSS in bytes.
func resident(dir string) int64 {
	text, _ := os.ReadFile(dir + "/status")
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// soak has containers come and go at a pace and breaks nothing: what does the daemon hold in
// the end? The laws hold all the while.
func (w *world) soak(ctx context.Context) (steps int, err error) {
	every := time.Hour / time.Duration(w.o.churn)
	const rows = 24
	var all []use
	for end := time.Now().Add(w.o.length); time.Now().Before(end) && ctx.Err() == nil; steps++ {
		began := time.Now()
		w.step.Store(int64(steps + 1))
		if err := w.lives(ctx); err != nil {
			return steps, err
		}
		if err := w.staff(ctx); err != nil {
			return steps, err
		}
		if err := w.extra(ctx, fmt.Sprintf("fly%d", steps), min(every/2, 3*time.Second), "--memory", "64m", "--label", "trimtab.mode=tune", imageName, "/chaos", childStep, "5", "20"); err != nil {
			return steps, err
		}
		w.look(steps + 1)
		u, err := w.measure(ctx)
		if err != nil {
			return steps, err
		}
		all = append(all, u)
		_ = workload.Sleep(ctx, every-time.Since(began))
	}
	return steps, table(w.out, all, rows)
}
