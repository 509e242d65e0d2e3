package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/runtime/shares"
	"github.com/trimtab/trimtab/tuner/config"
)

// reachTimeout bounds the look at each engine.
const reachTimeout = 5 * time.Second

// examineEngines connects to each and finds its write path. One that does not
// answer is broken only where no other does.
func examineEngines(ctx context.Context, cfg config.Config) []finding {
	all, err := openEngines(cfg, nil)
	if err != nil {
		return []finding{grade("engines", err, levelBroken, "", "correct docker.host and containerd.address in the config")}
	}
	defer all.Close()
	var out []finding
	answered := false
	for _, e := range all {
		found, ok := examineEngine(ctx, cfg, e)
		out, answered = append(out, found...), answered || ok
	}
	for i := range out {
		if out[i].Level == levelBroken && answered {
			out[i].Level = levelDegraded
		}
	}
	return out
}

func examineEngine(ctx context.Context, cfg config.Config, e runtime.Engine) (out []finding, ok bool) {
	address, hint := cfg.Docker.Host, "start Docker (`systemctl start docker`), or set docker.host in the config; on a host with containerd alone: docker.enabled: false, containerd.enabled: true"
	if e.Name() == containerd.EngineName {
		address, hint = cfg.Containerd.Address, "start containerd (`systemctl start containerd`), or set containerd.address in the config"
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	running, err := listRunning(ctx, e)
	if err != nil {
		return []finding{grade(e.Name(), err, levelBroken, "", hint)}, false
	}
	text := fmt.Sprintf("reached at %s, %d running containers", address, len(running))
	kubernetes := 0
	for _, c := range running {
		if c.Kubernetes {
			kubernetes++
		}
	}
	if kubernetes > 0 {
		text += fmt.Sprintf(", %d of them Kubernetes': observed only", kubernetes)
	}
	out = []finding{{What: e.Name(), Level: levelOK, Text: text}}
	if d, isDocker := e.(*docker.Engine); isDocker && len(running) == 0 {
		socket, err := d.Containerd(ctx)
		return append(out, grade("writes", err, levelDegraded, "containerd answers at "+socket+"; whether it is Docker's a running container will tell", writesHint)), true
	}
	if len(running) == 0 {
		return out, true
	}
	writes := finding{What: "writes", Level: levelOK, Text: e.WritePath(ctx, running[0])}
	if e.Name() == docker.EngineName && !strings.HasPrefix(writes.Text, "containerd/") {
		writes.Level, writes.Hint = levelDegraded, writesHint
	}
	return append(out, writes), true
}

const writesHint = "let trimtab reach containerd's socket (docker.containerd in the config): Docker's own API cannot take back all that it sets"

// examineShares tells what CPU shares, Docker's --cpu-shares, become on this host:
// versions of runtimes convert them in different ways, so each that is here is tried.
func examineShares(ctx context.Context) []finding {
	if os.Geteuid() != 0 {
		return nil
	}
	var out []finding
	for _, name := range []string{"runc", "crun"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		got, err := shares.Calibrate(ctx, path)
		f := grade("shares", err, levelDegraded, filepath.Base(path)+": "+got.String(), "ratios of CPU weights are not known; see the error")
		out = append(out, f)
	}
	return out
}
