package crash

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// storedEnv is how many rounds TestStoredValues makes.
const storedEnv = "TRIMTAB_STORED"

// TestStoredValues: where containerd's socket cannot be reached, trimtab writes by Docker's
// API, and Docker stores it. Whatever ends the container's life then, at any instant of what
// follows, `docker inspect` shows the owner's values in the end, or what somebody stored in
// between, a hundred times of a hundred.
func TestStoredValues(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	host.NeedImage(t)
	rounds, seed := numberFrom(t, storedEnv, 100), numberFrom(t, seedEnv, 20261124)
	t.Logf("%s=%d", seedEnv, seed)
	random := rand.New(rand.NewPCG(seed, 1))
	ends := storedEnds()
	right, kills := uint64(0), 0
	for round := range rounds {
		end := ends[round%uint64(len(ends))]
		r := newStoredRound(t, host, random)
		if r.run(end) {
			right++
		}
		kills += r.kills
		if t.Failed() {
			t.Fatalf("round %d of %d: %s", round+1, rounds, end.name)
		}
	}
	t.Logf("the owner's values in %d of %d rounds, %d ways, %d kills", right, rounds, len(ends), kills)
	if kills == 0 && rounds >= uint64(len(ends)) {
		t.Error("nothing was killed")
	}
}

// storedEnd is what happens to a container that trimtab has changed through Docker's API.
type storedEnd struct {
	name string
	do   func(r *storedRound)
	// foreign: somebody stored another quota; it is to stay.
	foreign bool
}

func storedEnds() []storedEnd {
	return []storedEnd{
		{"restarted by hand", func(r *storedRound) { r.docker("restart", "-t", "0"); r.settle() }, false},
		{"restarted by hand while trimtab is away", func(r *storedRound) { r.docker("restart", "-t", "0"); r.start() }, false},
		{"restarted by its policy", func(r *storedRound) { r.die(); r.settle() }, false},
		{"restarted by its policy, and planned for at once", func(r *storedRound) { r.die(); r.raise(1.7); r.settle() }, false},
		{"rebooted", func(r *storedRound) { r.reboot(); r.start() }, false},
		{"stopped", func(r *storedRound) { r.docker("stop", "-t", "0"); r.settle() }, false},
		{"stopped, purged", func(r *storedRound) { r.docker("stop", "-t", "0"); r.purge() }, false},
		{"restarted, purged from the files alone", func(r *storedRound) { r.docker("restart", "-t", "0"); r.purge() }, false},
		{"purged while it runs", func(r *storedRound) { r.purge() }, false},
		{"purged through containerd", func(r *storedRound) { r.through(""); r.purge() }, false},
		{"stopped, started, stopped", func(r *storedRound) {
			r.docker("stop", "-t", "0")
			r.docker("start")
			r.docker("stop", "-t", "0")
			r.settle()
		}, false},
		{"updated by its owner, then restarted", func(r *storedRound) {
			r.docker("update", "--cpu-quota", "60000")
			r.docker("restart", "-t", "0")
			r.settle()
		}, true},
		{"updated while it is stopped", func(r *storedRound) {
			r.docker("stop", "-t", "0")
			r.docker("update", "--cpu-quota", "60000")
			r.docker("start")
			r.settle()
		}, true},
		{"another of its values is updated, then restarted", func(r *storedRound) {
			r.docker("update", "--memory", "200m", "--memory-swap", "400m")
			r.docker("restart", "-t", "0")
			r.settle()
		}, false},
		{"killed", func(r *storedRound) { r.kill(false); r.start() }, false},
		{"killed, then restarted by hand", func(r *storedRound) { r.kill(false); r.docker("restart", "-t", "0"); r.start() }, false},
		{"killed, started, killed at that, then stopped", func(r *storedRound) {
			r.kill(false)
			r.kill(true)
			r.docker("stop", "-t", "0")
			r.start()
		}, false},
		{"killed, then updated by its owner, and rebooted", func(r *storedRound) {
			r.kill(false)
			r.docker("update", "--cpu-quota", "60000")
			r.docker("restart", "-t", "0")
			r.start()
		}, true},
		{"killed, purged from the files alone", func(r *storedRound) { r.kill(false); r.purge() }, false},
	}
}

// storedRound is one container, changed through Docker's API.
type storedRound struct {
	t      *testing.T
	host   runtimetest.DockerHost
	state  string
	id     string
	engine *docker.Engine
	acts   *actuator.Actuator
	c      runtime.Container
	owners string
	kills  int
	random *rand.Rand
}

