package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
)

// Another user of the host holds so many connections to the metrics, and a member of api.readGroup has so
// many recordings made at once, all of which are read slowly.
const (
	heldConnections = 20_000
	heldRecorders   = 128
	heldBoxes       = 10
	heldHolders     = 8 // processes, each with an address of its own: one address has 28,000 ports
	heldTime        = 5 * time.Minute
	heldTimeQuick   = time.Minute
	heldResidentMiB = 200
	heldTickAge     = 2 * time.Second
	heldAgain       = 30 * time.Second // a connection that the daemon closed is held for so long, then made anew
	heldRecordAgain = 5 * time.Second
	heldSettle      = 45 * time.Second // its start, and containers that are new, cost more
	scrapeEvery     = 5 * time.Second
	scrapeTimeout   = 10 * time.Second // Prometheus' own
	nobody          = 65534            // user and group: they own nothing here
)

// measureHeld reads the daemon's memory, the age of its ticks and the answers to a scraper while others hold
// what they can.
func measureHeld(ctx context.Context, b *bench) (rows []Row, err error) {
	restore, files, err := raiseFiles()
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, restore)
	if least := uint64(heldConnections/heldHolders + 100); files < least {
		return nil, fmt.Errorf("needs %d open files, this host allows %d", least, files)
	}
	dir, err := os.MkdirTemp("", "trimtab-bench-*")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, func() error { return os.RemoveAll(dir) })
	d, listens, end, err := b.heldDaemon(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, end)
	if err := workload.Sleep(ctx, heldSettle); err != nil {
		return nil, err
	}
	alone, err := watchHeld(ctx, d, listens, 20*time.Second)
	if err != nil {
		return nil, err
	}
	b.say("  alone: %s", alone)
	all, err := startHolders(listens, d.Socket)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, all.end)
	held, err := watchHeld(ctx, d, listens, pick(b, heldTime, heldTimeQuick))
	if err != nil {
		return nil, err
	}
	b.say("  held: %s", held)
	said, err := all.ask()
	if err != nil {
		return nil, err
	}
	b.say("  their side: %+v", said)
	return heldRows(alone, held, said), nil
}

// heldDaemon runs one beside boxes, whose metrics anybody on the host can ask and whose API group nobody.
func (b *bench) heldDaemon(ctx context.Context, dir string) (d *daemontest.Daemon, listens string, end func() error, err error) {
	var ends []func() error
	end = func() (err error) {
		for _, one := range slices.Backward(ends) {
			err = errors.Join(err, one())
		}
		return err
	}
	fail := func(err error) (*daemontest.Daemon, string, func() error, error) {
		return nil, "", nil, errors.Join(err, end())
	}
	all, err := newBoxes(ctx, dir)
	if err != nil {
		return fail(err)
	}
	ends = append(ends, all.close)
	if err := all.grow(ctx, heldBoxes); err != nil {
		return fail(err)
	}
	engine, err := startEngine(dir, all.all)
	if err != nil {
		return fail(err)
	}
	ends = append(ends, engine.close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	listens = free.Addr().String()
	drop := filepath.Join(dir, "run/conf.d")
	if err := errors.Join(free.Close(), os.Chmod(dir, 0o755), os.MkdirAll(drop, 0o755), //nolint:gosec // its socket is for another user
		os.WriteFile(filepath.Join(drop, "held.yaml"), []byte("api: {readGroup: nogroup}\n"), 0o600)); err != nil {
		return fail(err)
	}
	d, err = daemontest.Start(ctx, daemontest.Options{Binary: b.binary, Dir: filepath.Join(dir, "run"), Metrics: listens,
		Config: hostConfig + fmt.Sprintf("docker: {host: 'unix://%s', containerd: %s/none}\n", engine.socket, dir)})
	if err != nil {
		return fail(err)
	}
	ends = append(ends, d.Close)
	if err := waitWatched(ctx, d, heldBoxes); err != nil {
		return fail(errors.Join(err, errors.New(lastLines(d.Log()))))
	}
	return d, listens, end, nil
}

// heldReading is how a daemon fared for a time.
type heldReading struct {
	residentMiB, corePercent float64
	age                      time.Duration // of its oldest tick
	files                    int           // that it had open, at the most
	scrapes, answered        int
	slowest                  time.Duration // of those that were answered
	failure                  error         // of a scrape, the last
}

func (r heldReading) String() string {
	return fmt.Sprintf("%.0f MiB, %.1f %% of a core, ticks up to %s old, %d files, %d of %d scrapes answered, the slowest after %s (%v)",
		r.residentMiB, r.corePercent, r.age.Round(time.Millisecond), r.files, r.answered, r.scrapes, r.slowest.Round(time.Millisecond), r.failure)
}

func watchHeld(ctx context.Context, d *daemontest.Daemon, listens string, length time.Duration) (r heldReading, err error) {
	before, err := workload.ProcessCPU(d.PID())
	if err != nil {
		return r, err
	}
	began := time.Now()
	scraping, stop := context.WithCancel(ctx)
	scraped := make(chan heldReading)
	go func() { scraped <- scrapeAll(scraping, listens) }()
	answered := began
	for err == nil && time.Since(began) < length {
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, heldTickAge)
		s, failed := d.Client().Status(call)
		cancel()
		if failed == nil {
			answered = time.Unix(0, s.UnixNs)
		}
		r.age = max(r.age, asked.Sub(answered))
		resident, unread := workload.Resident(d.PID())
		r.residentMiB = max(r.residentMiB, resident/(1<<20))
		open, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(d.PID()), "fd")) // a daemon that is gone has none: see unread
		r.files = max(r.files, len(open))
		err = errors.Join(unread, workload.Sleep(ctx, 250*time.Millisecond))
	}
	stop()
	s := <-scraped
	r.scrapes, r.answered, r.slowest, r.failure = s.scrapes, s.answered, s.slowest, s.failure
	after, unread := workload.ProcessCPU(d.PID())
	r.corePercent = 100 * (after - before).Seconds() / time.Since(began).Seconds()
	return r, errors.Join(err, unread)
}

