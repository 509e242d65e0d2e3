package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/state"
)

// No GPU is needed: opening a node of NVIDIA's major number gives EPERM where the
// control group refuses it, and ENXIO where it is allowed and no driver answers.
const gpuRule = "c 195:* rwm"

// gpuHolder is a real container that holds a GPU as far as its rules go.
type gpuHolder struct {
	host   runtimetest.DockerHost
	id     string
	name   string
	cgroup runtime.Cgroup
}

func holdGPU(t testing.TB, rule string, labels ...string) gpuHolder {
	t.Helper()
	host := runtimetest.NeedDocker(t)
	args := []string{"--device-cgroup-rule", rule}
	for _, l := range labels {
		args = append(args, "--label", l)
	}
	return holderOf(t, host, host.Start(t, args...))
}

// holderOf is a container that runs.
func holderOf(t testing.TB, host runtimetest.DockerHost, id string) gpuHolder {
	t.Helper()
	h := gpuHolder{host: host, id: id}
	h.name = strings.TrimPrefix(h.host.Run(t, "inspect", "--format", "{{.Name}}", h.id), "/")
	pid, err := strconv.Atoi(h.host.Run(t, "inspect", "--format", "{{.State.Pid}}", h.id))
	if err != nil {
		t.Fatal(err)
	}
	if h.cgroup, err = cgroup.Locate("/proc", cgroup.DefaultRoot, pid); err != nil {
		t.Fatal(err)
	}
	if h.cgroup.V1["devices"] == "" {
		t.Skip("needs v1's devices controller")
	}
	h.host.Run(t, "exec", h.id, "mknod", "/tmp/gpu", "c", "195", "255")
	return h
}

// opens says what a process in the container finds.
func (h gpuHolder) opens(t testing.TB) bool {
	t.Helper()
	out := h.host.Run(t, "exec", h.id, "sh", "-c", "cat /tmp/gpu 2>&1; true")
	switch {
	case strings.Contains(out, "Operation not permitted"):
		return false
	case strings.Contains(out, "No such device or address"):
		return true
	}
	t.Fatalf("an open says %q", out)
	return false
}

func (h gpuHolder) list(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.cgroup.V1["devices"], "devices.list"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	slices.Sort(lines)
	return lines
}

// lose takes the GPU away, as a daemon-reload or anybody does.
func (h gpuHolder) lose(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.cgroup.V1["devices"], "devices.deny"), []byte(gpuRule), 0); err != nil {
		t.Fatal(err)
	}
}

// known waits until a daemon remembers what a container could reach.
func known(t testing.TB, d *daemontest.Daemon, h gpuHolder) {
	t.Helper()
	path := filepath.Join(d.Dir, "state", "gpu-access.json")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), h.id[:16]) {
			return
		}
	}
	t.Fatalf("not remembered\n%s", d.Log())
}

func wantOpens(t *testing.T, d *daemontest.Daemon, h gpuHolder, when string) {
	t.Helper()
	until(t, d, h.name, when+": repaired, and shown as such", func(c state.Container) bool { return c.GPULost == "" && h.opens(t) })
}

