// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How often does a process enter autograd's engine?
 *
 * Hook: an entry uprobe on torch::autograd::Engine::execute in libtorch_cpu, which
 * each backward pass calls once. Entry only: a return probe costs more, and the
 * duration is not asked for.
 *
 * Attached for each process by itself (probes/uprobe), so each hit is one of a
 * watched process, once.
 *
 * Minimum kernel 5.15: bpf_get_attach_cookie.
 */
#include "uprobe.h"

struct ticks {
	__u64 count;
	__u64 stepped; /* of these, by COOKIE_STEPPED */
	__u64 last_ns;
};

/* Processes of watched containers. User space enters and deletes them; the room
 * is that of the processes it looks at. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct ticks);
} processes SEC(".maps");

SEC("uprobe")
int on_backward(void *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct ticks *t = bpf_map_lookup_elem(&processes, &tgid);

	if (!t)
		return 0;
	__sync_fetch_and_add(&t->count, 1);
	if (COOKIE_STEPPED(bpf_get_attach_cookie(ctx)))
		__sync_fetch_and_add(&t->stepped, 1);
	t->last_ns = bpf_ktime_get_ns();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
