package containerd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
)

// TestNVIDIAToolkit gives containers GPUs as NVIDIA's own container toolkit does: nvidia-ctk
// writes the CDI specification of the node that the virtual NVML shows, and
// nvidia-container-runtime puts devices and libraries into the container. The engine names
// them, the preflight is green, and a GPU is hidden and shown again.
func TestNVIDIAToolkit(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	bin := toolkit(t)
	n := vgputest.Node(t, vgpu.Options{Devices: 2})
	configure(t, bin, n)
	d.Start(t)
	e := newEngine(t, containerd.Options{Address: "unix://" + d.Address})
	r := watch(t, e)
	for visible, want := range map[string][]string{"nvidia.com/gpu=0,nvidia.com/gpu=1": {"0", "1"}, "nvidia.com/gpu=all": {"all"}} {
		t.Run(visible, func(t *testing.T) {
			id := d.RunContainer(t, runtimetest.ContainerdSpec{Runc: filepath.Join(bin, "nvidia-container-runtime"), Env: []string{"NVIDIA_VISIBLE_DEVICES=" + visible}})
			c, _ := r.expect(t, 0, runtime.EventSeen, id)
			if !slices.Equal(c.GPUs, want) || c.GPUVia != "cdi" {
				t.Errorf("GPUs %q by %q, want %q by cdi", c.GPUs, c.GPUVia, want)
			}
			if _, err := os.Stat(inside(c, driverLibs+"/libcuda.so."+driverVersion)); err != nil {
				t.Errorf("the toolkit brought no library: %v", err)
			}
			if report := device.Preflight(t.Context(), c, device.Options{}); !report.Green {
				t.Errorf("preflight: %+v", report)
			}
			hiddenAndShown(t, c)
		})
	}
}

// hiddenAndShown hides the first of two GPUs and shows it again.
func hiddenAndShown(t *testing.T, c runtime.Container) {
	t.Helper()
	v := device.NewVisibility(device.Options{Records: records{}})
	nodes := func() (found []string) {
		for _, name := range []string{"nvidia0", "nvidia1", "nvidiactl"} {
			var s unix.Stat_t
			if unix.Stat(inside(c, "/dev/"+name), &s) == nil {
				found = append(found, fmt.Sprintf("%s %d:%d %o", name, unix.Major(s.Rdev), unix.Minor(s.Rdev), s.Mode))
			}
		}
		return found
	}
	before := nodes()
	if len(before) != 3 {
		t.Fatalf("the toolkit made %q", before)
	}
	if notes, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{0}}); err != nil || len(notes) > 0 {
		t.Fatalf("hide: %v, %v", notes, err)
	}
	if got := nodes(); !slices.Equal(got, before[1:]) {
		t.Errorf("with GPU 0 hidden there are %q, want %q", got, before[1:])
	}
	if access, err := device.CheckAccess(t.Context(), c); access != device.AccessAllowed {
		t.Errorf("the other GPU's control node is %s: %v", access, err)
	}
	if _, notes, err := v.Restore(t.Context(), c.Key()); err != nil || len(notes) > 0 {
		t.Fatalf("restore: %v, %v", notes, err)
	}
	if got := nodes(); !slices.Equal(got, before) {
		t.Errorf("restored to %q, was %q", got, before)
	}
}

func inside(c runtime.Container, path string) string {
	return filepath.Join("/proc", fmt.Sprint(c.InitPID), "root", path)
}

// records keep what was hidden, in memory.
type records map[string]device.Hidden

func (r records) Load() (map[string]device.Hidden, map[string]error, error) {
	return maps.Clone(r), nil, nil
}
func (r records) Save(key string, h device.Hidden) error { r[key] = h; return nil }
func (r records) Remove(key string) error                { delete(r, key); return nil }

// toolkit builds NVIDIA's programs, once.
func toolkit(t *testing.T) (bin string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc: apt-get install gcc libc6-dev")
	}
	dir, err := filepath.Abs("../../.cache/runtimes")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../../scripts/build-runtimes.sh", dir, "nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime").CombinedOutput()
	if text := string(out); err != nil && (strings.Contains(text, "dial tcp") || strings.Contains(text, "module lookup disabled")) {
		t.Skipf("needs NVIDIA's container toolkit, which cannot be fetched: %v\n%s", err, out)
	}
	if err != nil {
		t.Fatalf("NVIDIA's container toolkit cannot be built: %v\n%s", err, out)
	}
	return filepath.Join(dir, "bin")
}

// What the virtual GPU's driver is, and where a driver's libraries are.
const (
	driverVersion = "550.54.15"
	driverLibs    = "/usr/lib/x86_64-linux-gnu"
)

// configure makes a driver's root of the virtual GPU, has nvidia-ctk describe it, and tells
// nvidia-container-runtime where the description is.
func configure(t *testing.T, bin string, n *vgpu.Node) {
	t.Helper()
	dir := t.TempDir()
	root, cdi, config := filepath.Join(dir, "driver"), filepath.Join(dir, "cdi"), filepath.Join(dir, "nvidia-container-runtime")
	for _, sub := range []string{root + driverLibs, root + "/dev", cdi, config} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		b, err := os.ReadFile(n.Dir.Lib(name + ".1"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(root, driverLibs, name+"."+driverVersion), b)
		if err := os.Symlink(name+"."+driverVersion, filepath.Join(root, driverLibs, name+".1")); err != nil {
			t.Fatal(err)
		}
	}
	for name, minor := range map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255} {
		if err := unix.Mknod(filepath.Join(root, "dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(195, minor))); err != nil {
			t.Fatal(err)
		}
	}
	generate := exec.Command(filepath.Join(bin, "nvidia-ctk"), "cdi", "generate", "--mode=nvml", "--driver-root="+root, "--dev-root="+root,
		"--nvidia-cdi-hook-path="+filepath.Join(bin, "nvidia-cdi-hook"),
		"--disable-hook=all", // they run ldconfig inside, and busybox has none
		"--format=json", "--output="+filepath.Join(cdi, "nvidia.json"))
	generate.Env = append(os.Environ(), n.Env()...)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("nvidia-ctk: %v\n%s", err, out)
	}
	described(t, filepath.Join(cdi, "nvidia.json"))
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(config, "config.toml"), fmt.Appendf(nil, "[nvidia-container-runtime]\nmode = \"cdi\"\nruntimes = [%q]\n[nvidia-container-runtime.modes.cdi]\nspec-dirs = [%q]\n", runc, cdi))
	t.Setenv("XDG_CONFIG_HOME", dir)
}

func put(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// described: the specification has both devices, by number and by UUID.
func described(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Kind    string `json:"kind"`
		Devices []struct {
			Name string `json:"name"`
		} `json:"devices"`
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	uuids := 0
	for _, d := range spec.Devices {
		if strings.HasPrefix(d.Name, "GPU-") {
			uuids++
		}
	}
	if spec.Kind != "nvidia.com/gpu" || uuids != 2 || len(spec.Devices) != 5 {
		t.Errorf("nvidia-ctk describes %+v", spec)
	}
}
