package torch

//go:generate ../../bpf/generate.sh uprobe ../../bpf/torch.bpf.c -type ticks
