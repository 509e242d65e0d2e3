/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_CUDA_PROCESS_H
#define TRIMTAB_CUDA_PROCESS_H

/* The counters and marks of one CUDA process. The programs on NCCL add marks of
 * their own to them, so both objects are loaded with one map. */

#include "uprobe.h"

/* Which way a call came. A runtime call goes on to the driver, but whether it
 * passes the driver's exported entry is the libraries' affair. So the levels are
 * kept apart: launches = direct + max(runtime, nested). */
#define LEVEL_RUNTIME 0
#define LEVEL_NESTED 1 /* in the driver, inside a runtime call */
#define LEVEL_DIRECT 2 /* in the driver, called by somebody else */
#define NUM_LEVELS 3

#define NUM_DIRECTIONS 5 /* probes.Direction; 4 is cudaMemcpyDefault */
#define COPY_DEFAULT 4

#define HOOK_LAUNCH 0
#define HOOK_COPY 1
#define HOOK_SYNC 2
#define HOOK_DRIVER_LAUNCH 3
#define NUM_HOOKS 4

/* probes.MarkKind */
#define MARK_SYNC 0
#define MARK_GRAPH 1
#define MARK_COLLECTIVE 2
#define MARK_COPY 3
#define NUM_MARKS 4
/* Each kind keeps its own latest, so that many copies do not push a rare sync out. */
#define MARKS_KEPT 64

struct mark {
	__u64 at_ns;
	__u64 launches;
	__u32 tid;
	__u32 seq; /* written last: low bits of its number in the ring, plus one */
};

struct process {
	__u64 epoch; /* set by user space when it enters the process; never reused */
	__u64 kernels[NUM_LEVELS];
	__u64 graphs[NUM_LEVELS];
	__u64 copies[NUM_LEVELS][NUM_DIRECTIONS];
	__u64 bytes[NUM_LEVELS][NUM_DIRECTIONS];
	__u64 hits[NUM_HOOKS][2]; /* entries, by COOKIE_STEPPED */
	__u64 returns[NUM_HOOKS];
	__u64 lost; /* calls that found no room in the table of threads */
	__u64 entered; /* threads that were entered into that table */
	__u64 last_ns;
	__u64 trampoline; /* where the kernel has probed calls return to; 0: not known yet */
	__u64 heads[NUM_MARKS]; /* marks so far */
	struct mark marks[NUM_MARKS][MARKS_KEPT];
};

/* CUDA processes of watched containers, by thread group. User space enters and
 * deletes them; 7 KiB each, taken when entered; more than 1,024 are not counted, and said. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

static __always_inline __u64 launches_of(__u64 *by_level)
{
	__u64 runtime = by_level[LEVEL_RUNTIME], nested = by_level[LEVEL_NESTED];

	return by_level[LEVEL_DIRECT] + (runtime > nested ? runtime : nested);
}

/* Two threads may take neighbouring places at once; a place is torn only if 64
 * marks of one kind pass while it is written. */
static __always_inline void add_mark(struct process *p, __u32 kind, __u32 tid, __u64 now)
{
	__u64 n;
	struct mark *m;

	if (kind >= NUM_MARKS)
		return;
	n = __sync_fetch_and_add(&p->heads[kind], 1);
	m = &p->marks[kind][n % MARKS_KEPT];
	m->at_ns = now;
	m->launches = launches_of(p->kernels) + launches_of(p->graphs);
	m->tid = tid;
	*(volatile __u32 *)&m->seq = (__u32)n + 1;
}

#endif
