package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trimtab/trimtab/probes/nvml"
	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
)

// missing lists what the check needs and does not find, each with the fix.
func missing(ctx context.Context, o options) (lacks []string) {
	lack := func(ok bool, what string) {
		if !ok {
			lacks = append(lacks, what)
		}
	}
	lack(os.Geteuid() == 0, "root: containers, uprobes and cgroups want it")
	lack(exists("/sys/kernel/btf/vmlinux"), "the kernel's BTF (/sys/kernel/btf/vmlinux): a kernel with CONFIG_DEBUG_INFO_BTF")
	lack(exists("/sys/fs/cgroup"), "/sys/fs/cgroup: a kernel with control groups")
	lack(exists(filepath.Join(o.dir, "plain")), filepath.Join(o.dir, "plain")+": make gpu-bundle puts it there")
	for _, name := range ctrd.Programs() {
		_, err := ctrd.Find(o.dir, name)
		lack(err == nil, fmt.Sprintf("%s, neither in %s nor in PATH: make gpu-bundle builds one", name, o.dir))
	}
	if o.virtual {
		for _, name := range []string{"libcuda.so.1", "libcudart.so.12", "libnccl.so.2", "libnvidia-ml.so.1", "vgpu-node", "trainer"} {
			lack(exists(filepath.Join(o.dir, "vgpu", name)), filepath.Join(o.dir, "vgpu", name)+": make gpu-bundle puts it there")
		}
		return lacks
	}
	lack(exists(filepath.Join(o.dir, "train.py")), filepath.Join(o.dir, "train.py")+": make gpu-bundle puts it there")
	lack(exists("/dev/nvidiactl") && len(gpuNodes()) > 0, "an NVIDIA device: no /dev/nvidiactl and /dev/nvidia0; load the driver (nvidia-smi makes the nodes)")
	if why := noNVML(ctx); why != "" {
		lacks = append(lacks, "NVIDIA's driver, as NVML tells it: "+why)
	}
	if _, err := torchSays(ctx); err != nil {
		lacks = append(lacks, "PyTorch with CUDA in this machine's python3: "+err.Error())
	}
	return lacks
}

// noNVML says why NVML does not answer; "" if it does.
func noNVML(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := nvml.Look(ctx, nvml.Options{})
	switch {
	case err != nil:
		return err.Error()
	case s.Absent != "":
		return s.Absent
	}
	return ""
}

// torchSays asks this machine's python3 for its PyTorch and device, in words.
func torchSays(ctx context.Context) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("no python3 in PATH: put the one that has PyTorch first in PATH")
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) // a first import of PyTorch reads gigabytes
	defer cancel()
	const ask = `import torch
assert torch.cuda.is_available(), "torch.cuda.is_available() is False"
print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "on", torch.cuda.get_device_name())`
	out, err := exec.CommandContext(ctx, python, "-c", ask).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("%s: %s (%w): put the python3 that has it first in PATH", python, lastLine(text), err)
	}
	return lastLine(text), nil
}

func lastLine(text string) string {
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
