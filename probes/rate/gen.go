package rate

//go:generate ../../bpf/generate.sh filter ../../bpf/rate.bpf.c -type room -type cgroup_key
