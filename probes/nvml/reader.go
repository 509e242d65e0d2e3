// Package nvml reads NVIDIA devices by a child process, trimtab-nvml (cmd/trimtab-nvml), which calls
// libnvidia-ml.so.1: a call that hangs is killed, one that ends its process ends the child, and both
// cost readings of that device and nothing else. The child needs glibc; this package, and so the
// daemon, needs no library. The daemon's side is [Reader]; [Look] asks once, for `trimtab doctor`.
//
// Before it enters a call the child writes the call's name to a page shared with the parent, which
// so can name what hung and ask the next child to leave it out for that device. No child, no library,
// no driver and no device are normal states.
//
// The trap: a driver can neither be unloaded nor a GPU be reset while any process
// has NVML open. Stop trimtab before either.
package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// Options says how to read. The zero value is what the daemon needs.
type Options struct {
	Child        []string      // the child's argv; default [ChildName], beside this program or where packages put it
	Library      string        // path or soname; default libnvidia-ml.so.1
	Every        time.Duration // between readings; default 1 s
	Deadline     time.Duration // of a call; default 2 s
	SlowDeadline time.Duration // of setting up the library or a device, which may take seconds; default 30 s
	LookAgain    time.Duration // after no library, no driver, no device, or a device lost; default 1 min
	StaleAfter   time.Duration // a reading older than this is a device lost; default 5 s
	// Owner maps a host PID to runtime.Container.Key, "" for a process of the host; nil: nobody is known.
	// It is called by Read, in its caller's goroutine. [procfs.Owners] has one.
	Owner    func(pid int32) string
	ProcRoot string // default /proc
	Logger   *slog.Logger

	program string        // beside which the child lies; default this one
	nodes   func() string // the driver's nodes as they stand; default /dev's
}

func (o Options) withDefaults() Options {
	o.Every = cmp.Or(o.Every, time.Second)
	o.Deadline = cmp.Or(o.Deadline, 2*time.Second)
	o.SlowDeadline = cmp.Or(o.SlowDeadline, 30*time.Second)
	o.LookAgain = cmp.Or(o.LookAgain, time.Minute)
	o.StaleAfter = cmp.Or(o.StaleAfter, 5*time.Second)
	o.Library = cmp.Or(o.Library, "libnvidia-ml.so.1") // the soname that every driver installs
	o.ProcRoot = cmp.Or(o.ProcRoot, "/proc")
	if o.program == "" {
		o.program, _ = os.Executable() // where that is not known, no child is found, and that is said
	}
	if o.nodes == nil {
		o.nodes = func() string { return nodesOf(wire.DeviceNodes()) }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("component", "nvml")
	return o
}

// Reader keeps one child and its latest readings. Its methods may be called from
// any goroutine; Read's callers share the samples not yet delivered.
type Reader struct {
	o      Options
	stop   context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	book   book
	news   chan struct{} // closed and made anew when something changed
	detail bool          // outcomes are asked for: Look
}

// New starts reading at once. Close ends it.
func New(o Options) *Reader { return newReader(o, false) }

func newReader(o Options, detail bool) *Reader {
	ctx, stop := context.WithCancel(context.Background())
	r := &Reader{o: o.withDefaults(), stop: stop, ended: make(chan struct{}), book: newBook(), news: make(chan struct{}), detail: detail}
	go func() {
		defer close(r.ended)
		r.run(ctx)
	}()
	return r
}

// Close ends the child and the reading.
func (r *Reader) Close() error {
	r.stop()
	<-r.ended
	return nil
}

// Read returns the latest reading of each device, with the duty samples that no
// earlier Read returned; it never waits for NVML. A device that gave none lately
// is there as lost. Nothing to read, as without a driver, is nil and no error; the
// error says why there are no readings where there should be.
func (r *Reader) Read(context.Context) ([]probes.Device, error) {
	now := procfs.MonotonicNs()
	r.mu.Lock()
	list := r.book.deliver(now, r.o.StaleAfter)
	why, normal := r.book.why, r.book.normal
	r.mu.Unlock()
	r.attribute(list)
	if why == "" || normal {
		return list, nil
	}
	return list, errors.New(why)
}

// Status tells the doctor: ok with "" when all devices are read; ok with a reason
// when there is nothing to read and nothing wrong; else what is lost, and why.
func (r *Reader) Status() (ok bool, lost string) {
	now := procfs.MonotonicNs()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.book.why != "" {
		return r.book.normal, r.book.why
	}
	return r.book.complaint(now, r.o.StaleAfter)
}

// Spent is what reading has cost outside this process: CPU time of all children so
// far, and the present one's memory.
func (r *Reader) Spent() (cpuNs, rssBytes uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.pastCPUNs + r.book.cpuNs, r.book.rssBytes
}

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = time.Minute
	// goodLife is how long a child must have lived for the next death to count as the first.
	goodLife = time.Minute
	// renewMost bounds the time between two tries to set up a lost device anew. Each
	// costs all devices some readings, and with a dead device that takes long.
	renewMost = time.Hour
)

