package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/runtimetest/dockerd"
	"github.com/trimtab/trimtab/test/vgpu"
)

// world is what the harness made and breaks: an engine, a disk, a daemon, jobs.
type world struct {
	o      options
	out    io.Writer
	random *rand.Rand // of the step
	dir    string
	below  string // what the disk shows, without its faults
	engine *dockerd.Daemon
	disk   *fusetest.Disk
	daemon *daemontest.Daemon
	// wholeConfig is the daemon's.
	wholeConfig string
	scripts     string // of the training image
	gpus        *vgpu.Node
	restoreTook time.Duration // what a restore --offline took last
	step        atomic.Int64
	faults      int
	made        int // jobs
	began       time.Time

	// upSince is when the daemon answered first, by now; 0: it is not to answer.
	upSince atomic.Int64
	pid     atomic.Int64 // the daemon's
	quiet   atomic.Int64 // by now: until then rights are not judged, engine or daemon were away
	stepped atomic.Int64 // by now: when the clock was set; 0: never

	mu         sync.Mutex // of what follows, which the watch shares
	jobs       map[string]*job
	violations []breach
	standing   []breach // found at the last look, and told
	refused    int      // steps in a row that the engine refused
	lost       int      // owners' writes that met one of trimtab's: documented
	stood      int      // knobs of trimtab's that stood when faults came
}

// diskBytes holds originals, history and a flight recorder; small, so that it is soon full.
const diskBytes = "48m"

// daemonConfig bounds what the daemon writes below the small disk. It is not to read less
// often for its own cost: then it would tick, and publish nothing new.
const daemonConfig = `watch: all
docker: {host: %q, containerd: %q}
overhead: {cpu: 1}
reserve: {cpus: 0.01}
limits: {coolDown: 5s}
knobs: [cpu, memory]
record: {ring: 8MiB}
history: {maxBytes: 16MiB}
`

// newWorld makes all but jobs; close takes it away, also where newWorld failed.
func newWorld(ctx context.Context, o options, out io.Writer) (*world, error) {
	w := &world{o: o, out: out, jobs: map[string]*job{}, began: time.Now(), restoreTook: 100 * time.Millisecond, random: rand.New(rand.NewPCG(o.seed, 0))}
	var err error
	// Not below a long path: a socket's has 108 bytes at most.
	if w.dir, err = os.MkdirTemp("", "trimtab-chaos-"); err != nil {
		return w, err
	}
	for _, sub := range []string{"engine", "below", "daemon", "daemon/state"} {
		if err := os.Mkdir(filepath.Join(w.dir, sub), 0o700); err != nil {
			return w, err
		}
	}
	w.below = filepath.Join(w.dir, "below")
	if err := syscall.Mount("chaos", w.below, "tmpfs", 0, "mode=0700,size="+diskBytes); err != nil {
		return w, fmt.Errorf("the small disk: %w", err)
	}
	if w.disk, err = fusetest.OpenDisk(filepath.Join(w.dir, "daemon", "state"), w.below); err != nil {
		return w, err
	}
	if w.engine, err = dockerd.New(dockerd.Options{Dir: filepath.Join(w.dir, "engine"), Storage: o.storage}); err != nil {
		return w, err
	}
	if err := w.engine.Start(ctx); err != nil {
		return w, err
	}
	if err := errors.Join(w.importImage(ctx), w.importTraining(ctx)); err != nil {
		return w, err
	}
	return w, w.newDaemon(ctx)
}

// newDaemon starts the daemon, beside virtual GPUs where there is a compiler: else it has no
// child that reads them.
func (w *world) newDaemon(ctx context.Context) error {
	var env []string
	switch libs, err := vgpu.Build(ctx); {
	case errors.Is(err, vgpu.ErrNoCompiler):
		w.say("without virtual GPUs, and a child that reads them: %v", err)
	case err != nil:
		return err
	default:
		if w.gpus, err = vgpu.NewNode(ctx, libs, filepath.Join("/dev/shm", filepath.Base(w.dir)), vgpu.Options{}); err != nil {
			return err
		}
		env = w.gpus.Env()
	}
	config := fmt.Sprintf(daemonConfig, w.engine.Host, w.engine.Below.Address())
	var err error
	w.daemon, err = daemontest.Start(ctx, daemontest.Options{Binary: w.o.binary, Dir: filepath.Join(w.dir, "daemon"), Config: config, Env: env, Metrics: "unix:" + w.metricsSocket()})
	if err != nil {
		return err
	}
	w.up()
	text, err := os.ReadFile(w.configFile())
	w.wholeConfig = string(text)
	return err
}

func (w *world) metricsSocket() string { return filepath.Join(w.dir, "daemon", "metrics") }

