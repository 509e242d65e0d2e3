package nvml

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/child"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

const (
	killWait      = 2 * time.Second // a killed child that is not gone by then hangs in the kernel
	answersQueued = 64
)

// process is one child, from the parent's side. Used from one goroutine.
type process struct {
	cmd     *exec.Cmd
	page    *wire.Page
	greeted bool // it loaded the library, or said why not
	asks    io.WriteCloser
	replies *os.File
	answers chan wire.Answer // closed when the child can say no more
	odd     error            // what it said last is no child's of ours; set before answers is closed
	quit    chan struct{}
	done    <-chan struct{} // closed when the child is reaped
	said    child.Tail      // the end of its standard error
	readers sync.WaitGroup
}

// ChildName is the program that calls NVIDIA's library (cmd/trimtab-nvml).
const ChildName = "trimtab-nvml"

// start starts a child. Without one on a host without NVIDIA's driver nothing is wrong.
func (r *Reader) start() (*process, error) {
	argv, err := r.o.Child, error(nil)
	if len(argv) == 0 {
		argv, err = findChild(r.o.program)
	}
	var p *process
	if err == nil {
		at, args := r.hanging(), argv[:len(argv):len(argv)]
		for _, path := range at {
			args = append(args, wire.SilentFlag+path)
		}
		p, err = startProcess(append(args, wire.LibraryFlag+r.o.Library), at)
	}
	if err == nil || len(r.o.Child) > 0 {
		return p, err
	}
	return nil, r.noChild(err)
}

// noChild is what a child that cannot run means: without a driver there is nothing to read.
func (r *Reader) noChild(why error) *wire.Failure {
	if _, err := os.Stat(filepath.Join(r.o.ProcRoot, "driver/nvidia/version")); errors.Is(err, fs.ErrNotExist) {
		return &wire.Failure{Why: "no NVIDIA driver here", Normal: true}
	}
	return &wire.Failure{Why: why.Error()}
}

// unfit tells a child that its loader ended, for want of a C library that is new enough, from one
// that ended in a call.
func (r *Reader) unfit(p *process, err error) error {
	var s *silence
	if p.greeted || !errors.As(err, &s) || !s.dead || s.Inside() {
		return err
	}
	return r.noChild(fmt.Errorf("%w; it needs glibc 2.34 or later", err))
}

