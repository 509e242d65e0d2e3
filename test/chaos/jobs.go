package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/tuner/originals"
)

// imageName is the engine's image of jobs: this program and nothing else.
const imageName = "trimtab-chaos"

// trainImage is the training image there, from the tar that test/image/build.sh keeps.
const trainImage = "trimtab-chaos-train"

// importTraining makes it.
func (w *world) importTraining(ctx context.Context) error {
	if w.o.train == "" {
		return nil
	}
	file, err := os.Open(w.o.train)
	if err != nil {
		return err
	}
	defer file.Close()
	said, err := w.engine.Run(ctx, file, "import", "--change", "ENV PATH=/usr/local/bin:/usr/bin:/bin", "--change", "ENV LC_ALL=C.UTF-8", "-", trainImage)
	if err != nil {
		return fmt.Errorf("docker import %s: %w: %s", w.o.train, err, said)
	}
	w.scripts, err = filepath.Abs("test/workloads")
	return err
}

// importImage makes the image of this program.
func (w *world) importImage(ctx context.Context) error {
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, dir := range []string{"tmp/", "proc/", "dev/", "etc/"} {
		err = errors.Join(err, archive.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}))
	}
	err = errors.Join(err, archive.WriteHeader(&tar.Header{Name: "chaos", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(binary))}))
	_, errWrite := archive.Write(binary)
	if err := errors.Join(err, errWrite, archive.Close()); err != nil {
		return err
	}
	if said, err := w.engine.Run(ctx, &out, "import", "-", imageName); err != nil {
		return fmt.Errorf("docker import: %w: %s", err, said)
	}
	return nil
}

// job is a container whose owner's values are known.
type job struct {
	name, id string
	pid      int
	cgroup   runtime.Cgroup
	owner    runtime.Values // what its owner set, in the kernel's words
	record   hostConfig     // and in the engine's
	quota    atomic.Int64   // its owner's, in 1/1000 CPU: rights are read beside the faults
	spins    bool           // it always wants all of its quota
	were     []process
	until    time.Time // it is replaced then; zero: it stays
}

// hostConfig is what the engine has stored of a container's limits.
type hostConfig struct {
	quota, period, shares, memory int64
}

// jobSpec says what to start.
type jobSpec struct {
	name   string
	mode   string // the label trimtab.mode
	config hostConfig
	spins  bool
	image  string // imageName if empty
	mounts []string
	args   []string
	// processes is how many to wait for before they are counted.
	processes int
}

// startJob starts a container and notes its owner's values as they stand before trimtab
// has had the time for two readings of it.
func (w *world) startJob(ctx context.Context, s jobSpec) (*job, error) {
	image := s.image
	if image == "" {
		image = imageName
	}
	c := s.config
	args := []string{"run", "-d", "--net=none", "--name", s.name, "--label", "trimtab.mode=" + s.mode, "--label", "trimtab.knobs=cpu,memory",
		"--cpu-period", strconv.FormatInt(c.period, 10), "--cpu-quota", strconv.FormatInt(c.quota, 10),
		"--cpu-shares", strconv.FormatInt(c.shares, 10), "--memory", strconv.FormatInt(c.memory, 10), "--pids-limit", "256"}
	for _, m := range s.mounts {
		args = append(args, "-v", m)
	}
	id, err := w.docker(ctx, append(append(args, image), s.args...)...)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", s.name, err)
	}
	j := &job{name: s.name, id: id, record: c, spins: s.spins}
	j.quota.Store(1000 * c.quota / c.period)
	if err := w.note(ctx, j, s.processes); err != nil {
		return nil, errors.Join(fmt.Errorf("job %s: %w", s.name, err), w.removed(ctx, id))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[s.name] = j
	return j, nil
}

// errSoon: trimtab changed a job before its owner's values were read of it. Another is begun in its place.
var errSoon = errors.New("trimtab has changed it before its owner's values were noted")

// note reads what a job that has just begun is like.
func (w *world) note(ctx context.Context, j *job, processes int) error {
	text, err := w.docker(ctx, "inspect", "--format", "{{.State.Pid}}", j.id)
	if err != nil {
		return err
	}
	if j.pid, err = strconv.Atoi(text); err != nil {
		return err
	}
	if j.cgroup, err = cgroup.Locate("/proc", cgroup.DefaultRoot, j.pid); err != nil {
		return err
	}
	if j.owner, err = cgroup.ReadValues(j.cgroup); err != nil {
		return err
	}
	// After the values: what was read as trimtab's was recorded before. Of files that cannot be read look tells.
	if files, err := w.files(); err == nil && files[j.id].ID.Container != "" {
		return errSoon
	}
	if got := j.owner[runtime.KnobCPUQuota]; got != runtime.Quota(j.record.quota, j.record.period) {
		return fmt.Errorf("it began with a quota of %s, asked for was %d %d", got, j.record.quota, j.record.period)
	}
	for end := time.Now().Add(10 * time.Second); len(j.were) < processes && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		j.were = j.processes()
	}
	if len(j.were) < processes {
		return fmt.Errorf("it has %d processes, not %d", len(j.were), processes)
	}
	return nil
}

