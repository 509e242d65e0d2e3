package kernel

//go:generate ../../bpf/generate.sh counters ../../bpf/kernel.bpf.c -type record -type thread -type edge -type container -type cgroup_key -type slot_ref
