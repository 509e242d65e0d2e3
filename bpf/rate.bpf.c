// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * May a container send one more datagram to the socket of steps?
 *
 * Hook: the filter of that socket. The kernel runs it where the sender runs, before the
 * datagram takes a place in the queue (unix_dgram_sendmsg). What it refuses is gone, the
 * sender is told that it was sent, and nobody waits. So one who floods costs others nothing.
 *
 * The rate of each container is held by GCRA: one word, the time at which the bucket is full.
 * A sender that finds the queue full and tries again is charged again.
 * Map: rooms (below). Minimum kernel 5.15: the current task in socket filters.
 */
#include "cgroup.h"

#define BURST_NS (1000ULL * 1000 * 1000)
#define MAX_TRIES 4
#define KEEP_ALL (-1)

/* The time that one datagram takes of its container's share; user space sets it. */
volatile __u64 every_ns = 2000000;
/* Datagrams of watched containers, of these refused, and those of nobody watched. */
__u64 sent = 0;
__u64 refused = 0;
__u64 foreign = 0;

struct room {
	__u64 full_ns;
	__u64 sent;
	__u64 refused;
};

/* Watched containers, by cgroup. User space enters and deletes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct cgroup_key);
	__type(value, struct room);
} rooms SEC(".maps");

static __always_inline bool take(struct room *r)
{
	__u64 now = bpf_ktime_get_ns(), was, full;
	int i;

	for (i = 0; i < MAX_TRIES; i++) {
		was = *(volatile __u64 *)&r->full_ns;
		full = was > now ? was : now;
		if (full - now > BURST_NS)
			return false;
		if (__sync_val_compare_and_swap(&r->full_ns, was, full + every_ns) == was)
			return true;
	}
	return true; /* others of the container wrote each time: it sends at once, which is no flood */
}

SEC("socket")
int admit(void *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct room *r = find_above(&rooms, task_cgroup(task), TREE_TASKS);

	if (!r) {
		__sync_fetch_and_add(&foreign, 1);
		return 0;
	}
	__sync_fetch_and_add(&sent, 1);
	__sync_fetch_and_add(&r->sent, 1);
	if (take(r))
		return KEEP_ALL;
	__sync_fetch_and_add(&refused, 1);
	__sync_fetch_and_add(&r->refused, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
