/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_BLOCK_H
#define TRIMTAB_BLOCK_H

/* Block I/O by container: latency from issue to completion, and bytes. */

#include "core_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "container.h"
#include "followed.h"

/* Block requests in flight, of watched containers only. Deleted at completion, or when the
 * request is used again; beyond a container's share of the room they are not counted, which
 * lost tells. User space sets the room, the map's and this. */
const volatile __u64 max_requests = 8192;
__u64 num_requests = 0;
struct request_start {
	__u64 issue_ns;
	struct slot_ref owner;
	__u64 bytes_left;
	__u64 bytes;
	__u32 is_write;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct request_start);
} requests SEC(".maps");

#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1

/* The container that a request is for: by the cgroup its bio is charged to,
 * which also names the owner of write-back (on v1 what is swapped out is the
 * root's); where the container has no block cgroup, by the thread that issues
 * it, though a scheduler has a thread issue the requests of others too. */
static __always_inline bool request_owner(struct request *rq, struct slot_ref *owner)
{
	struct cgroup *cgroup = BPF_CORE_READ(rq, bio, bi_blkg, blkcg, css.cgroup);
	struct task_struct *current = bpf_get_current_task_btf();
	struct slot_ref *ref = NULL;
	struct container *c;
	struct thread *th;
	__u32 tree;

	if (cgroup) {
		/* Inode numbers of two hierarchies may coincide: tell them apart by the root. */
		tree = BPF_CORE_READ(cgroup, root) == BPF_CORE_READ(current, cgroups, dfl_cgrp, root) ? TREE_TASKS
												       : TREE_BLKIO;
		ref = find_watched(cgroup, tree);
	}
	if (ref) {
		*owner = *ref;
		return true;
	}
	th = lookup(current);
	if (!th)
		return false;
	c = container_of_slot(th->slot, th->gen);
	if (!c || c->block_by_cgroup)
		return false;
	owner->slot = th->slot;
	owner->gen = th->gen;
	return true;
}

static __always_inline void leave_request(struct container *c)
{
	__sync_fetch_and_add(&num_requests, -1);
	if (c)
		__sync_fetch_and_add(&c->requests, -1);
}

/* The place is taken before the request is there: it may complete at once. */
static __always_inline bool enter_request(__u64 key, struct request_start *start, struct container *c)
{
	if (!has_share(c->requests, num_requests, max_requests))
		return false;
	__sync_fetch_and_add(&num_requests, 1);
	__sync_fetch_and_add(&c->requests, 1);
	if (!bpf_map_update_elem(&requests, &key, start, BPF_NOEXIST))
		return true;
	leave_request(c);
	return false;
}

static __always_inline void forget_request(__u64 key)
{
	struct request_start *start = bpf_map_lookup_elem(&requests, &key);
	struct container *c;

	if (!start)
		return;
	c = container_of_slot(start->owner.slot, start->owner.gen);
	if (!bpf_map_delete_elem(&requests, &key))
		leave_request(c);
}

/* Since 5.11 (a54895fa057c) without the queue before the request. */
SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_block_issue, struct request *rq)
{
	struct request_start start = {};
	__u32 op = rq->cmd_flags & REQ_OP_MASK;
	__u64 key = (__u64)rq;
	struct container *c;

	/* Requests are used again: one whose completion was not seen is not this one. */
	forget_request(key);
	if ((op != REQ_OP_READ && op != REQ_OP_WRITE) || !request_owner(rq, &start.owner))
		return 0;
	c = container_of_slot(start.owner.slot, start.owner.gen);
	if (!c)
		return 0;
	start.issue_ns = bpf_ktime_get_ns();
	start.bytes_left = rq->__data_len;
	start.is_write = op == REQ_OP_WRITE;
	if (!enter_request(key, &start, c))
		count_lost(c);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_block_complete, struct request *rq, int error, unsigned int nr_bytes)
{
	__u64 key = (__u64)rq, ns;
	struct request_start *start = bpf_map_lookup_elem(&requests, &key);
	struct container *c;

	if (!start)
		return 0;
	start->bytes += nr_bytes;
	if (nr_bytes < start->bytes_left) {
		start->bytes_left -= nr_bytes;
		return 0;
	}
	ns = bpf_ktime_get_ns() - start->issue_ns;
	c = container_of_slot(start->owner.slot, start->owner.gen);
	if (c && start->is_write) {
		__sync_fetch_and_add(&c->writes, 1);
		__sync_fetch_and_add(&c->write_bytes, start->bytes);
		__sync_fetch_and_add(&c->write_ns, ns);
	} else if (c) {
		__sync_fetch_and_add(&c->reads, 1);
		__sync_fetch_and_add(&c->read_bytes, start->bytes);
		__sync_fetch_and_add(&c->read_ns, ns);
	}
	if (!bpf_map_delete_elem(&requests, &key))
		leave_request(c);
	return 0;
}

#endif