// scrapeAll asks for the metrics as Prometheus does: in one connection where it may, within its time.
func scrapeAll(ctx context.Context, listens string) (r heldReading) {
	client := &http.Client{Timeout: scrapeTimeout, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for {
		began := time.Now()
		r.scrapes++
		if err := scrape(client, listens); err != nil {
			r.failure = err
		} else {
			r.answered++
			r.slowest = max(r.slowest, time.Since(began))
		}
		if workload.Sleep(ctx, scrapeEvery) != nil {
			return r
		}
	}
}

func scrape(client *http.Client, listens string) error {
	resp, err := client.Get("http://" + listens + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Count(text, []byte("\ntrimtab_container_info{")) != heldBoxes) {
		err = fmt.Errorf("%s, with %d bytes", resp.Status, len(text))
	}
	return err
}

func heldRows(alone, held heldReading, said heldCounts) []Row {
	how := fmt.Sprintf("%d containers (bare control groups); %d connections of another user to the metrics, a quarter each silent, idle after an answer, not reading, and of half a request; "+
		"each that the daemon closed is made anew after %s (%d were made, %d stood at the end); %d recorders of a member of api.readGroup that read a byte a second (%d began)",
		heldBoxes, heldConnections, heldAgain, said.Made, said.Open, heldRecorders, said.Recordings)
	return []Row{
		Row{What: "held connections: resident memory", Value: held.residentMiB, Unit: "MiB", Goal: fmt.Sprintf("< %d MiB", heldResidentMiB),
			How: fmt.Sprintf("%s; the largest; %.0f MiB before", how, alone.residentMiB)}.judged(held.residentMiB < heldResidentMiB),
		Row{What: "  the oldest tick", Value: held.age.Seconds(), Unit: "s", Goal: "< 2 s",
			How: fmt.Sprintf("asked for four times a second; %.2f s before", alone.age.Seconds())}.judged(held.age < heldTickAge),
		Row{What: "  scrapes answered", Value: 100 * float64(held.answered) / float64(held.scrapes), Unit: "%", Goal: "all",
			How: fmt.Sprintf("%d of %d, each %s, within %s, the slowest in %.2f s; %.2f s before", held.answered, held.scrapes, scrapeEvery, scrapeTimeout, held.slowest.Seconds(), alone.slowest.Seconds())}.judged(held.answered == held.scrapes),
		Row{What: "  the daemon's CPU", Value: held.corePercent, Unit: "% of a core", How: fmt.Sprintf("%.1f %% before", alone.corePercent)}.reported(),
		Row{What: "  files that it has open", Value: float64(held.files), Unit: "", How: fmt.Sprintf("the most; %d before", alone.files)}.reported(),
	}
}

// holders are the other user's processes.
type holders struct {
	all   []*exec.Cmd
	stdin []io.Closer
	said  []*bytes.Buffer
}

func startHolders(listens, socket string) (*holders, error) {
	h := &holders{}
	var err error
	for i := range heldHolders {
		err = errors.Join(err, h.start(listens, fmt.Sprintf("127.0.0.%d", i+2), strconv.Itoa(heldConnections/heldHolders)))
	}
	err = errors.Join(err, h.start(socket, "", strconv.Itoa(heldRecorders)))
	if err != nil {
		return nil, errors.Join(err, h.end())
	}
	return h, nil
}

func (h *holders) start(args ...string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{childHold}, args...)...) // that user may not enter where it lies
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		h.all, h.stdin, h.said = append(h.all, cmd), append(h.stdin, in), append(h.said, said)
	}
	return err
}