// run keeps a child alive, one at a time, and starts none while too much hangs that those before left.
func (r *Reader) run(ctx context.Context) {
	backoff, renew, err := backoffFirst, r.o.LookAgain, error(nil)
	for ctx.Err() == nil {
		born := time.Now()
		if r.held() == "" {
			err = r.life(ctx, &renew)
			r.update(func(b *book) { b.childEnded(err) })
		} else {
			err = unchanged(err)
		}
		if time.Since(born) > goodLife {
			backoff = backoffFirst
		}
		wait := r.after(ctx, err, backoff)
		if wait == backoff {
			backoff = min(2*backoff, backoffMost)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// after says how long to wait once a child has ended so, and tells why.
func (r *Reader) after(ctx context.Context, err error, backoff time.Duration) time.Duration {
	fail, quiet := (*wire.Failure)(nil), (*silence)(nil)
	switch {
	case ctx.Err() != nil, errors.Is(err, errRenew):
		return 0
	case errors.As(err, &fail):
		r.say(fail.Why+r.held(), fail.Normal)
		return r.o.LookAgain
	case errors.As(err, &quiet) && quiet.Inside():
		if r.attributeHang(quiet) {
			return backoff
		}
		r.say(quiet.Error(), false) // nothing works without this call
		return r.o.LookAgain
	}
	r.say(err.Error(), false)
	return backoff
}

// errRenew ends a child so that the next one sets the devices up anew: a lost one
// comes back only so.
var errRenew = errors.New("nvml: devices are set up anew")

// life is one child's, from its start until it fails or, a device being lost, is to
// be replaced after renew, which grows with each time that this was of no use.
func (r *Reader) life(ctx context.Context, renew *time.Duration) error {
	p, err := r.start()
	if err != nil {
		return err
	}
	defer r.reap(ctx, p)
	tick := time.NewTicker(r.o.Every)
	defer tick.Stop()
	born, nodes := time.Now(), r.o.nodes()
	for {
		lost, err := r.reading(ctx, p)
		if err != nil {
			return r.unfit(p, err)
		}
		switch next := r.held() == ""; { // else this one is the last for now
		case next && r.bound() && time.Since(born) > r.o.LookAgain && r.o.nodes() != nodes: // it opens those that were there at its start
			return errRenew
		case !lost:
			*renew = r.o.LookAgain
		case next && time.Since(born) > *renew:
			*renew = min(2*(*renew), max(renewMost, r.o.LookAgain))
			return errRenew
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bound reports whether the child opens no files but its own.
func (r *Reader) bound() (is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.hello.Landlock > 0
}

// nodesOf are the nodes of patterns as they stand.
func nodesOf(patterns []string) string {
	var out strings.Builder
	for _, pattern := range patterns {
		nodes, _ := filepath.Glob(pattern) // the patterns are good
		for _, node := range nodes {
			var of unix.Stat_t
			if unix.Lstat(node, &of) == nil {
				fmt.Fprintln(&out, node, of.Ino, of.Rdev)
			}
		}
	}
	return out.String()
}

// reap ends a child, and waits for it as long as it takes: never two at a time, or
// a driver that hangs would gather them.
func (r *Reader) reap(ctx context.Context, p *process) {
	e := p.page.Read()
	if p.end() {
		return
	}
	r.say(fmt.Sprintf("%s hangs in the driver: the NVML child cannot even be killed", e.Call), false)
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// reading asks once and takes what comes; lost: some device gave nothing.
func (r *Reader) reading(ctx context.Context, p *process) (lost bool, err error) {
	q := r.request()
	if err := p.ask(q); err != nil {
		return false, p.death()
	}
	var unknown []wire.XID // told before their devices
	told := 0
	for range maxAnswers {
		a, err := p.next(ctx, r.o)
		if err != nil {
			return false, err
		}
		p.greeted = true
		switch {
		case a.Failed != nil:
			return false, a.Failed
		case a.Left != nil:
			if err := r.leave(*a.Left); err != nil {
				return false, err
			}
		case a.Hello != nil && a.Hello.Protocol != wire.Protocol:
			return false, &wire.Failure{Why: ChildName + " is of another version than this daemon: restart trimtab, or install the whole package"}
		case a.Hello != nil:
			r.greet(*a.Hello)
		case a.Device != nil:
			a.Device.AtNs = max(0, min(a.Device.AtNs, procfs.MonotonicNs())) // else it would never be old
			if r.update(func(b *book) { err = b.take(*a.Device, a.Cursor, time.Now()) }); err != nil {
				return false, err
			}
		case a.XIDs != nil:
			if told++; told > maxTold {
				return false, fmt.Errorf("%w: it tells of errors more than %d times in a reading", errNotOurs, maxTold)
			}
			r.update(func(b *book) { unknown = append(unknown, b.heard(a.XIDs)...) })
		case a.End != nil:
			r.update(func(b *book) {
				b.heard(unknown)
				lost = b.complete(*a.End, procfs.MonotonicNs())
			})
			r.say("", true)
			return lost, nil
		}
	}
	return false, fmt.Errorf("%w: a reading of it has no end", errNotOurs)
}

// greet takes what a library says of itself. Whether the child is confined is logged once.
func (r *Reader) greet(h wire.Hello) {
	known := ""
	r.update(func(b *book) { known, b.hello = confinement(b.hello), h })
	if is := confinement(h); is != known {
		r.o.Logger.Info(is + r.held())
	}
}

// confinement says which files the child's library may open; "" before it greeted.
func confinement(h wire.Hello) string {
	switch {
	case h.Protocol == 0:
		return ""
	case h.Landlock > 0:
		text := fmt.Sprintf("NVIDIA's library opens no files but its own (Landlock, ABI %d)", h.Landlock)
		if h.LeftOut != "" {
			text += "; not searched for it, since it does not answer: " + h.LeftOut
		}
		return text
	}
	return "NVIDIA's library may open any file of root's, trimtab's state and config among them: " + cmp.Or(h.NoLandlock, "why is not known")
}

func (r *Reader) request() wire.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return wire.Request{Skip: r.book.skips.keys(time.Now()), Cursors: maps.Clone(r.book.cursors), Outcomes: r.detail}
}

// attributeHang leaves out the call that a child was in when it fell silent. false:
// nothing works without it.
func (r *Reader) attributeHang(s *silence) (left bool) {
	r.update(func(b *book) {
		left = b.skips.add(wire.CallKey{Device: s.Device, Call: s.Call}, s.Error(), time.Now())
		b.silent = append(b.silent, s.Error())
		b.silent = b.silent[max(0, len(b.silent)-maxSilent):]
	})
	if left {
		r.o.Logger.Warn("an NVML call is left out for a while", "call", s.Call, "device", s.Device, "reason", s.Error())
	}
	return left
}

// say sets why there are no readings, "" if there are; a change is logged once.
func (r *Reader) say(why string, normal bool) {
	changed := false
	r.update(func(b *book) {
		changed = b.why != why
		b.why, b.normal = why, normal
		if why != "" && normal {
			clear(b.devices) // there is no driver any more
			clear(b.cursors)
		}
	})
	switch {
	case !changed:
	case why == "":
		r.o.Logger.Info("NVML is read")
	case normal:
		r.o.Logger.Info("NVML: nothing to read", "reason", why)
	default:
		r.o.Logger.Warn("NVML cannot be read", "reason", why)
	}
}

func (r *Reader) update(f func(b *book)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.book)
	close(r.news)
	r.news = make(chan struct{})
}

// Summary is what one look tells: for `trimtab doctor` and `make gpu-check`.
type Summary struct {
	Absent  string // why there is nothing to read, with nothing wrong: no driver, no device
	Driver  string // version
	NVML    string // version
	Virtual bool   // trimtab's own virtual GPU answers
	Files   string // which files the library may open, in words
	Devices []probes.Device
	// Answers is what each function said last, by device (UUID, or "" for the library).
	Answers []wire.Outcome
	// Silent are calls that hung or ended the child.
	Silent []string
}

// Answered lists the functions that answered a device.
func (s Summary) Answered(uuid string) (calls []string) {
	for _, a := range s.Answers {
		if a.Device == uuid && a.Code == wire.OK {
			calls = append(calls, strings.TrimPrefix(a.Call, "nvml"))
		}
	}
	return calls
}

// lookReadings is how many readings a look takes: GPM tells what lies between two.
const lookReadings = 2

// Look starts a child of its own, takes two readings, and ends it: some seconds.
// An absent driver is no error.
func Look(ctx context.Context, o Options) (Summary, error) {
	r := newReader(o, true)
	defer r.Close()
	for {
		s, news, err := r.summary()
		if news == nil {
			r.attribute(s.Devices)
			return s, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return s, fmt.Errorf("nvml: no reading yet: %w", ctx.Err())
		}
	}
}

// summary is what is known so far; news is nil once that is enough.
func (r *Reader) summary() (s Summary, news <-chan struct{}, err error) {
	now, held := procfs.MonotonicNs(), r.held()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.book
	s = Summary{Driver: b.hello.Driver, NVML: b.hello.NVML, Virtual: b.hello.Virtual, Files: confinement(b.hello) + held, Silent: append([]string(nil), b.silent...)}
	switch {
	case b.why != "" && b.normal:
		s.Absent = b.why
		return s, nil, nil
	case b.why != "":
		return s, nil, errors.New(b.why)
	case b.turn < lookReadings:
		return s, r.news, nil
	}
	s.Devices, s.Answers = b.deliver(now, r.o.StaleAfter), b.outcomes
	return s, nil, nil
}

// maxComm bounds a process's name, of 16 bytes.
const maxComm = 64

// mpsServer is the server's name as the kernel cuts it; the control daemon bears
// the same, and holds no device.
const mpsServer = "nvidia-cuda-mps"

// ofHost reports whether a process is in the PID namespace that trimtab's own /proc is of.
func (r *Reader) ofHost(pid int32) bool {
	own, err := os.Readlink(filepath.Join(r.o.ProcRoot, "self/ns/pid"))
	its, errIts := os.Readlink(procfs.Path(r.o.ProcRoot, pid, "ns/pid"))
	return errors.Join(err, errIts) == nil && own == its
}

// attribute names the containers of processes, and knows MPS by its server. A
// process could bear that name to look shared; it would only spare itself trials.
// One in a container, of this host's engines or another's, is a holder like any other,
// lest a job hide its work by a name.
func (r *Reader) attribute(list []probes.Device) {
	for i := range list {
		d := &list[i]
		for j := range d.Processes {
			p := &d.Processes[j]
			if r.o.Owner != nil {
				p.Container = r.o.Owner(p.PID)
			}
			if d.Sharing == wire.SharingMIG {
				continue
			}
			comm, err := procfs.Read(procfs.Path(r.o.ProcRoot, p.PID, "comm"), maxComm)
			if err == nil && strings.HasPrefix(string(comm), mpsServer) {
				d.Sharing, p.Server = wire.SharingMPS, p.Container == "" && r.ofHost(p.PID)
			}
		}
	}
}
