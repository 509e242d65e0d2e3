package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/test/workloads/gpu"
	"github.com/trimtab/trimtab/tuner/state"
)

// placeIn runs a line of a shell in which `trimtab` asks the daemon d.
func placeIn(t *testing.T, d *daemontest.Daemon, line string) (stdout string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "trimtab() { "+binary(t)+" --socket "+d.Socket+` "$@"; }; `+line)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", line, err, errs.String())
	}
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// TestPlaceForCtr: what is printed for containerd has `ctr run` hand that device to NVIDIA's tool, which a
// stand-in is here. Two starts get two devices.
func TestPlaceForCtr(t *testing.T) {
	node := unequalNode(t)
	d := daemon(t, daemontest.Options{Env: node.Env()})
	engine := runtimetest.NeedContainerd(t, "")
	engine.Start(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-container-cli"), []byte("#!/bin/sh\necho \"$*\" >> "+dir+"/told\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for range 2 { // the first is held then
		words, status := placeIn(t, d, "trimtab place --containerd IMAGE")
		n, ok := strings.CutPrefix(words, "--gpus ")
		if status != 0 || !ok {
			t.Fatalf("%q, status %d", words, status)
		}
		engine.RunByCtr(t, strings.Fields(words)...) // ctr run $(trimtab place --containerd IMAGE) …
		told, err := os.ReadFile(filepath.Join(dir, "told"))
		if err != nil || !strings.Contains(string(told), "--device="+n+" ") {
			t.Errorf("%s: NVIDIA's tool was told %q, %v", words, told, err)
		}
	}
	if told, _ := os.ReadFile(filepath.Join(dir, "told")); !strings.Contains(string(told), "--device=0 ") || !strings.Contains(string(told), "--device=1 ") {
		t.Errorf("two at once: %q", told)
	}
}

// TestPlaceChoosesAndHolds: Docker understands what is printed; two starts at once get two devices, a
// third none. Once a job was met on the fast device, the next of its image is told its rate there.
func TestPlaceChoosesAndHolds(t *testing.T) {
	node := unequalNode(t)
	d := daemon(t, daemontest.Options{Env: node.Env()})
	host := runtimetest.NeedDocker(t)
	name := fmt.Sprintf("trimtab-e2e-%d-place", os.Getpid())
	if out, status := placeIn(t, d, "docker create --name "+name+" $(trimtab place --docker --no-hold "+runtimetest.ImageName+") "+runtimetest.ImageName+" true"); status != 0 {
		t.Fatalf("docker create: %s", out)
	}
	t.Cleanup(func() { host.Run(t, "rm", name) })
	var ids []string
	if err := json.Unmarshal([]byte(host.Run(t, "inspect", "-f", "{{json (index .HostConfig.DeviceRequests 0).DeviceIDs}}", name)), &ids); err != nil || len(ids) != 1 || !strings.HasPrefix(ids[0], "GPU-") {
		t.Errorf("docker was asked for %q, %v", ids, err)
	}
	var chosen [2]string
	var both sync.WaitGroup
	for i := range chosen {
		both.Go(func() { chosen[i], _ = placeIn(t, d, "trimtab place --docker "+runtimetest.ImageName) })
	}
	both.Wait()
	for _, c := range chosen {
		if !strings.HasPrefix(c, "--gpus device=GPU-") || chosen[0] == chosen[1] {
			t.Fatalf("two at once: %q", chosen)
		}
	}
	for _, form := range []string{"--docker", "--docker --share"} { // what is held is nobody's to share
		if out, status := placeIn(t, d, "trimtab place "+form+" x 2>/dev/null"); out != "" || status != 75 {
			t.Errorf("none is free, %s: %q, status %d", form, out, status)
		}
	}
	shown := ""
	for end := time.Now().Add(30 * time.Second); strings.Count(shown, "held for "+runtimetest.ImageName) != 2; time.Sleep(200 * time.Millisecond) {
		if shown, _ = placeIn(t, d, "trimtab gpu idle --all"); time.Now().After(end) {
			t.Fatalf("holds are not shown:\n%s", shown)
		}
	}
	job := started(t, workload.Options{Name: name + "-job", Script: gpu.Script, Args: []string{"/opt/trimtab-vgpu/trainer", "--device", "1", "--kernels", "20", "--kernel-us", "2000", "--sync", "blocking"},
		DockerArgs: append(node.DockerArgs(), "--network", "none", "--label", "trimtab.mode=observe")})
	var image string
	until(t, d, job.Name, "to be known on the fast device", func(c state.Container) bool {
		image = c.Image
		all, err := d.Client().Fingerprints(t.Context())
		return err == nil && slices.ContainsFunc(all, func(k state.Fingerprint) bool {
			return k.Name == job.Name && len(k.Learned.Devices) > 0 && len(k.Identities) > 0
		})
	})
	var command []string
	if err := json.Unmarshal([]byte(host.Run(t, "inspect", "-f", "{{json .Config.Cmd}}", job.Name)), &command); err != nil {
		t.Fatal(err)
	}
	got, err := d.Client().Place(t.Context(), state.PlaceRequest{Jobs: []state.PlaceJob{{Image: image, Args: command}}})
	if err != nil || len(got.Jobs) != 1 {
		t.Fatal(got, err)
	}
	p := got.Jobs[0]
	i := slices.IndexFunc(p.Choices, func(c state.PlaceChoice) bool { return c.Model == "Fast (trimtab)" })
	if i < 0 || p.Choices[i].Rate.How != state.RateMeasured || p.Choices[i].Rate.PerSecond < 20 || !slices.Contains(p.Choices[i].Holders, job.Name) || p.Choices[i].Free {
		t.Errorf("of the device that such a job runs on: %+v", p.Choices)
	}
	if len(p.Evidence) == 0 || p.Evidence[0].Name != job.Name || !slices.Contains([]string{"same command", "same image and words"}, p.Evidence[0].Alike) {
		t.Errorf("evidence %+v", p.Evidence)
	}
	text, _ := placeIn(t, d, "trimtab place "+image)
	t.Log("\n" + text)
}
