package rate

//go:generate ../../bpf/generate.sh filter ../../bpf/rate.bpf.c -target bpfel -type room -type cgroup_key
