package rate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strconv"
	"sync"
	"time"

	limit "golang.org/x/time/rate"

	"github.com/trimtab/trimtab/probes/procfs"
)

// Logs follows what a container logs from now on. Each line may begin with its
// RFC 3339 time and a space. The reader ends with the container or with ctx.
type Logs func(ctx context.Context, containerID string) (io.ReadCloser, error)

const (
	// A log may bring logBytesPerS at length, logBytesAtOnce in a burst: a trainer that
	// writes a progress bar 20 times a second brings 4 KiB/s.
	logBytesPerS   = 256 << 10
	logBytesAtOnce = 2 << 20
	// Matching may take matchPerS of one CPU at length: RE2 is linear, in what the
	// expression's size makes of each byte.
	matchPerS   = 0.01
	matchAtOnce = 200 * time.Millisecond
	maxLine     = 4 << 10
	// A log that is over its bounds is left alone for floodRest, then for twice as long.
	floodRest    = time.Minute
	maxFloodRest = 16 * time.Minute
	firstRetry   = time.Second
	lastRetry    = 30 * time.Second
)

var (
	errFloods = errors.New("the log floods")
	errCostly = errors.New("the expression is too costly for this log")
)

// follower reads one container's log in a goroutine.
type follower struct {
	logs    Logs
	id      string
	pattern pattern
	tell    func(problem string) // "" : read again
	cancel  context.CancelFunc
	ended   chan struct{}

	mu      sync.Mutex
	counter counter
}

func follow(logs Logs, id string, p pattern, tell func(string)) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{logs: logs, id: id, pattern: p, tell: tell, cancel: cancel, ended: make(chan struct{})}
	go f.run(ctx)
	return f
}

// stop ends the goroutine and waits for it.
func (f *follower) stop() {
	f.cancel()
	<-f.ended
}

func (f *follower) reading() counter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counter
}

func (f *follower) run(ctx context.Context) {
	defer close(f.ended)
	retry, rest := firstRetry, floodRest
	for ctx.Err() == nil {
		began := time.Now()
		err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastRetry { // it was read for a while: begin small again
			retry = firstRetry
		}
		wait := retry
		if errors.Is(err, errFloods) || errors.Is(err, errCostly) {
			if time.Since(began) > rest {
				rest = floodRest
			}
			wait = rest
			rest = min(2*rest, maxFloodRest)
			f.tell(fmt.Sprintf("%v: not read for %v", err, wait))
		} else {
			retry = min(2*retry, lastRetry)
			if !errors.Is(err, io.EOF) {
				f.tell(err.Error())
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// session follows the log until it ends or is over its bounds.
func (f *follower) session(ctx context.Context) error {
	stream, err := f.logs(ctx, f.id)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer stream.Close()
	// Closing is what ends a read that waits.
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	f.tell("")
	r := bufio.NewReaderSize(stream, 2*maxLine)
	size := limit.NewLimiter(logBytesPerS, logBytesAtOnce)
	work := limit.NewLimiter(limit.Limit(matchPerS*float64(time.Second)), int(matchAtOnce)) // of nanoseconds
	for {
		line, n, err := readLine(r, func(n int) bool { return size.AllowN(time.Now(), n) })
		if n > 0 && err == nil { // half a line may hold half a number
			begin := time.Now()
			f.take(line, begin)
			if now := time.Now(); !work.AllowN(now, int(now.Sub(begin))) {
				return errCostly
			}
		}
		if err != nil {
			return err
		}
	}
}

// readLine returns a line without its end, cut at maxLine, and how many bytes
// were read for it. The line is good until the next call.
func readLine(r *bufio.Reader, allow func(n int) bool) (line []byte, n int, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		n += len(piece)
		if line == nil {
			line = bytes.TrimRight(piece[:min(len(piece), maxLine)], "\r\n")
			if errors.Is(err, bufio.ErrBufferFull) {
				line = bytes.Clone(line) // what follows overwrites it
			}
		}
		if !allow(len(piece)) {
			return line, n, errFloods
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, n, err
		}
	}
}

// take counts a line at the time that it says it was logged.
func (f *follower) take(line []byte, now time.Time) {
	atNs := procfs.MonotonicNs()
	if stamp, rest, ok := bytes.Cut(line, []byte(" ")); ok {
		if logged, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil {
			line = rest
			// A log that comes late was written when it says; one from the future, or from
			// before a clock was set, when it came.
			if age := now.Sub(logged); age > 0 && age < time.Minute {
				atNs -= age.Nanoseconds()
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pattern.match(line, &f.counter, atNs)
}

// Label is the label by which a container asks for its log to be read.
const Label = "trimtab.rate.log"

const (
	maxPatternBytes = 512
	// maxInstructions bounds an expression such as (a{50}){20}, which is short and slow.
	maxInstructions = 2000
	stepGroup       = "step"
)

// pattern finds steps in lines.
type pattern struct {
	re    *regexp.Regexp
	group int // of the step's number; 0: there is none, each match is a step
}

// compile reads the label's value. The error says what is allowed.
func compile(text string) (pattern, error) {
	if len(text) > maxPatternBytes {
		return pattern{}, fmt.Errorf("label %s: %d bytes; allowed: an RE2 expression of up to %d", Label, len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, fmt.Errorf("label %s: %w; allowed: an RE2 expression such as step[ =](\\d+)", Label, err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(prog.Inst) > maxInstructions {
		return pattern{}, fmt.Errorf("label %s: the expression is too large; allowed: fewer and smaller repetitions", Label)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return pattern{}, fmt.Errorf("label %s: %w", Label, err)
	}
	p := pattern{re: re, group: min(1, re.NumSubexp())}
	if i := re.SubexpIndex(stepGroup); i >= 0 {
		p.group = i
	}
	return p, nil
}

// match counts a line.
func (p pattern) match(line []byte, c *counter, atNs int64) {
	m := p.re.FindSubmatchIndex(line)
	if m == nil {
		return
	}
	if from, to := m[2*p.group], m[2*p.group+1]; p.group > 0 && from >= 0 {
		if n, err := strconv.ParseUint(string(line[from:to]), 10, 64); err == nil {
			c.step(n, atNs)
			return
		}
	}
	if !c.numbered { // a line without a number, of a job that numbers its steps, is none
		c.tick(atNs)
	}
}
