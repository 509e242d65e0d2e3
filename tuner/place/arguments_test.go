package place

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/test/composetest"
	"github.com/trimtab/trimtab/tuner/state"
)

func placed(uuids ...string) state.PlacedJob {
	j := state.PlacedJob{Chosen: uuids}
	for i, u := range uuids {
		j.Choices = append(j.Choices, state.PlaceChoice{Device: u, Label: u, Index: i, Minor: 5 - i, Slice: strings.HasPrefix(u, "MIG-")})
	}
	return j
}

// TestArgumentsReachTheProgram: what comes out of $(…), unquoted, in the shells that people have, is
// what the program gets as arguments.
func TestArgumentsReachTheProgram(t *testing.T) {
	for _, c := range []struct {
		form Form
		j    state.PlacedJob
		want []string
	}{
		{DockerGPUs, placed("GPU-5e0a-11"), []string{"--gpus", "device=GPU-5e0a-11"}},
		{DockerGPUs, placed("MIG-5e0a-11"), []string{"--gpus", "device=MIG-5e0a-11"}},
		{DockerGPUs, placed("GPU-1", "GPU-2"), []string{"--gpus", `"device=GPU-1,GPU-2"`}}, // quotes of Docker's own CSV
		{CDI, placed("GPU-1", "GPU-2"), []string{"--device", "nvidia.com/gpu=GPU-1", "--device", "nvidia.com/gpu=GPU-2"}},
		{Ctr, placed("GPU-1", "GPU-2"), []string{"--gpus", "0", "--gpus", "1"}},
		{DockerDevice, placed("GPU-1"), []string{"--device", "/dev/nvidia5", "--device", "/dev/nvidiactl", "--device", "/dev/nvidia-uvm"}},
		{DockerGPUs, placed(), nil},
	} {
		text, err := Arguments(c.j, c.form, "")
		if err != nil {
			t.Fatalf("%s: %v", c.form, err)
		}
		for _, shell := range []string{"sh", "dash", "bash"} {
			if _, err := exec.LookPath(shell); err != nil {
				t.Logf("needs %s", shell)
				continue
			}
			cmd := exec.Command(shell, "-c", `printf '<%s>\n' run $(cat) IMAGE`)
			cmd.Stdin, cmd.Dir = strings.NewReader(text), t.TempDir()
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for _, w := range append(append([]string{"run"}, c.want...), "IMAGE") {
				want.WriteString("<" + w + ">\n")
			}
			if string(out) != want.String() {
				t.Errorf("%s in %s: %q, want %q", c.form, shell, out, want.String())
			}
		}
	}
}

func TestArgumentsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		form Form
		j    state.PlacedJob
	}{
		{Ctr, placed("MIG-1")}, {DockerDevice, placed("MIG-1")}, {"podman", placed("GPU-1")}, {DockerGPUs, placed("GPU-1 --privileged")},
		{DockerGPUs, placed("GPU-$(reboot)")}, {DockerGPUs, placed("-v")}, {CDI, state.PlacedJob{Chosen: []string{"GPU-1"}}},
	} {
		if text, err := Arguments(c.j, c.form, ""); err == nil {
			t.Errorf("%s of %v: %q", c.form, c.j.Chosen, text)
		}
	}
}

func TestComposeFile(t *testing.T) {
	for _, service := range []string{"", "train", "a: b\n\"c\" \x1b[31m", "ünï"} {
		text, err := Arguments(placed("GPU-1", "GPU-2"), Compose, service)
		if err != nil {
			t.Fatal(err)
		}
		type part struct {
			Deploy struct {
				Resources struct {
					Reservations struct {
						Devices []struct {
							Driver       string
							IDs          []string `yaml:"device_ids"`
							Capabilities []string
						}
					}
				}
			}
		}
		var whole struct {
			Services map[string]part
			part     `yaml:",inline"`
		}
		if err := yaml.Unmarshal([]byte(text), &whole); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := whole.part
		if service != "" {
			got = whole.Services[service]
		}
		d := got.Deploy.Resources.Reservations.Devices
		if len(d) != 1 || d[0].Driver != "nvidia" || !slices.Equal(d[0].IDs, []string{"GPU-1", "GPU-2"}) || !slices.Equal(d[0].Capabilities, []string{"gpu"}) {
			t.Errorf("service %q: %+v\n%s", service, d, text)
		}
	}
}

// Compose takes the file over one that names the service, and the part within a service.
func TestComposeTakesIt(t *testing.T) {
	for _, service := range []string{"", "train", "a.b-c_9", "007", "null", "1e3"} {
		text, err := Arguments(placed("GPU-1", "GPU-2"), Compose, service)
		if err != nil {
			t.Fatal(err)
		}
		name := cmp.Or(service, "train")
		own := fmt.Sprintf("services:\n  %q:\n    image: debian:12\n", name)
		files := map[string]string{"compose.yaml": own, "gpu.yaml": text}
		if service == "" {
			files["gpu.yaml"] = own + "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
		}
		dir := t.TempDir()
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := composetest.Load(t.Context(), filepath.Join(dir, "compose.yaml"), filepath.Join(dir, "gpu.yaml"))
		if err != nil {
			t.Errorf("%q: %v\n%s", service, err, files["gpu.yaml"])
			continue
		}
		s := p.Services[name]
		if s.Image != "debian:12" || s.Deploy == nil || s.Deploy.Resources.Reservations == nil || len(s.Deploy.Resources.Reservations.Devices) != 1 ||
			!slices.Equal(s.Deploy.Resources.Reservations.Devices[0].IDs, []string{"GPU-1", "GPU-2"}) {
			t.Errorf("%q: %+v\n%s", service, s, files["gpu.yaml"])
		}
	}
}
