// Command zoo runs programs that know nothing of trimtab: some that their quota starves, and some
// that nothing helps. It says what share of their speed without a quota the former reach, how soon,
// and whether anybody is slower for it; and it holds the class, the rate and the gain that trimtab
// tells against the truth, which is what the programs print. It needs root, Docker, the images and bin/trimtab (`make zoo`).
//
// A missed goal is a result, and exit status 2 says that there is one; 1 means that something
// could not be measured. Run it on a quiet machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
)

// program is one of the zoo.
type program struct {
	name, why string
	command   []string // in the container; /zoo holds the programs
	// helpless: nothing makes it faster. Else its quota starves it.
	helpless bool
	quota    float64 // CPUs
	// epoch is how long one pass over its files takes while its memory limit evicts them; 0: a CPU
	// quota starves it.
	epoch time.Duration
	disk  string // what the kernel lets it read a second, as docker run takes it; "": all
	// class is what bounds it while its quota stops it; "": its own computing.
	class policies.Class
}

// The program that memory starves: its files, and the limit below them.
const (
	filesMiB = 1200
	limitMiB = 400
	plenty   = 8 << 10 // MiB; Docker takes no limit away
)

const (
	zooImage = "trimtab-zoo:1"
	inside   = "/zoo/"
)

func programs() []program {
	python := func(file string) []string { return []string{"python3", "-u", inside + file} }
	other := func(name string) []string { return append(python("others.py"), name) }
	return []program{
		{name: "xgboost", why: "gradient boosting, two threads", command: python("xgb.py"), quota: 0.4},
		{name: "forest", why: "scikit-learn's random forest, two threads", command: python("forest.py"), quota: 0.4},
		{name: "openmp", why: "matrix products in C, all CPUs", command: []string{inside + "omp"}, quota: 0.4},
		{name: "go", why: "compression and hashes on two goroutines", command: []string{inside + "hash-bin"}, quota: 0.4},
		{name: "pipeline", why: "a shell's pipelines of short-lived processes", command: []string{"bash", inside + "pipeline.sh"}, quota: 0.4},
		{name: "liblinear", why: "LIBLINEAR's trainer, C", command: other("liblinear"), quota: 0.4},
		{name: "libsvm", why: "LIBSVM's trainer, C++", command: other("libsvm"), quota: 0.4},
		{name: "fasttext", why: "fastText, C++, two threads", command: other("fasttext"), quota: 0.4},
		{name: "weka", why: "Weka's boosted stumps, Java", command: other("weka"), quota: 0.4},
		{name: "rforest", why: "R's randomForest", command: other("rforest"), quota: 0.4},
		{name: "rboost", why: "R's gbm", command: other("rboost"), quota: 0.4},
		{name: "lammps", why: "LAMMPS, two ranks of Open MPI", command: other("lammps"), quota: 0.4},
		{name: "ffmpeg", why: "x264 by FFmpeg, threads", command: other("ffmpeg"), quota: 0.4},
		{name: "brain", why: "Synaptic in two worker threads of Node", command: other("brain"), quota: 0.4},
		{name: "tfjs", why: "TensorFlow.js, plain JavaScript", command: other("tfjs"), quota: 0.4},
		{name: "perlfann", why: "FANN from Perl", command: other("perlfann"), quota: 0.4},
		{name: "godeep", why: "go-deep, two goroutines", command: other("godeep"), quota: 0.4},
		{name: "torchrun", why: "DDP over gloo, two ranks of torchrun", command: other("torchrun"), quota: 0.4},
		{name: "povray", why: "POV-Ray, two threads", command: other("povray"), quota: 0.4},
		{name: "magick", why: "ImageMagick, a process for each picture", command: other("magick"), quota: 0.4},
		{name: "iqtree", why: "IQ-TREE, two threads", command: other("iqtree"), quota: 0.4},
		{name: "phmmer", why: "HMMER's phmmer, two threads", command: other("phmmer"), quota: 0.4},
		{name: "minimap", why: "minimap2, reads against each other", command: other("minimap"), quota: 0.4},
		{name: "bwa", why: "BWA-MEM, reads against a genome", command: other("bwa"), quota: 0.4},
		{name: "xgbcli", why: "XGBoost's own command, C++, two threads", command: other("xgbcli"), quota: 0.4},
		{name: "darknet", why: "darknet's recurrent network, C", command: other("darknet"), quota: 0.4},
		{name: "rnnet", why: "R's nnet", command: other("rnnet"), quota: 0.4},
		{name: "stockfish", why: "Stockfish's bench, two threads", command: other("stockfish"), quota: 0.4},
		{name: "vision", why: "PyTorch with a worker of torchvision's transforms", command: python("vision.py"), quota: 0.4, class: policies.ClassInput},
		{name: "mlp", why: "scikit-learn's perceptron", command: python("mlp.py"), quota: 0.4},
		{name: "grid", why: "scikit-learn's grid search, processes of joblib", command: python("grid.py"), quota: 0.4},
		{name: "pool", why: "a spawned pool of Python's multiprocessing", command: python("pool.py"), quota: 0.4},
		{name: "words", why: "gensim's word2vec, threads fed by a queue", command: python("words.py"), quota: 0.4},
		{name: "files", why: "1.2 GiB of files under 400 MiB of memory", command: append(python("files.py"), strconv.Itoa(filesMiB)), epoch: 12 * time.Second},
		{name: "slowfiles", why: "the same, from a disk of 30 MB/s", command: append(python("files.py"), strconv.Itoa(filesMiB)), epoch: 42 * time.Second, disk: "30mb"},
		{name: "checkpoint", why: "computes a little and writes checkpoints", command: python("checkpoint.py"), helpless: true, quota: 0.6},
		{name: "notebook", why: "works for a tenth of each second", command: python("notebook.py"), helpless: true, quota: 0.4},
		{name: "poll", why: "looks every 10 ms whether there is work", command: python("poll.py"), helpless: true, quota: 0.4},
		{name: "spin", why: "spins until a time has come", command: python("spin.py"), helpless: true, quota: 0.4},
		{name: "ring", why: "two MPI ranks that hand a token round, spinning, with CPU for both", helpless: true, quota: 2,
			command: append([]string{"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"}, python("ring.py")...)},
	}
}