const inspected = "{{.HostConfig.CpuQuota}} {{.HostConfig.CpuPeriod}} {{.HostConfig.NanoCpus}} {{.HostConfig.CpuShares}}"

func newStoredRound(t *testing.T, host runtimetest.DockerHost, random *rand.Rand) *storedRound {
	r := &storedRound{t: t, host: host, state: t.TempDir(), random: random}
	limit := []string{"--cpu-quota=40000"}
	if random.IntN(3) == 0 {
		limit = []string{"--cpu-quota=20000", "--cpu-period=50000"}
	}
	r.id = host.Start(t, append(limit, "--restart=always", "--memory=128m", "--memory-swap=256m")...)
	r.owners = r.inspect()
	r.through(hiddenContainerd)
	r.c = runtimetest.Find(t, r.engine, r.id)
	r.raise(1.5)
	if r.inspect() == r.owners {
		t.Fatalf("Docker stores %q as before: nothing is tested", r.owners)
	}
	return r
}

// through has trimtab reach containers by another socket.
func (r *storedRound) through(containerd string) {
	r.t.Helper()
	e, err := docker.New(docker.Options{ContainerdAddress: containerd})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = e.Close() })
	r.engine = e
	r.acts = actuator.New(actuator.Options{Engines: map[string]actuator.Engine{docker.EngineName: e},
		Store: originals.New(originals.Options{Dir: filepath.Join(r.state, "originals")}), Logger: slog.New(slog.DiscardHandler)})
}

func (r *storedRound) docker(args ...string) { r.t.Helper(); r.host.Run(r.t, append(args, r.id)...) }

func (r *storedRound) inspect() string {
	r.t.Helper()
	return strings.TrimSpace(r.host.Run(r.t, "inspect", "-f", inspected, r.id))
}

// raise asks for a plan on the life that runs now; it may be refused.
func (r *storedRound) raise(cpus float64) {
	r.t.Helper()
	if live, ok := r.running(); ok {
		r.c = live
	}
	now, err := r.engine.Read(r.t.Context(), r.c)
	if err != nil {
		return
	}
	_, periodUs, err := runtime.ParseQuota(now[runtime.KnobCPUQuota])
	if err != nil {
		r.t.Fatal(err)
	}
	r.acts.Apply(r.t.Context(), actuator.Order{Items: []actuator.Item{{Container: r.c,
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}},
		Changes:   []policies.Change{{Knob: runtime.KnobCPUQuota, From: now[runtime.KnobCPUQuota], To: runtime.QuotaFromCPUs(cpus, periodUs)}}}}})
}

// storedPoints is more fault points than a start has, and fewer than a life.
const storedPoints = 12

// kill has another process act, or begin as a daemon does, and kills it at any instant, in a write to Docker too.
// What it had asked of Docker may come to pass behind its end.
func (r *storedRound) kill(recovering bool) {
	r.t.Helper()
	live, runs := r.running()
	if !runs {
		r.t.Fatal("it does not run")
	}
	o := orders{State: r.state, Containers: []runtime.Container{live}, Seed: r.random.Uint64(), Recover: recovering, QuotaOnly: true,
		Containerd: hiddenContainerd, Point: 1 + r.random.IntN(storedPoints), Delay: time.Duration(r.random.IntN(40)) * time.Millisecond}
	text, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	trace, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer trace.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), ordersEnv+"="+string(text)), []*os.File{trace}
	out, err := cmd.CombinedOutput()
	if ended := err == nil && recovering; !ended && !killed(err) || ctx.Err() != nil {
		r.t.Fatalf("a child with %s: %v: %s", text, err, out)
	}
	if killed(err) {
		r.kills++
	}
}

// hiddenContainerd is a socket that is not there.
const hiddenContainerd = "/nonexistent/containerd.sock"

// die ends the container's init; its policy starts it again.
func (r *storedRound) die() {
	r.t.Helper()
	before := r.host.Run(r.t, "inspect", "-f", "{{.RestartCount}}", r.id)
	if process, err := os.FindProcess(r.c.InitPID); err != nil || process.Kill() != nil {
		r.t.Fatalf("process %d cannot be ended", r.c.InitPID)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r.host.Run(r.t, "inspect", "-f", "{{.RestartCount}}", r.id) != before {
			if _, runs := r.running(); runs {
				return
			}
		}
	}
	r.t.Fatal("its policy did not start it again")
}

