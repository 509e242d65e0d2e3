package network

//go:generate ../../bpf/generate.sh sockets ../../bpf/network.bpf.c -target bpfel -type sock_record -type pass_count -type cgroup_key -type slot_ref