// watched are programs for recordings alone: what starts others, as launchers and shells do.
func watched() []program {
	return []program{
		{name: "mpich", why: "two ranks of MPICH's launcher, gradients added up by MPI_Allreduce", command: []string{"mpiexec.hydra", "-n", "2", inside + "sgd"}, quota: 0.4},
		{name: "shell", why: "a shell that starts a training script and waits for it", command: []string{"sh", "-c", "python3 -u " + inside + "mlp.py; echo ended"}, quota: 0.4},
		{name: "exec", why: "a shell that a training script takes the place of", command: []string{"sh", "-c", "sleep 2; exec python3 -u " + inside + "xgb.py"}, quota: 0.4},
		{name: "fork", why: "a forked pool of Python's multiprocessing", command: []string{"python3", "-u", inside + "pool.py", "fork"}, quota: 0.4},
	}
}

// Times of one run, seconds.
const (
	settleS = 2.0
	freeS   = 8.0
	startS  = 12.0
	helpS   = 20.0 // within which it must have been helped
	afterS  = 8.0
	plainS  = 10.0 // of a helpless program, with and without
)

const (
	goalShare  = 0.95
	goalSlower = 0.99
)

type options struct {
	binary  string
	runs    int
	reached float64 // least share of its speed without a limit
	record  string  // folder for recordings; "": none
	verbose bool
	watch   time.Duration // without a quota, and then with one; 0: all is measured
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := command(ctx, os.Args[1:])
	stop()
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "zoo: %v\n", err)
		os.Exit(1)
	case missed > 0:
		os.Exit(2)
	}
}

