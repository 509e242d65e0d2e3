/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_CONTAINER_H
#define TRIMTAB_CONTAINER_H

/* Which container a task or a bio belongs to: the nearest watched cgroup above
 * it. Walked when a thread appears or moves, never at a switch. */

#include "cgroup.h"
#include "thread.h"

#define RING_UNREAD 0 /* BPF_RB_AVAIL_DATA, linux/bpf.h */

/* Watched cgroups. User space writes and deletes; two entries for each
 * container at most. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_CONTAINERS);
	__type(key, struct cgroup_key);
	__type(value, struct slot_ref);
} watched SEC(".maps");

/* Containers by slot; user space takes and frees slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CONTAINERS);
	__type(key, __u32);
	__type(value, struct container);
} containers SEC(".maps");

static __always_inline struct container *container_of_slot(__u32 slot, __u32 gen)
{
	struct container *c = bpf_map_lookup_elem(&containers, &slot);

	return c && c->gen == gen ? c : NULL;
}

static __always_inline struct slot_ref *find_watched(struct cgroup *cgroup, __u32 tree)
{
	return find_above(&watched, cgroup, tree);
}

/* May a container that holds so much of a room take more? As long as it holds less than a
 * quarter of what is free (Choudhury, Hahne: Dynamic queue length thresholds for shared-memory
 * packet switches, 1998). One that wants all of it gets a fifth. n that come one after the
 * other leave (4/5)^n free, n that come together 4/(n+4). */
static __always_inline bool has_share(__u64 held, __u64 used, __u64 room)
{
	return used < room && 4 * held < room - used;
}

#endif