// ask ends them, and adds up what they did.
func (h *holders) ask() (sum heldCounts, err error) {
	err = h.end()
	for _, said := range h.said {
		var c heldCounts
		err = errors.Join(err, json.Unmarshal(said.Bytes(), &c))
		sum.Made, sum.Open, sum.Recordings, sum.Refused = sum.Made+c.Made, sum.Open+c.Open, sum.Recordings+c.Recordings, sum.Refused+c.Refused
	}
	return sum, err
}

func (h *holders) end() (err error) {
	for i, cmd := range h.all {
		_ = h.stdin[i].Close() // it ends by itself
		err = errors.Join(err, cmd.Wait())
	}
	h.all = nil
	return err
}

// heldCounts is what a holder did.
type heldCounts struct {
	Made, Open, Refused int64 // connections; those that stand at the end
	Recordings          int64 // that began
}

// hold is the other user's process: it holds so many connections until its standard input ends.
func hold(at, from string, count int) error {
	var made, open, refused, recordings atomic.Int64
	one := func(i int) {
		network, again, dialer := "unix", heldRecordAgain, net.Dialer{Timeout: scrapeTimeout}
		if from != "" {
			network, again, dialer.LocalAddr = "tcp", heldAgain, &net.TCPAddr{IP: net.ParseIP(from)}
		}
		conn, err := dialer.Dial(network, at)
		if err != nil {
			refused.Add(1)
			time.Sleep(again)
			return
		}
		made.Add(1)
		open.Add(1)
		switch {
		case from == "":
			record(conn, &recordings)
		case i%4 == 0: // says nothing
		case i%4 == 1:
			_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: held\r\n\r\n") // its end is seen below
		case i%4 == 2:
			_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: held\r\n\r\n") // as above
			time.Sleep(heldAgain)                                                      // does not read
		case i%4 == 3:
			_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: ") // as above
		}
		_, _ = io.Copy(io.Discard, conn) // until the daemon closes it
		open.Add(-1)
		time.Sleep(again)
		_ = conn.Close() // nothing is lost
	}
	for i := range count {
		go func() {
			for {
				one(i)
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // its end is the sign
	return json.NewEncoder(os.Stdout).Encode(heldCounts{Made: made.Load(), Open: open.Load(), Refused: refused.Load(), Recordings: recordings.Load()})
}

// record has a recording made and reads a byte of it a second.
func record(conn net.Conn, begun *atomic.Int64) {
	_, _ = io.WriteString(conn, "GET /v1/record?seconds=3600 HTTP/1.1\r\nHost: held\r\n\r\n") // its end is seen below
	r := bufio.NewReaderSize(conn, 16)
	status, _, err := r.ReadLine()
	if err == nil && bytes.HasSuffix(status, []byte(" 200 OK")) {
		begun.Add(1)
	}
	for err == nil {
		_, err = r.ReadByte()
		time.Sleep(time.Second)
	}
}
