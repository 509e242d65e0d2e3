package mpi

//go:generate ../../bpf/generate.sh waits ../../bpf/mpi.bpf.c -type process