// reboot makes the file that of a kernel before.
func (r *storedRound) reboot() {
	r.t.Helper()
	r.docker("restart", "-t", "0")
	files, err := filepath.Glob(filepath.Join(r.state, "originals", "*.json"))
	if err != nil || len(files) != 1 {
		r.t.Fatalf("%v, %v", files, err)
	}
	store := originals.New(originals.Options{Dir: filepath.Join(r.state, "originals")})
	all, err := store.List()
	if err != nil {
		r.t.Fatal(err)
	}
	was := all[0] // anew: what was read of an identity is written as it came
	f := originals.File{Version: was.Version, ID: was.ID, Name: was.Name, InitPID: was.InitPID, Cgroup: was.Cgroup, GPUs: was.GPUs, Pending: was.Pending, Knobs: was.Knobs}
	f.ID.Boot = "00000000-1111-4222-8333-444444444444"
	if err := store.Save(f); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(files[0]); err != nil {
		r.t.Fatal(err)
	}
}

func (r *storedRound) running() (runtime.Container, bool) {
	_, live, err := r.engine.Stored(r.t.Context(), r.c)
	if err != nil {
		r.t.Fatal(err)
	}
	if live == nil {
		return runtime.Container{}, false
	}
	return *live, true
}

// settle is what a daemon does that was there: it hears that the life ended.
func (r *storedRound) settle() {
	r.t.Helper()
	store := originals.New(originals.Options{Dir: filepath.Join(r.state, "originals")})
	files, err := store.List()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		if live, ok := r.running(); ok && live.ID == f.ID {
			r.acts.Restore(r.t.Context(), live, "stop")
			continue
		}
		if _, err := r.acts.Gone(r.t.Context(), f.ID); err != nil {
			r.t.Error(err)
		}
	}
}

// start is what a daemon does that comes. One that takes over keeps what was killed between two writes, and no
// more; the next, which does not, has it go back.
func (r *storedRound) start() {
	r.t.Helper()
	rec := actuator.Recovery{Synced: []string{docker.EngineName}, Handover: r.random.IntN(2) == 0}
	if live, ok := r.running(); ok {
		rec.Running = append(rec.Running, live)
	}
	recover := func() {
		if _, err := r.acts.Recover(context.WithoutCancel(r.t.Context()), rec); err != nil {
			r.t.Error(err)
		}
	}
	if recover(); !rec.Handover {
		return
	}
	kept, err := originals.New(originals.Options{Dir: filepath.Join(r.state, "originals")}).List()
	for _, f := range kept {
		if why := f.Unsettled(); why != "" || len(rec.Running) != 1 || rec.Running[0].ID != f.ID {
			r.t.Errorf("a daemon that takes over keeps %s: %s", f.Name, why)
		}
	}
	if err != nil {
		r.t.Error(err)
	}
	rec.Handover = false
	recover()
}

// purge is `trimtab restore --offline`.
func (r *storedRound) purge() {
	r.t.Helper()
	if _, err := r.acts.RestoreAll(r.t.Context(), nil, "offline"); err != nil {
		r.t.Error(err)
	}
}

// run makes one end, and says whether all is as it should be.
func (r *storedRound) run(end storedEnd) bool {
	end.do(r)
	want := r.owners
	if end.foreign {
		fields := strings.Fields(want)
		fields[0] = "60000"
		want = strings.Join(fields, " ")
	}
	if got := r.inspect(); got != want {
		r.t.Errorf("%s: docker inspect shows quota, period, nano CPUs and shares of %s, want %s", end.name, got, want)
	}
	if live, ok := r.running(); ok {
		stands, err := r.engine.Read(r.t.Context(), live)
		record, _, errRecord := r.engine.Stored(r.t.Context(), live)
		if err != nil || errRecord != nil || !runtime.KnobCPUQuota.Same(record[runtime.KnobCPUQuota], stands[runtime.KnobCPUQuota]) {
			r.t.Errorf("%s: the kernel holds %s, Docker %s (%v, %v)", end.name, stands[runtime.KnobCPUQuota], record[runtime.KnobCPUQuota], err, errRecord)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.state, "originals", "*.json")); len(left) > 0 {
		r.t.Errorf("%s: originals stay: %v", end.name, left)
	}
	r.host.Remove(r.t, r.id)
	return !r.t.Failed()
}
