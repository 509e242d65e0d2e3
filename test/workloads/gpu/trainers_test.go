package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workload"
)

// timeout ends a trainer that hangs; each is asked for a second or two.
const timeout = 90 * time.Second

func newNode(t *testing.T, devices int) *vgpu.Node {
	t.Helper()
	dir, err := Build(t.Context())
	if errors.Is(err, vgpu.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	shm, err := os.MkdirTemp("/dev/shm", "vgpu-trainers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	node, err := vgpu.NewNode(t.Context(), dir, shm, vgpu.Options{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// run starts a C++ trainer and returns its step lines and all that it printed.
func run(t *testing.T, node *vgpu.Node, binary string, args ...string) ([]workload.Step, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node.Dir.Lib(binary), args...)
	cmd.Env = append(os.Environ(), node.Env()...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", binary, args, err, out.String())
	}
	return steps(out.String()), out.String()
}

func steps(text string) []workload.Step {
	var all []workload.Step
	for line := range strings.Lines(text) {
		if s, ok := workload.ParseStep(strings.TrimSpace(line)); ok {
			all = append(all, s)
		}
	}
	return all
}

// noFaster holds that n steps were logged and took at least so long each: what is
// simulated or burnt cannot go faster on any machine, while a busy one may be slower.
func noFaster(t *testing.T, got []workload.Step, n int, each time.Duration) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d steps were logged, want %d", len(got), n)
	}
	mean := (got[n-1].At - got[0].At) / time.Duration(n-1)
	if mean < each*99/100 {
		t.Errorf("a step took %v, less than the %v that it is made of", mean, each)
	}
}

func TestTrainerTakesTheTimeItIsMadeOf(t *testing.T) {
	node := newNode(t, 2)
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		args []string
		each time.Duration
	}{
		"kernels":                        {[]string{"--kernels", "10", "--kernel-us", "2000"}, 20 * ms},
		"graph":                          {[]string{"--kernels", "10", "--kernel-us", "2000", "--graph"}, 20 * ms},
		"whole graph":                    {[]string{"--kernels", "5", "--kernel-us", "2000", "--accumulate", "2", "--whole-graph", "--ranks", "2", "--allreduce-mib", "1"}, 20 * ms},
		"spin":                           {[]string{"--kernels", "10", "--kernel-us", "2000", "--sync", "spin"}, 20 * ms},
		"blocking":                       {[]string{"--kernels", "10", "--kernel-us", "2000", "--sync", "blocking"}, 20 * ms},
		"event":                          {[]string{"--kernels", "10", "--kernel-us", "2000", "--sync", "event"}, 20 * ms},
		"device":                         {[]string{"--kernels", "10", "--kernel-us", "2000", "--sync", "device"}, 20 * ms},
		"item":                           {[]string{"--kernels", "10", "--kernel-us", "2000", "--sync", "item"}, 20 * ms},
		"tiny":                           {[]string{"--tiny"}, 10 * ms},
		"accumulated":                    {[]string{"--kernels", "5", "--kernel-us", "1000", "--accumulate", "4"}, 20 * ms},
		"host":                           {[]string{"--kernels", "2", "--kernel-us", "100", "--host-ms", "20"}, 20 * ms},
		"loaders":                        {[]string{"--kernels", "2", "--kernel-us", "100", "--loader-threads", "1", "--loader-ms", "20", "--queue", "1"}, 18 * ms},
		"pageable copies":                {[]string{"--kernels", "2", "--kernel-us", "1000", "--h2d-mib", "16", "--pageable"}, 2 * ms},
		"pinned copies":                  {[]string{"--kernels", "2", "--kernel-us", "1000", "--h2d-mib", "16", "--d2h-mib", "1"}, 2 * ms},
		"copies ahead":                   {[]string{"--kernels", "2", "--kernel-us", "1000", "--h2d-mib", "16", "--ahead"}, 2 * ms},
		"checkpoints":                    {[]string{"--kernels", "2", "--kernel-us", "1000", "--checkpoint-every", "5", "--checkpoint-mib", "4", "--checkpoint-dir", t.TempDir()}, 2 * ms},
		"checkpoints by a second thread": {[]string{"--kernels", "2", "--kernel-us", "1000", "--checkpoint-every", "5", "--checkpoint-mib", "4", "--saver", "--checkpoint-dir", t.TempDir()}, 2 * ms},
		"evaluations":                    {[]string{"--kernels", "2", "--kernel-us", "1000", "--eval-every", "5", "--eval-batches", "10", "--eval-kernels", "5"}, 9 * ms},
		"four in a bucket":               {[]string{"--kernels", "2", "--kernel-us", "1000", "--ranks", "2", "--allreduce-mib", "2", "--buckets", "4"}, 2 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := run(t, node, Trainer, append(tc.args, "--steps", "20")...)
			noFaster(t, got, 20, tc.each)
		})
	}
}

