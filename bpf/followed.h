/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_FOLLOWED_H
#define TRIMTAB_FOLLOWED_H

/* The threads that are followed, and the count of what found no room. */

#include "core_types.h"
#include <bpf/bpf_helpers.h>
#include "thread.h"

__u64 lost_total = 0;

/* Counters. Deleted at exit, when the thread leaves the container, by a reading
 * after Unwatch, and by the kernel with the task. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *lookup(struct task_struct *task)
{
	if (!task->bpf_storage)
		return NULL;
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline void count_lost(struct container *c)
{
	__sync_fetch_and_add(&lost_total, 1);
	if (c)
		__sync_fetch_and_add(&c->lost, 1);
}

#endif