func TestLostGPUAccessIsRepaired(t *testing.T) {
	tuned := holdGPU(t, gpuRule, "trimtab.mode=tune")
	observed := holdGPU(t, gpuRule, "trimtab.mode=observe")
	plain := holdGPU(t, gpuRule)
	never := holdGPU(t, "c 195:* m", "trimtab.mode=tune") // nodes may be made, never opened
	d := daemon(t, daemontest.Options{})
	for _, h := range []gpuHolder{tuned, observed, plain} {
		known(t, d, h)
	}
	before := tuned.list(t)

	for _, h := range []gpuHolder{tuned, observed, plain} {
		h.lose(t)
	}
	tuned.host.Run(t, "update", "--cpus", "1.5", tuned.id) // somebody works on its limits meanwhile
	wantOpens(t, d, tuned, "enrolled")
	if now := tuned.list(t); !slices.Equal(now, before) {
		t.Errorf("its rules are %v, were %v", now, before)
	}
	for h, why := range map[*gpuHolder]string{&observed: "repairGPUAccess: true", &plain: "neither enrolled nor named", &never: "never saw it"} {
		until(t, d, h.name, "told of", func(c state.Container) bool { return strings.Contains(c.GPULost, why) })
		if h.opens(t) {
			t.Errorf("%s was given access", h.name)
		}
	}

	// The config allows more while the daemon runs.
	config, err := os.ReadFile(filepath.Join(d.Dir, "trimtab.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, "trimtab.yaml"), append(config, "repairGPUAccess: true\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wantOpens(t, d, observed, "observed, repairGPUAccess: true")
	if plain.opens(t) || never.opens(t) {
		t.Error("repairGPUAccess: true reached a container that nobody named, or gave what was never there")
	}

	// Lost while no daemon runs.
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	tuned.lose(t)
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOpens(t, d, tuned, "after kill -9")

	records, err := d.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, r := range records {
		if r.Name == tuned.name && (r.Kind == state.RecordGPURepair || r.Kind == state.RecordGPULost) {
			told = append(told, string(r.Kind))
		}
	}
	if want := []string{"gpu-lost", "heal", "gpu-lost", "heal"}; !slices.Equal(told, want) {
		t.Errorf("history tells %v, want %v", told, want)
	}
}

// TestLostToAProgramIsRepaired is v2's way in the v2 tree of a hybrid host.
func TestLostToAProgramIsRepaired(t *testing.T) {
	h := holdGPU(t, gpuRule, "trimtab.mode=tune")
	if h.cgroup.Unified == "" {
		t.Skip("needs a cgroup2 tree")
	}
	attachRefusing(t, h.cgroup.Unified, 1<<20) // as a runtime's, it refuses nothing that counts
	d := daemon(t, daemontest.Options{})
	known(t, d, h)
	for range 2 {
		attachRefusing(t, h.cgroup.Unified, 195)
		wantOpens(t, d, h, "program")
	}
	records, err := d.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	repaired := 0
	for _, r := range records {
		if r.Kind == state.RecordGPURepair && strings.Contains(r.Text, "its device program") {
			repaired++
		}
	}
	if repaired != 2 {
		t.Errorf("history tells of %d repairs: %+v", repaired, records)
	}
}

// attachRefusing attaches a program that refuses one major number.
func attachRefusing(t *testing.T, dir string, major int32) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, License: "Apache", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 4, asm.Word),
		asm.Mov.Imm(asm.R0, 1),
		asm.JNE.Imm(asm.R2, major, "end"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return().WithSymbol("end"),
	}})
	if err != nil {
		t.Skipf("needs device programs: %v", err)
	}
	defer p.Close()
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: p, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI}); err != nil {
		t.Fatal(err)
	}
}

// TestForeignWriterOfRules: somebody who takes the GPU away again and again meets a
// bounded rate, and a container that dies in the middle is no trouble.
func TestForeignWriterOfRules(t *testing.T) {
	h := holdGPU(t, gpuRule, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{})
	known(t, d, h)
	end := time.Now().Add(20 * time.Second)
	for time.Now().Before(end) {
		h.lose(t)
		time.Sleep(200 * time.Millisecond)
	}
	until(t, d, h.name, "told of", func(c state.Container) bool { return strings.Contains(c.GPULost, "again and again") })
	status, err := d.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.Totals.GPURepairs {
		if c.Result == "repaired" && c.Value > 6 {
			t.Errorf("%v repairs in 20 s", c.Value)
		}
	}
	h.host.Run(t, "kill", h.id)
	h.host.Run(t, "wait", h.id)
	time.Sleep(3 * time.Second)
	if strings.Contains(d.Log(), "level=ERROR") {
		t.Errorf("a container that ended is an error\n%s", d.Log())
	}
}

func TestDoctorGPU(t *testing.T) {
	h := holdGPU(t, gpuRule)
	d := daemon(t, daemontest.Options{})
	out, err := d.Run(t.Context(), "doctor", "--gpu", "--output", "json")
	if err != nil && !strings.Contains(err.Error(), "exit status 1") {
		t.Fatal(err)
	}
	if !strings.Contains(out, fmt.Sprintf("%q", h.name)) || !strings.Contains(out, `"risk": "none"`) {
		t.Errorf("%s", out)
	}
	h.lose(t) // it is not enrolled: nobody repairs it
	out, err = d.Run(t.Context(), "doctor", "--gpu")
	if err == nil || !strings.Contains(out, "lost") || !strings.Contains(out, "restart the container") {
		t.Errorf("%v\n%s", err, out)
	}
}

// BenchmarkTimeToRepair measures from the loss to the rule's return, at random points of
// the daemon's second.
func BenchmarkTimeToRepair(b *testing.B) {
	h := holdGPU(b, gpuRule, "trimtab.mode=tune")
	var took []time.Duration
	d := benchDaemon(b)
	known(b, d, h)
	for i := 0; b.Loop(); i++ {
		time.Sleep(10*time.Second + time.Duration(i*137%1000)*time.Millisecond) // below the rate that is bounded
		h.lose(b)
		lost := time.Now()
		for !slices.Contains(h.list(b), gpuRule) {
			if time.Since(lost) > time.Minute {
				b.Fatalf("not repaired\n%s", d.Log())
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(lost))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "max-ms")
}

func benchDaemon(b *testing.B) *daemontest.Daemon {
	b.Helper()
	path := os.Getenv("TRIMTAB")
	if path == "" {
		path = "../../bin/trimtab"
	}
	d, err := daemontest.Start(b.Context(), daemontest.Options{Binary: path})
	if err != nil {
		b.Skipf("needs a built trimtab (make build): %v", err)
	}
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	return d
}