func TestTrainerWithTheRuntimeWithin(t *testing.T) {
	got, _ := run(t, newNode(t, 2), TrainerStatic, "--kernels", "10", "--kernel-us", "1000", "--steps", "20", "--ranks", "2",
		"--allreduce-mib", "1")
	noFaster(t, got, 20, 10*time.Millisecond)
}

func TestTrainerChangesItsBottleneck(t *testing.T) {
	got, text := run(t, newNode(t, 1), Trainer, "--kernels", "2", "--kernel-us", "500", "--phase-change-at", "1", "--kernel-us2", "10000",
		"--seconds", "2.5")
	if !strings.Contains(text, "note phase 2 at ") {
		t.Fatalf("the second phase is not noted:\n%s", text)
	}
	if last := got[len(got)-1]; last.Mean < 20*time.Millisecond {
		t.Errorf("the last step took %v, want the second phase's 20 ms or more", last.Mean)
	}
}

// All ranks go at the slow one's pace, and each has a log of its own.
func TestSlowRankHoldsAllRanks(t *testing.T) {
	for _, on := range []string{"host", "device", "sleep"} {
		t.Run(on, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "steps")
			got, _ := run(t, newNode(t, 3), Trainer, "--kernels", "2", "--kernel-us", "500", "--steps", "20", "--ranks", "3", "--allreduce-mib",
				"0.5", "--slow-rank", "1", "--slow-ms", "25", "--slow-on", on, "--log", log)
			noFaster(t, got, 20, 25*time.Millisecond)
			own, err := os.ReadFile(log + ".2")
			if err != nil {
				t.Fatal(err)
			}
			noFaster(t, steps(string(own)), 20, 25*time.Millisecond)
		})
	}
}

// job runs a Python trainer in a container until it has done some steps.
func job(t *testing.T, node *vgpu.Node, script string, args ...string) *workload.Job {
	t.Helper()
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	j, err := workload.Start(t.Context(), workload.Options{Name: fmt.Sprintf("vgpu-trainer-%d-%d", os.Getpid(), time.Now().UnixNano()),
		Script: script, Args: args, DockerArgs: node.DockerArgs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Stop() })
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := j.WaitSteps(ctx, 20); err != nil {
		t.Fatal(err)
	}
	return j
}

func TestTrainersInContainers(t *testing.T) {
	node := newNode(t, 1)
	const ms = time.Millisecond
	device := []string{"--kernels", "10", "--kernel-us", "2000"}
	for name, tc := range map[string]struct {
		script string
		args   []string
		each   time.Duration
	}{
		"DataLoader":                  {"gpu/trainer.py", device, 20 * ms},
		"DataLoader, pinned":          {"gpu/trainer.py", append([]string{"--pin", "--autograd"}, device...), 20 * ms},
		"DataLoader, accumulated":     {"gpu/trainer.py", append([]string{"--accumulate", "2", "--spin"}, device...), 40 * ms},
		"DataLoader, no workers":      {"gpu/trainer.py", append([]string{"--workers", "0", "--decode-ms", "15"}, device...), 35 * ms},
		"NumPy":                       {"gpu/numpy_trainer.py", device, 20 * ms},
		"NumPy without device":        {"gpu/numpy_trainer.py", []string{"--kernels", "0", "--host-ms", "20"}, 20 * ms},
		"C++ through the script":      {Script, append([]string{"/opt/trimtab-vgpu/" + Trainer}, device...), 20 * ms},
		"C++ with the runtime within": {Script, append([]string{"/opt/trimtab-vgpu/" + TrainerStatic}, device...), 20 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(t, node, tc.script, tc.args...)
			noFaster(t, j.Steps()[:20], 20, tc.each)
		})
	}
}

func TestGlooRanks(t *testing.T) {
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	args := []string{"--spawn", "2", "--mib", "0.25", "--compute-ms", "5", "--slow-rank", "1", "--slow-ms", "20"}
	for _, extra := range [][]string{nil, {"--slow-sleep"}} {
		j, err := workload.Start(t.Context(), workload.Options{Name: fmt.Sprintf("gloo-%d-%d", os.Getpid(), time.Now().UnixNano()),
			Script: "gloo.py", Args: append(slices.Clone(args), extra...)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Stop() })
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		if err := j.WaitSteps(ctx, 20); err != nil {
			t.Fatal(err)
		}
		noFaster(t, j.Steps()[:20], 20, 25*time.Millisecond)
	}
}
