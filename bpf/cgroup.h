/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_CGROUP_H
#define TRIMTAB_CGROUP_H

/* From a task to what is kept of the nearest watched cgroup above it. */

#include "core_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define MAX_CGROUP_DEPTH 24

enum tree {
	TREE_TASKS = 0, /* the hierarchy that names containers: v2, or v1's cpu on pure v1 */
	TREE_BLKIO = 1, /* v1's blkio, where that carries block I/O */
};

struct cgroup_key {
	__u64 id;
	__u32 tree;
	__u32 pad;
};

/* Tasks are found in v1's cpu hierarchy, because the host has no v2 tree. */
const volatile __u32 tasks_by_v1_cpu = 0;

/* Looks a cgroup up in a map by struct cgroup_key, and those above it until one is there. */
static __always_inline void *find_above(void *map, struct cgroup *cgroup, __u32 tree)
{
	struct cgroup_key key = {.tree = tree};
	struct cgroup_subsys_state *parent;
	void *found;
	int i;

	for (i = 0; i < MAX_CGROUP_DEPTH && cgroup; i++) {
		key.id = BPF_CORE_READ(cgroup, kn, id);
		found = bpf_map_lookup_elem(map, &key);
		if (found)
			return found;
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

#endif
