/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_CONTAINER_H
#define TRIMTAB_CONTAINER_H

/* Which container a task or a bio belongs to: the nearest watched cgroup above
 * it. Walked when a thread appears or moves, never at a switch. */

#include "core_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "thread.h"

#define MAX_CGROUP_DEPTH 24
#define RING_UNREAD 0 /* BPF_RB_AVAIL_DATA, linux/bpf.h */

/* Tasks are found in v1's cpu hierarchy, because the host has no v2 tree. */
const volatile __u32 tasks_by_v1_cpu = 0;

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
	struct cgroup_key key = {.tree = tree};
	struct cgroup_subsys_state *parent;
	struct slot_ref *ref;
	int i;

	for (i = 0; i < MAX_CGROUP_DEPTH && cgroup; i++) {
		key.id = BPF_CORE_READ(cgroup, kn, id);
		ref = bpf_map_lookup_elem(&watched, &key);
		if (ref)
			return ref;
		parent = BPF_CORE_READ(cgroup, self.parent);
		if (!parent)
			return NULL;
		cgroup = BPF_CORE_READ(parent, cgroup);
	}
	return NULL;
}

static __always_inline struct cgroup *task_cgroup(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = NULL;
	__u64 index;

	if (!tasks_by_v1_cpu)
		return BPF_CORE_READ(set, dfl_cgrp);
	index = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)set + bpf_core_field_offset(struct css_set, subsys) + index * sizeof(css));
	return css ? BPF_CORE_READ(css, cgroup) : NULL;
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
