package docker_test

import (
	"strconv"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// TestConformsByContainerd and TestConformsByDockerAPI are run with this host's
// Docker and, where `make test-runtimes` built it, with a current one.
func TestConformsByContainerd(t *testing.T) {
	conforms(t, func(containerdAddress string) docker.Options {
		return docker.Options{ContainerdAddress: containerdAddress}
	}, "containerd/moby", nil)
}

func TestConformsByDockerAPI(t *testing.T) {
	conforms(t, func(string) docker.Options {
		return docker.Options{ContainerdAddress: "/nonexistent/containerd.sock"}
	}, "docker-api", apiRefuses)
}

func conforms(t *testing.T, options func(containerdAddress string) docker.Options, writePath string, refuses func(runtimetest.Spec, runtime.Values) bool) {
	for _, v := range runtimetest.DockerRuntimes() {
		t.Run(v.Name, func(t *testing.T) {
			host, opts := runtimetest.DockerHost{}, options("")
			if v.Bin == "" {
				host = runtimetest.NeedDocker(t)
			} else {
				d := runtimetest.NeedDockerdOf(t, v)
				d.Start(t)
				host, opts = d.DockerHost, options(d.ContainerdAddress)
				opts.Host = d.Host
			}
			runtimetest.Conformance(t, func(t *testing.T) runtimetest.Subject {
				s := subject(t, host, opts, writePath, refuses)
				s.WritePath, s.Versions = writePath, v.DockerVersions()
				return s
			})
		})
	}
}

// apiRefuses lists what Docker's API cannot take back.
func apiRefuses(spec runtimetest.Spec, set runtime.Values) bool {
	quota, hasQuota := set[runtime.KnobCPUQuota]
	_, limited := quota.CPUs()
	liftsSwap := set[runtime.KnobMemorySwap] == runtime.ValueMax && spec.SwapBytes > 0
	if mode, err := cgroup.Detect(cgroup.DefaultRoot); err == nil && mode == runtime.CgroupV2 {
		if _, ok := set[runtime.KnobCPUWeight]; ok {
			return true
		}
	}
	return liftsSwap || set[runtime.KnobMemoryLimit] == runtime.ValueMax || (hasQuota && !limited && spec.CPUs > 0)
}

// subject drives containers by docker's command line, and finds them by the engine.
func subject(t *testing.T, host runtimetest.DockerHost, opts docker.Options, writePath string, refuses func(runtimetest.Spec, runtime.Values) bool) runtimetest.Subject {
	engine := newEngine(t, opts)
	r := watch(t, engine)
	command := func(verb ...string) func(*testing.T, runtime.Container) {
		return func(t *testing.T, c runtime.Container) { host.Run(t, append(verb, c.ID.Container)...) }
	}
	return runtimetest.Subject{
		Engine: engine, Lister: newEngine(t, opts),
		Start: func(t *testing.T, spec runtimetest.Spec) runtime.Container {
			c, _ := r.expect(t, 0, runtime.EventSeen, host.StartCommand(t, ownerArgs(t, host, spec), spec.Command()...))
			if got := engine.WritePath(t.Context(), c); got != writePath {
				t.Fatalf("the write path is %q, want %q", got, writePath)
			}
			return c
		},
		Foreign: func(t *testing.T, c runtime.Container, set runtime.Values) {
			if args := updateArgs(t, c, set); len(args) > 0 {
				host.Run(t, append(append([]string{"update"}, args...), c.ID.Container)...)
			}
		},
		Preflight: func(t *testing.T, c runtime.Container) (bool, string) {
			r := device.Preflight(t.Context(), c, device.Options{})
			return r.Green, r.String()
		},
		ForeignPIDs: func(t *testing.T, c runtime.Container, n int64) {
			host.Run(t, "update", "--pids-limit="+strconv.FormatInt(n, 10), c.ID.Container)
		},
		Pause:   command("pause"),
		Unpause: command("unpause"),
		Stop:    command("stop", "-t", "0"),
		Remove:  command("rm"),
		Restart: func(t *testing.T, c runtime.Container) runtime.Container {
			from := len(r.snapshot())
			host.Run(t, "restart", "-t", "0", c.ID.Container)
			again, _ := r.expect(t, from, runtime.EventSeen, c.ID.Container)
			return again
		},
		Refuses: refuses,
	}
}

func ownerArgs(t *testing.T, host runtimetest.DockerHost, spec runtimetest.Spec) (args []string) {
	add := func(flag string, n int64) {
		if n > 0 {
			args = append(args, flag+"="+strconv.FormatInt(n, 10))
		}
	}
	if spec.CPUs > 0 {
		args = append(args, "--cpus="+strconv.FormatFloat(spec.CPUs, 'f', -1, 64))
	}
	if spec.NVIDIA {
		args = append(args, "--device-cgroup-rule=c 195:* rwm")
	}
	add("--cpu-quota", spec.QuotaUs)
	add("--cpu-period", spec.PeriodUs)
	add("--memory", spec.MemoryBytes)
	add("--memory-swap", spec.SwapBytes)
	add("--pids-limit", spec.PIDs)
	if spec.Parent != "" {
		parent := "/" + spec.Parent
		if host.Run(t, "info", "--format={{.CgroupDriver}}") == "systemd" {
			parent = spec.Parent + ".slice"
		}
		args = append(args, "--cgroup-parent="+parent)
	}
	return args
}

// updateArgs are what a person would type; containers of the suite are made with --cpus.
// What docker's update has no word for is set by hand.
func updateArgs(t *testing.T, c runtime.Container, set runtime.Values) (args []string) {
	for knob, value := range set {
		switch knob {
		case runtime.KnobCPUWeight:
			args = append(args, "--cpu-shares="+string(value))
		case runtime.KnobCPUQuota:
			cpus, _ := value.CPUs()
			args = append(args, "--cpus="+strconv.FormatFloat(cpus, 'f', -1, 64))
		case runtime.KnobCpuset:
			args = append(args, "--cpuset-cpus="+string(value))
		case runtime.KnobMemoryLimit:
			args = append(args, "--memory="+string(value))
		case runtime.KnobMemorySwap:
			swap, _ := value.Int()
			if c.Cgroup.Mode == runtime.CgroupV2 { // the kernel counts swap alone there, Docker as ever
				memory, _ := set[runtime.KnobMemoryLimit].Int()
				swap += memory
			}
			args = append(args, "--memory-swap="+strconv.FormatInt(swap, 10))
		default:
			runtimetest.ByHand(t, c, knob, value)
		}
	}
	return args
}