// findChild is the argv of the child that came with a program: it lies beside it, or in the
// packages' libexec.
func findChild(program string) ([]string, error) {
	dir := filepath.Dir(program)
	for _, path := range []string{filepath.Join(dir, ChildName), filepath.Join(dir, "../libexec/trimtab", ChildName)} {
		switch err := trusted(path, program); {
		case err == nil:
			return []string{path}, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return nil, fmt.Errorf("nvml: %s, which reads NVIDIA's devices, is neither in %s nor in ../libexec/trimtab: "+
		"install the whole package, or build it (make build, with gcc)", ChildName, dir)
}

// trusted: a child is as much to be trusted as the program that it came with. In a folder where
// anybody may put files, as /tmp is, or of another owner, it is not.
func trusted(path, program string) error {
	var ours unix.Stat_t
	if err := unix.Stat(program, &ours); err != nil {
		return fmt.Errorf("nvml: %s: %w", program, err)
	}
	const others = 0o002
	for file, kind := range map[string]uint32{path: unix.S_IFREG, filepath.Dir(path): unix.S_IFDIR} {
		var s unix.Stat_t
		if err := unix.Stat(file, &s); err != nil {
			return fmt.Errorf("nvml: %s: %w", file, err)
		}
		if s.Mode&unix.S_IFMT != kind || s.Uid != 0 && s.Uid != ours.Uid || s.Mode&others != 0 {
			return fmt.Errorf("nvml: %s is not started: others than root and the owner of %s can write %s", path, program, file)
		}
	}
	return nil
}

// startProcess runs argv with a shared page, and pipes either way. The child dies with us:
// its standard input ends, and the kernel kills it, should it hang by then. Folders that are silent its
// loader does not search.
func startProcess(argv, silent []string) (*process, error) {
	pg, pageFile, err := wire.NewPage()
	if err != nil {
		return nil, err
	}
	defer pageFile.Close()
	replies, theirs, err := os.Pipe()
	if err != nil {
		pg.Close()
		return nil, fmt.Errorf("nvml: pipe: %w", err)
	}
	defer theirs.Close()
	p := &process{page: pg, replies: replies, answers: make(chan wire.Answer, answersQueued),
		quit: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LD_BIND_NOW=") }) // no driver has all symbols
	p.cmd.Env = append(wire.WithoutSilent(env, silent), "GOMAXPROCS=2", "GOTRACEBACK=single")
	p.cmd.ExtraFiles = []*os.File{pageFile, theirs}
	p.cmd.Stderr = &p.said
	p.cmd.WaitDelay = killWait
	if p.asks, err = p.cmd.StdinPipe(); err == nil {
		// Reading NVML needs no privilege; the one thing lost is that the library could make
		// missing device nodes, which the container runtime does. The child confines itself besides.
		p.done, err = child.Start(p.cmd)
	}
	if err != nil {
		pg.Close()
		if _, there := os.Stat(argv[0]); there == nil && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: its loader is not here; it needs glibc 2.34 or later", err)
		}
		return nil, errors.Join(fmt.Errorf("nvml: start the child: %w", err), replies.Close())
	}
	p.readers.Go(p.listen)
	return p, nil
}

// listen decodes answers until the pipe ends. What is no answer is not kept.
func (p *process) listen() {
	defer close(p.answers)
	for lines := wire.NewLines(p.replies); lines.Scan(); {
		var a wire.Answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			return // the last line of one that ended may be cut short
		}
		if p.odd = bounded(&a); p.odd != nil {
			return
		}
		select {
		case p.answers <- a:
		case <-p.quit:
			return
		}
	}
}

func (p *process) ask(q wire.Request) error { return wire.WriteLine(p.asks, q) }

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
	p.page.Close()
	return gone
}

// patience is how long a child may be silent where the page shows that it is. Setting up a device that
// nothing else keeps awake takes seconds.
func (o Options) patience(e wire.Entry) time.Duration {
	switch e.Call {
	case "dlopen", "nvmlInit_v2", "nvmlInit", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex":
		return o.SlowDeadline
	}
	if !e.Inside() {
		return o.SlowDeadline
	}
	return o.Deadline
}

// silence is a child that no longer answers.
type silence struct {
	wire.Entry
	dead  bool // it ended by itself
	after time.Duration
	said  string // the end of its standard error
}

func (s *silence) Error() string {
	what := "the NVML child"
	if s.Inside() {
		what = s.Call
		if s.Device != "" {
			what += " of " + s.Device
		}
	}
	if !s.dead {
		return fmt.Sprintf("%s gave no answer in %v", what, s.after)
	}
	text := what + " ended the process"
	if !s.Inside() {
		text = what + " ended"
	}
	if s.said != "" {
		text += ": " + s.said
	}
	return text
}

// next waits for one answer. The child's progress from call to call counts as a sign of life.
func (p *process) next(ctx context.Context, o Options) (wire.Answer, error) {
	look := time.NewTicker(max(o.Deadline/8, time.Millisecond))
	defer look.Stop()
	last, since := p.page.Read(), time.Now()
	for {
		select {
		case a, ok := <-p.answers:
			if !ok && p.odd != nil {
				return a, p.odd
			}
			if !ok {
				return a, p.death()
			}
			return a, nil
		case <-ctx.Done():
			return wire.Answer{}, ctx.Err()
		case <-look.C:
			e := p.page.Read()
			if e.Turn != last.Turn {
				last, since = e, time.Now()
			} else if limit := o.patience(e); time.Since(since) > limit {
				return wire.Answer{}, &silence{Entry: e, after: limit}
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
	return &silence{Entry: p.page.Read(), dead: true, said: p.said.LastLine()}
}
