package cuda

//go:generate ../../bpf/generate.sh calls ../../bpf/cuda.bpf.c -type process -type thread