func command(ctx context.Context, args []string) (missed int, err error) {
	var o options
	flags := flag.NewFlagSet("zoo", flag.ExitOnError)
	flags.StringVar(&o.binary, "trimtab", "bin/trimtab", "the `FILE` to measure")
	flags.IntVar(&o.runs, "runs", 10, "of each program")
	flags.Float64Var(&o.reached, "reached", goalShare, "the least `SHARE` of its speed without a limit that a program is to reach in each run")
	only := flags.String("only", os.Getenv("ZOO"), "comma-separated programs instead of all")
	dir := flags.String("programs", "test/zoo/programs", "the `FOLDER` of programs, built by make")
	npm := flags.String("npm", ".cache/zoo-npm", "the `FOLDER` of npm's packages, filled by make")
	flags.StringVar(&o.record, "record", "", "`FOLDER` for a recording of each program (trimtab replay)")
	flags.BoolVar(&o.verbose, "v", false, "tell each run")
	flags.DurationVar(&o.watch, "watch", 0, "only watch each program, for so long without its quota and with it: for -record")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	all, err := chosen(*only, o.watch > 0)
	if err != nil {
		return 0, err
	}
	if os.Geteuid() != 0 {
		return 0, errors.New("needs root: the daemon loads BPF programs")
	}
	folder, err := filepath.Abs(*dir)
	if err != nil {
		return 0, err
	}
	packages, err := filepath.Abs(*npm)
	if err != nil {
		return 0, err
	}
	z := &zoo{o: o, dir: folder, npm: packages}
	for _, p := range all {
		m, errProgram := z.measure(ctx, p)
		missed += m
		if errProgram != nil {
			err = errors.Join(err, fmt.Errorf("program %s: %w", p.name, errProgram))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if o.watch > 0 {
		return 0, err
	}
	fmt.Printf("\n%s\n", &z.tally)
	missed += z.tally.missed()
	fmt.Print(howText)
	return missed, err
}

const howText = `
How: a program runs without a quota; then with one, and trimtab looks on (before); then trimtab may act, and after 20 s it is measured (reached); then
without a quota again. Reached is over the mean of the two measurements without. Granted is the time from when trimtab may act to a larger quota.
A program that nothing helps is measured without trimtab's help, with it, and without again: "with" is over the mean of the two. Rates are what programs print.
Class is trimtab's verdict on the starved program; a rate is right within 3 %, or where none is shown; became is its speed helped over starved. Flips are
changes of the verdict while its resources stayed. A run is made again, thrice at most, where others took more than 5 % of the host's CPU time. The slope is that of told over true logarithms of what became. Exit status 2 also where these miss.
`

func chosen(only string, watch bool) ([]program, error) {
	if only == "" {
		return programs(), nil
	}
	var out []program
	known := programs()
	if watch {
		known = append(known, watched()...)
	}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(known, func(p program) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only %q: no such program", name)
		}
		out = append(out, known[i])
	}
	return out, nil
}

type zoo struct {
	o        options
	dir, npm string
	tally    tally
}

func (z *zoo) measure(ctx context.Context, p program) (missed int, err error) {
	name := "zoo-" + p.name
	_ = exec.CommandContext(ctx, "docker", "rm", "--force", name).Run() // what a killed run left; mostly nothing
	c := &cage{p: p, o: z.o, tally: &z.tally}
	z.tally.programs++
	mode := "tune"
	if z.o.watch > 0 {
		mode = "observe"
	}
	args := []string{"--label", "trimtab.mode=" + mode, "--volume", z.dir + ":/zoo:ro", "--volume", z.npm + ":/npm:ro"}
	if p.epoch > 0 {
		args = append(args, "--label", "trimtab.knobs=cpu,memory", "--memory", mebibytes(plenty))
	}
	if p.disk != "" {
		disk, err := rootDisk()
		if err != nil {
			return 0, err
		}
		args = append(args, "--device-read-bps", disk+":"+p.disk)
	}
	startDaemon := func() (err error) {
		c.daemon, err = daemontest.Start(ctx, daemontest.Options{Binary: z.o.binary, Config: "match: [{name: 'zoo-*'}, {name: '*', mode: 'off'}]\n"})
		return err
	}
	if z.o.watch > 0 { // it sees the program start
		if err := startDaemon(); err != nil {
			return 0, err
		}
	}
	c.job, err = workload.Start(ctx, workload.Options{Name: name, Image: zooImage, Command: p.command, Dir: z.dir, DockerArgs: args})
	if err != nil {
		return 0, errors.Join(err, c.endDaemon(ctx))
	}
	defer func() { err = errors.Join(err, c.endDaemon(context.WithoutCancel(ctx)), c.job.Stop()) }()
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := c.job.WaitSteps(waiting, 1); err != nil {
		return 0, err
	}
	if z.o.watch > 0 {
		return 0, c.watch(ctx)
	}
	if c.state, err = c.job.CPUStates(ctx); err != nil {
		return 0, err
	}
	if c.limit, err = c.job.MemoryLimit(ctx); err != nil {
		return 0, err
	}
	if err := startDaemon(); err != nil {
		return 0, err
	}
	switch {
	case p.helpless:
		return c.helpless(ctx)
	case p.epoch > 0:
		return c.cached(ctx)
	}
	return c.starved(ctx)
}
