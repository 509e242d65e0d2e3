package nvml

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/trimtab/trimtab/probes/child"
)

const (
	killWait      = 2 * time.Second // a killed child that is not gone by then hangs in the kernel
	answersQueued = 64
)

// process is one child, from the parent's side. Used from one goroutine.
type process struct {
	cmd     *exec.Cmd
	page    *page
	asks    io.WriteCloser
	replies *os.File
	answers chan answer // closed when the child can say no more
	quit    chan struct{}
	done    <-chan struct{} // closed when the child is reaped
	said    child.Tail      // the end of its standard error
	readers sync.WaitGroup
}

// startProcess runs argv with a shared page, and pipes either way. The child dies with us:
// its standard input ends, and the kernel kills it, should it hang by then.
func startProcess(argv []string) (*process, error) {
	pg, pageFile, err := newPage()
	if err != nil {
		return nil, err
	}
	defer pageFile.Close()
	replies, theirs, err := os.Pipe()
	if err != nil {
		pg.close()
		return nil, fmt.Errorf("nvml: pipe: %w", err)
	}
	defer theirs.Close()
	p := &process{page: pg, replies: replies, answers: make(chan answer, answersQueued),
		quit: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=2", "GOTRACEBACK=single")
	p.cmd.ExtraFiles = []*os.File{pageFile, theirs}
	p.cmd.Stderr = &p.said
	p.cmd.WaitDelay = killWait
	if p.asks, err = p.cmd.StdinPipe(); err == nil {
		// Reading NVML needs no privilege; the one thing lost is that the library could make
		// missing device nodes, which the container runtime does.
		p.done, err = child.Start(p.cmd)
	}
	if err != nil {
		pg.close()
		return nil, errors.Join(fmt.Errorf("nvml: start the child: %w", err), replies.Close())
	}
	p.readers.Go(p.listen)
	return p, nil
}

// listen decodes answers until the pipe ends.
func (p *process) listen() {
	defer close(p.answers)
	for lines := newLines(p.replies); lines.Scan(); {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			return
		}
		select {
		case p.answers <- a:
		case <-p.quit:
			return
		}
	}
}

func (p *process) ask(q request) error { return writeLine(p.asks, q) }

// end stops the child and frees what is its own. gone is false if the kernel
// cannot end it now: a call that hangs in the driver.
func (p *process) end() (gone bool) {
	_ = p.asks.Close()
	_ = p.cmd.Process.Kill() // it may have ended already
	_ = p.replies.Close()
	close(p.quit)
	p.readers.Wait()
	select {
	case <-p.done:
		gone = true
	case <-time.After(killWait):
	}
	p.page.close()
	return gone
}

// limits are how long a child may be silent.
type limits struct {
	call time.Duration // inside one call
	slow time.Duration // inside the few that set up devices, or outside any call
}

// of gives the limit for what the page shows. Setting up a device that nothing else
// keeps awake takes seconds.
func (l limits) of(e entry) time.Duration {
	switch e.Call {
	case "dlopen", "nvmlInit_v2", "nvmlInit", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex":
		return l.slow
	}
	if !e.inside() {
		return l.slow
	}
	return l.call
}

// silence is a child that no longer answers.
type silence struct {
	entry
	dead  bool // it ended by itself
	after time.Duration
	said  string // the end of its standard error
}

func (s *silence) Error() string {
	what := "the NVML child"
	if s.inside() {
		what = s.Call
		if s.Device != "" {
			what += " of " + s.Device
		}
	}
	if !s.dead {
		return fmt.Sprintf("%s gave no answer in %v", what, s.after)
	}
	text := what + " ended the process"
	if !s.inside() {
		text = what + " ended"
	}
	if s.said != "" {
		text += ": " + s.said
	}
	return text
}

// next waits for one answer. The child's progress from call to call counts as a sign of life.
func (p *process) next(ctx context.Context, l limits) (answer, error) {
	look := time.NewTicker(max(l.call/8, time.Millisecond))
	defer look.Stop()
	last, since := p.page.read(), time.Now()
	for {
		select {
		case a, ok := <-p.answers:
			if !ok {
				return a, p.death()
			}
			return a, nil
		case <-ctx.Done():
			return answer{}, ctx.Err()
		case <-look.C:
			e := p.page.read()
			if e.Turn != last.Turn {
				last, since = e, time.Now()
			} else if limit := l.of(e); time.Since(since) > limit {
				return answer{}, &silence{entry: e, after: limit}
			}
		}
	}
}

// death says what a child was doing that ended.
func (p *process) death() error {
	select {
	case <-p.done: // its last words are complete
	case <-time.After(killWait):
	}
	return &silence{entry: p.page.read(), dead: true, said: p.said.LastLine()}
}