// spec is the next job: one that reads more than its memory limit holds, where there is
// none; one that trains, where there is none and PyTorch's image; else one that wants more
// CPU than its quota.
func (w *world) spec(have []*job) jobSpec {
	w.made++
	kinds := map[string]bool{}
	for _, j := range have {
		kind, _, _ := strings.Cut(j.name, "-")
		kinds[kind] = true
	}
	s := jobSpec{mode: "tune", config: hostConfig{quota: 12000 + int64(w.random.IntN(8))*1000, period: 100_000, shares: 512, memory: 256 << 20}}
	switch {
	case !kinds["reader"]:
		s.name, s.args, s.processes = "reader", []string{"/chaos", childRead, "224"}, 1
		s.config.memory = 160 << 20 // beyond what a restore keeps free: 64 MiB above what it holds
	case !kinds["trainer"] && w.o.train != "":
		s.name, s.image, s.mounts, s.processes = "trainer", trainImage, []string{w.scripts + ":/workloads:ro"}, 1
		s.args = []string{"python3", "-u", "/workloads/dataloader.py", "--workers", "1", "--device-ms", "100", "--images", "8"}
		s.config.quota, s.config.memory = 25000, 1<<30
	default:
		s.name, s.args, s.processes = "steps", []string{"/chaos", childStep, "10", "40"}, 1+workers
	}
	s.name = fmt.Sprintf("%s-%d", s.name, w.made)
	return s
}

const neighbourName = "neighbour"

// neighbour always wants its quota, and is only observed.
func neighbour() jobSpec {
	return jobSpec{name: neighbourName, mode: "observe", config: hostConfig{quota: 10000, period: 100_000, shares: 1024, memory: 128 << 20},
		spins: true, args: []string{"/chaos", childWorker, "1000", "0"}, processes: 1}
}

// removeJob takes a job away: from here on it is nobody's concern that it dies.
func (w *world) removeJob(ctx context.Context, j *job) error {
	w.forget(j)
	return w.removed(ctx, j.id)
}

// errEngine: the engine refused a command. While it comes back from a fault it may.
var errEngine = errors.New("the engine refused")

// docker runs a docker command; errors are errEngine.
func (w *world) docker(ctx context.Context, args ...string) (string, error) {
	said, err := w.engine.Run(ctx, nil, args...)
	if err != nil {
		return "", fmt.Errorf("%w: docker %s: %w: %s", errEngine, args[0], err, said)
	}
	return said, nil
}

// removed removes a container that may be gone.
func (w *world) removed(ctx context.Context, name string) error {
	_, err := w.docker(ctx, "rm", "-f", "-v", name)
	if err != nil && (strings.Contains(err.Error(), "No such container") || strings.Contains(err.Error(), "already in progress")) {
		return nil
	}
	return err
}

func (w *world) forget(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, j.name)
}

// processes are those in its control group now.
func (j *job) processes() (out []process) {
	text, _ := os.ReadFile(filepath.Join(j.cgroup.Dir("cpu"), "cgroup.procs")) // gone: none
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			if start, err := startOf(pid); err == nil {
				out = append(out, process{pid, start})
			}
		}
	}
	return out
}

// startOf is field 22 of /proc/PID/stat. A process that has died and that nobody has waited
// for is no process.
func startOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	after := string(text[bytes.LastIndexByte(text, ')')+1:])
	fields := strings.Fields(after)
	const startIndex = 19 // 22, less the two before the state, from 0
	if len(fields) <= startIndex || fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d is dead", pid)
	}
	return strconv.ParseUint(fields[startIndex], 10, 64)
}

// oomKills is how many of its processes the kernel has killed for its memory limit.
func (j *job) oomKills() uint64 {
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		text, _ := os.ReadFile(filepath.Join(j.cgroup.Dir("memory"), name)) // one of them is there
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				kills, _ := strconv.ParseUint(n, 10, 64)
				return kills
			}
		}
	}
	return 0
}

// files are the originals on disk, by container ID. They are read below the failing disk,
// and nothing is set aside: that is the daemon's to do.
func (w *world) files() (map[string]originals.File, error) {
	out := map[string]originals.File{}
	entries, err := os.ReadDir(filepath.Join(w.below, "originals"))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			if strings.HasSuffix(e.Name(), ".corrupt") {
				return nil, fmt.Errorf("%s was set aside", e.Name())
			}
			continue
		}
		data, err := os.ReadFile(filepath.Join(w.below, "originals", e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		f, err := originals.Decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		out[f.ID.Container] = f
	}
	return out, nil
}

// cpus is how many the machine has.
func cpus() float64 { return float64(goruntime.NumCPU()) }
