package nccl

//go:generate ../../bpf/generate.sh collectives ../../bpf/nccl.bpf.c -type job
