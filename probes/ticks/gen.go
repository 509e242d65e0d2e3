package ticks

//go:generate ../../bpf/generate.sh entry ../../bpf/ticks.bpf.c -target bpfel -type ticks