// close takes all away. ctx must be alive.
func (w *world) close(ctx context.Context) error {
	var errs []error
	if w.daemon != nil {
		w.down()
		errs = append(errs, w.daemon.Close())
	}
	if w.engine != nil {
		errs = append(errs, w.engine.Close(ctx))
	}
	if w.disk != nil {
		errs = append(errs, w.disk.Close())
	}
	if w.below != "" {
		errs = append(errs, syscall.Unmount(w.below, syscall.MNT_DETACH))
	}
	if w.gpus != nil {
		errs = append(errs, os.RemoveAll(filepath.Dir(w.gpus.Path)))
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// up says that the daemon answers from now on; down that it is not to.
func (w *world) up() {
	w.pid.Store(int64(w.daemon.PID()))
	w.upSince.Store(w.now())
	w.hush()
}

func (w *world) down() { w.upSince.Store(0) }

// hush has rights not judged for a while: what calls loans in was away.
func (w *world) hush() { w.quiet.Store(w.now() + int64(readyAfter)) }

// now is the time since the beginning in ns, however the clock is set; never 0.
func (w *world) now() int64 { return int64(time.Since(w.began)) + 1 }

// say prints a line with the time since the beginning.
func (w *world) say(format string, args ...any) {
	fmt.Fprintf(w.out, "%s +%4.0fs %s\n", time.Now().UTC().Format("15:04:05"), time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// violate prints and keeps breaches.
func (w *world) violate(step int, found []breach) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range found {
		w.violations = append(w.violations, b)
		fmt.Fprintf(w.out, "%s VIOLATION seed %d step %d: %s\n", time.Now().UTC().Format("15:04:05.000"), w.o.seed, step, b)
	}
}

// all lists the jobs by name.
func (w *world) all() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*job
	for _, j := range w.jobs {
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *job) int { return strings.Compare(a.name, b.name) })
	return out
}

// tuned lists those that may be changed.
func (w *world) tuned() (out []*job) {
	for _, j := range w.all() {
		if j.name != neighbourName {
			out = append(out, j)
		}
	}
	return out
}

// readings and betweenReadings: a breach stands for a second and more before it is one. A
// write takes tens of milliseconds, and some hundred beside much other work.
const (
	readings        = 7
	betweenReadings = 250 * time.Millisecond
)

// look holds what is now against the laws, and reports how many knobs stand by trimtab.
func (w *world) look(step int) (stand int) {
	found := persist(readings, func() []breach {
		var out []breach
		out, stand = w.read()
		return out
	}, func() { time.Sleep(betweenReadings) })
	w.violate(step, fresh(found, w.standing))
	w.standing = found
	return stand
}

// read is one reading of all jobs. Values are read before the files: what is read as
// standing was recorded before.
func (w *world) read() (out []breach, stand int) {
	for _, j := range w.all() {
		stands, err := cgroup.ReadValues(j.cgroup)
		if err != nil {
			out = append(out, breach{lawProcesses, j.name, fmt.Sprintf("its control group cannot be read: %v", err)})
			continue
		}
		files, err := w.files()
		if err != nil {
			return append(out, breach{lawOriginals, "files", err.Error()}), stand
		}
		f, ok := files[j.id]
		if !ok {
			out = append(out, judgeValues(j.name, j.owner, stands, nil)...)
		} else {
			out = append(out, judgeValues(j.name, j.owner, stands, &f)...)
		}
		for knob, v := range stands {
			if !knob.Same(j.owner[knob], v) {
				stand++
			}
		}
		out = append(out, judgeProcesses(j.name, j.were, j.processes(), j.oomKills())...)
	}
	return out, stand
}

// wantRestored holds that nothing of trimtab's stands, in the kernel or on disk.
func (w *world) wantRestored(step int, after string) {
	w.violate(step, persist(2, func() (out []breach) {
		for _, j := range w.all() {
			stands, err := cgroup.ReadValues(j.cgroup)
			if err != nil {
				out = append(out, breach{lawProcesses, j.name, err.Error()})
				continue
			}
			for _, b := range judgeRestored(j.name, j.owner, stands) {
				b.evidence += ", after " + after
				out = append(out, b)
			}
		}
		files, err := w.files()
		if err != nil {
			return append(out, breach{lawOriginals, "files", err.Error()})
		}
		for _, f := range files {
			out = append(out, breach{lawRestored, f.Name, fmt.Sprintf("its originals are left on disk after %s: %v", after, f.Originals())})
		}
		return out
	}, func() { time.Sleep(betweenReadings) }))
}

// keepLog keeps the daemon's log where a law was broken.
func (w *world) keepLog() {
	if w.daemon == nil || len(w.violations) == 0 || w.o.keep == "" {
		return
	}
	err := os.MkdirAll(filepath.Dir(w.o.keep), 0o755)
	if err == nil {
		err = os.WriteFile(w.o.keep, []byte(w.daemon.Log()), 0o644)
	}
	w.say("the daemon's log: %s (%v)", w.o.keep, err)
}
