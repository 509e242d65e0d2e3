// Package shares finds out what an OCI runtime makes of CPU shares on this host.
//
// On v1 shares are the kernel's own. On v2 the runtime converts them to a weight:
// linearly before runc 1.3.2 and crun 1.23, quadratically since, so that 1024 is 39
// or 100. Which one can only be tried: a container is made with shares, its weight
// is read, and it is removed without having run anything.
package shares

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// timeout bounds each call of the runtime; making a container takes some 50 ms.
const timeout = 20 * time.Second

// Point is one pair that was measured.
type Point struct {
	Shares int64
	Weight runtime.Value // what stands: shares on v1, cpu.weight on v2
}

// Calibration is what shares become.
type Calibration struct {
	Mode   runtime.CgroupMode
	Points []Point
}

// String is the calibration in a line: "shares 512, 1024, 2048 stand as ...".
func (c Calibration) String() string {
	var asked, stands []string
	native := true
	for _, p := range c.Points {
		asked = append(asked, strconv.FormatInt(p.Shares, 10))
		stands = append(stands, string(p.Weight))
		native = native && runtime.IntValue(p.Shares) == p.Weight
	}
	if native {
		return fmt.Sprintf("shares %s stand as they are (cgroups %s)", strings.Join(asked, ", "), c.Mode)
	}
	text := fmt.Sprintf("shares %s become weights %s (cgroups %s)", strings.Join(asked, ", "), strings.Join(stands, ", "), c.Mode)
	return text + c.ratio()
}

// ratio tells what twice the shares buy at 1024, where defaults are.
func (c Calibration) ratio() string {
	weights := make(map[int64]int64)
	for _, p := range c.Points {
		weights[p.Shares], _ = p.Weight.Int()
	}
	if weights[1024] == 0 || weights[2048] == 0 {
		return ""
	}
	return fmt.Sprintf("; twice 1024 buys %.2f times the weight", float64(weights[2048])/float64(weights[1024]))
}

// Calibrate makes one container with the runtime at path, of no use and never
// started, and changes its shares. It needs root.
func Calibrate(ctx context.Context, path string) (Calibration, error) {
	dir, err := os.MkdirTemp("", "trimtab-shares-")
	if err != nil {
		return Calibration{}, err
	}
	defer os.RemoveAll(dir)
	p := probe{path: path, dir: dir, id: "trimtab-shares-" + rand.Text()}
	out, err := p.measure(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if removeErr := p.run(ctx, "delete", "--force", p.id); err == nil {
		err = removeErr
	}
	if err != nil {
		return Calibration{}, fmt.Errorf("what CPU shares become by %s: %w", path, err)
	}
	return out, nil
}

// probe is a container that is made and removed.
type probe struct{ path, dir, id string }

func (p probe) measure(ctx context.Context) (Calibration, error) {
	if err := p.create(ctx); err != nil {
		return Calibration{}, err
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "pid"))
	if err != nil {
		return Calibration{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return Calibration{}, err
	}
	cg, err := cgroup.Locate("/proc", cgroup.DefaultRoot, pid)
	if err != nil {
		return Calibration{}, err
	}
	out := Calibration{Mode: cg.Mode}
	for _, n := range []int64{2, 512, 1024, 2048, 8192} {
		if err := p.run(ctx, "update", "--cpu-share", strconv.FormatInt(n, 10), p.id); err != nil {
			return Calibration{}, err
		}
		values, err := cgroup.ReadValues(cg)
		if err != nil {
			return Calibration{}, err
		}
		out.Points = append(out.Points, Point{Shares: n, Weight: values[runtime.KnobCPUWeight]})
	}
	return out, nil
}

// create makes the container: its process is this program, which stands ready in
// it and is never executed.
func (p probe) create(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	rootfs := filepath.Join(p.dir, "rootfs")
	if err := os.MkdirAll(rootfs, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(rootfs, "init"), nil, 0o755); err != nil {
		return err
	}
	spec, err := json.Marshal(specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: []string{"/init"}, Cwd: "/"},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/init", Type: "bind", Source: self, Options: []string{"bind", "ro"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/" + p.id,
			Resources:   &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(1024))}},
			Namespaces:  []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}},
		},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "config.json"), spec, 0o600); err != nil {
		return err
	}
	return p.run(ctx, "create", "--bundle", p.dir, "--pid-file", filepath.Join(p.dir, "pid"), p.id)
}

// run calls the runtime with state of its own. The container inherits standard
// streams, so these are files, which nobody waits for.
func (p probe) run(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said, err := os.Create(filepath.Join(p.dir, "said"))
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.CommandContext(ctx, p.path, append([]string{"--root", filepath.Join(p.dir, "state")}, args...)...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Run(); err != nil {
		text, readErr := os.ReadFile(said.Name())
		return errors.Join(fmt.Errorf("%s %s: %w: %.500s", filepath.Base(p.path), args[0], err, text), readErr)
	}
	return nil
}
