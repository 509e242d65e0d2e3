// Package vgpu builds the virtual GPU and makes nodes of it for tests: libraries
// with the names of CUDA's, NCCL's and NVML's, before one simulated node in shared
// memory. What it simulates, and what not, stands in README.md.
//
// The libraries are C and lie in this folder; this package only starts programs.
package vgpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNoCompiler means that the libraries cannot be built here; tests skip on it.
var ErrNoCompiler = errors.New("needs gcc and make: apt-get install gcc libc6-dev make")

// Dir is a folder that holds the built libraries and the tool vgpu-node.
type Dir string

// Build builds what is out of date and returns where it lies. Several processes may
// build at once. ErrNoCompiler means that nothing can be built here.
func Build(ctx context.Context) (Dir, error) {
	for _, tool := range []string{"gcc", "make", "flock"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", ErrNoCompiler
		}
	}
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	src := filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "test", "vgpu")
	dir := filepath.Join(src, "build")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	_, err = output(exec.CommandContext(ctx, "flock", filepath.Join(dir, ".lock"), "make", "-s", "-C", src))
	return Dir(dir), err
}

// Lib is the path of one of the libraries, or of vgpu-node.
func (d Dir) Lib(name string) string { return filepath.Join(string(d), name) }

// BuildWithout links into the folder dst one of the libraries, by its file's name,
// without some of its symbols, as an older version of it is. Put dst before d in
// LD_LIBRARY_PATH. A program that calls what libnvidia-ml, libcudart or libnccl lack is
// ended by the dynamic linker; the runtime answers cudaErrorCallRequiresNewerDriver where
// libcuda lacks what a call needs.
func (d Dir) BuildWithout(ctx context.Context, dst, library string, symbols ...string) error {
	into, err := filepath.Abs(dst)
	if err == nil {
		err = os.MkdirAll(into, 0o755)
	}
	if err != nil {
		return err
	}
	_, err = output(exec.CommandContext(ctx, "make", "-s", "-C", filepath.Dir(string(d)), "without-"+library,
		"SYMBOLS="+strings.Join(symbols, "; ")+";", "INTO="+into))
	return err
}

// Options says what a node is to be like.
type Options struct {
	Devices int    // 0: 2
	Spec    string // see vgpu-node help: "mem-mib=81920,hopper=1/1:numa=1"
}

// Node is one simulated node.
type Node struct {
	Dir  Dir
	Path string // the node's file; its folder is what containers are given
}

// NewNode makes a node in dir, which should lie in a tmpfs (/dev/shm/SOMETHING), and
// is made if it is not there. The caller removes it.
func NewNode(ctx context.Context, d Dir, dir string, o Options) (*Node, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	n := &Node{Dir: d, Path: filepath.Join(dir, "node")}
	if o.Devices == 0 {
		o.Devices = 2
	}
	_, err := n.Tool(ctx, "create", "--devices", strconv.Itoa(o.Devices), "--spec", o.Spec)
	return n, err
}

// Env is what a process of the host needs in its environment to see the node: the
// daemon, or a job outside containers.
func (n *Node) Env() []string {
	return []string{"TRIMTAB_VGPU_NODE=" + n.Path, "LD_LIBRARY_PATH=" + string(n.Dir)}
}

// Where containers see the libraries and the node.
const (
	containerLibs = "/opt/trimtab-vgpu"
	containerNode = "/run/vgpu"
)

// DockerArgs are the arguments of docker run that give a container the node and the
// libraries. Images of glibc 2.34 or later can load them; musl's cannot.
func (n *Node) DockerArgs() []string {
	return []string{
		"-v", string(n.Dir) + ":" + containerLibs + ":ro", "-v", filepath.Dir(n.Path) + ":" + containerNode,
		"-e", "TRIMTAB_VGPU_NODE=" + containerNode + "/" + filepath.Base(n.Path),
		"-e", "LD_LIBRARY_PATH=" + containerLibs,
	}
}

// Tool runs vgpu-node on the node and returns what it printed.
func (n *Node) Tool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.Dir.Lib("vgpu-node"), args...)
	cmd.Env = append(os.Environ(), n.Env()...)
	return output(cmd)
}

// Set changes a key of a device, or of all (-1), while the node runs: "lost",
// "clock-mhz", "slowdown", "power-mw", … (vgpu-node help lists them).
func (n *Node) Set(ctx context.Context, device int, key, value string) error {
	_, err := n.Tool(ctx, "set", "--device", strconv.Itoa(device), key+"="+value)
	return err
}

// Fault orders a fault: kind is "lost", or "hang", "unsupported" or "exit" with the
// call's name after "=". Device -1 means every device, and calls that have none.
func (n *Node) Fault(ctx context.Context, device int, kind string) error {
	_, err := n.Tool(ctx, "fault", "--device", strconv.Itoa(device), "--kind", kind)
	return err
}

// ClearFaults ends all faults; calls that hang go on.
func (n *Node) ClearFaults(ctx context.Context) error {
	_, err := n.Tool(ctx, "fault", "--clear")
	return err
}

// State is what the devices and the processes did: the truth that probes are held against.
type State struct {
	Stuck   bool           `json:"stuck"` // a process that stands still or hardly runs holds the node's lock
	Devices []DeviceState  `json:"devices"`
	Procs   []ProcessState `json:"processes"`
}

// DeviceState is one device's counters since the node was made.
type DeviceState struct {
	BusyNs   uint64 `json:"busyNs"` // some kernel or collective ran
	KernelNs uint64 `json:"kernelNs"`
	MemUsed  uint64 `json:"memUsed"` // bytes, contexts included
	BytesIn  uint64 `json:"bytesIn"` // over PCIe, to the device
	BytesOut uint64 `json:"bytesOut"`
	Lost     bool   `json:"lost"`
}

// ProcessState is a living process's counters.
type ProcessState struct {
	PID          int32     `json:"pid"`   // as seen by the caller; 0 outside of its PID namespace
	NsPID        int32     `json:"nsPid"` // as seen by itself
	Comm         string    `json:"comm"`
	Kernels      uint64    `json:"kernels"` // launches, without those of graphs
	Graphs       uint64    `json:"graphs"`
	GraphKernels uint64    `json:"graphKernels"`
	Collectives  uint64    `json:"collectives"`
	Syncs        uint64    `json:"syncs"`
	SyncNs       uint64    `json:"syncNs"`
	Copies       [5]uint64 `json:"copies"` // by cudaMemcpyKind
	CopyBytes    [5]uint64 `json:"copyBytes"`
	BusyNs       []uint64  `json:"busyNs"` // by device
	MemBytes     []uint64  `json:"mem"`    // by device
}

// Show returns the node's state.
func (n *Node) Show(ctx context.Context) (State, error) {
	var s State
	out, err := n.Tool(ctx, "show")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("vgpu-node show: %w", err)
	}
	return s, nil
}

// output runs cmd; an error carries what it said.
func output(cmd *exec.Cmd) (string, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(said.String()+out.String()))
	}
	return out.String(), nil
}
