/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_ACCOUNT_H
#define TRIMTAB_ACCOUNT_H

/* The arithmetic of a thread's counters. Invariant: the sum of ns equals
 * since_ns - first_ns, whatever events were missed, because an interval only
 * ends by being charged in full. */

#include "core_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "thread.h"

#define MAX_RT_PRIO 100

/* A writer's section. x86 keeps stores in order; elsewhere a fully ordered
 * atomic stands on both sides. */
#if defined(__TARGET_ARCH_x86)
#define barrier() asm volatile("" ::: "memory")
static __always_inline void write_begin(struct thread *th)
{
	*(volatile __u64 *)&th->seq += 1;
	barrier();
}
static __always_inline void write_end(struct thread *th)
{
	barrier();
	*(volatile __u64 *)&th->seq += 1;
}
#else
static __always_inline void write_begin(struct thread *th)
{
	__sync_fetch_and_add(&th->seq, 1);
}
static __always_inline void write_end(struct thread *th)
{
	__sync_fetch_and_add(&th->seq, 1);
}
#endif

/* The time that a run queue has spent throttled, itself or through an ancestor,
 * at rq clock "clock" (0: the queue's own, which stands still while its CPU
 * idles). READ is direct or by probe.
 *
 * 5.15 keeps throttled_clock_task_time; 64eaf50731ac ("sched/fair: Fix
 * cfs_rq_clock_pelt() for throttled cfs_rq", 5.19) renamed it to
 * throttled_clock_pelt_time; 677ea015f231 ("sched: add throttled time stat for
 * throttled children", 6.6) added throttled_clock_self_time, in wall time. */
#define READ_DIRECT(q, f) ((q)->f)
#define READ_DIRECT_RQ(q, f) ((q)->rq->f)
#define READ_PROBE(q, f) BPF_CORE_READ(q, f)
#define READ_PROBE_RQ(q, f) BPF_CORE_READ(q, rq, f)
#define DEFINE_THROTTLED_CLOCK(name, READ)                                                        \
	static __always_inline __u64 name(struct cfs_rq *q, __u64 clock)                          \
	{                                                                                         \
		__u64 total = 0, begin;                                                           \
                                                                                                  \
		if (bpf_core_field_exists(q->throttled_clock_self_time)) {                        \
			total = READ(q, throttled_clock_self_time);                               \
			begin = READ(q, throttled_clock_self);                                    \
			if (!begin)                                                               \
				return total;                                                     \
			if (!clock)                                                               \
				clock = READ##_RQ(q, clock);                                       \
		} else if (bpf_core_field_exists(q->throttled_clock_pelt_time)) {                 \
			total = READ(q, throttled_clock_pelt_time);                               \
			if (!READ(q, throttle_count))                                             \
				return total;                                                     \
			begin = READ(q, throttled_clock_pelt);                                    \
			clock = READ##_RQ(q, clock_pelt) - READ##_RQ(q, lost_idle_time);            \
		} else if (bpf_core_field_exists(q->throttled_clock_task_time)) {                 \
			total = READ(q, throttled_clock_task_time);                               \
			if (!READ(q, throttle_count))                                             \
				return total;                                                     \
			begin = READ(q, throttled_clock_task);                                    \
			clock = READ##_RQ(q, clock_task);                                          \
		} else {                                                                          \
			return 0;                                                                 \
		}                                                                                 \
		return clock > begin ? total + (clock - begin) : total;                           \
	}
DEFINE_THROTTLED_CLOCK(throttled_clock, READ_DIRECT)
DEFINE_THROTTLED_CLOCK(throttled_clock_probe, READ_PROBE)

/* Remembers the run queue that a thread has been put on. Called with that
 * queue's lock held, its clock fresh. */
static __always_inline void note_queue(struct thread *th, struct task_struct *task, __u64 now)
{
	struct cfs_rq *q = task->se.cfs_rq;

	if (!q || task->prio < MAX_RT_PRIO) {
		th->cfs_rq = 0;
		th->found_idle = 0;
		return;
	}
	th->found_idle = q->rq->curr == q->rq->idle;
	th->clock_skew = (__s64)(q->rq->clock - now);
	th->throttled_ns = throttled_clock(q, 0);
	th->cfs_rq = (__u64)q;
}

/* The throttled part of a wait of wait_ns that began at note_queue. The thread
 * may have been moved: the queue it was put on is then read through its old
 * address, and what that says is clamped to the wait. */
static __always_inline __u64 throttled_part(struct thread *th, struct task_struct *task, __u64 wait_ns, __u64 clock)
{
	struct cfs_rq *q = task->se.cfs_rq;
	__u64 total;
	__s64 part;

	if (!th->cfs_rq)
		return 0;
	if ((__u64)q == th->cfs_rq)
		total = throttled_clock(q, clock);
	else
		total = throttled_clock_probe((struct cfs_rq *)th->cfs_rq, clock);
	part = (__s64)(total - th->throttled_ns);
	if (part <= 0)
		return 0;
	return (__u64)part < wait_ns ? (__u64)part : wait_ns;
}

static __always_inline void add_interval(struct thread *th, __u32 state, __u64 ns, __u64 end_ns, bool ended)
{
	state &= NUM_STATES - 1;
	th->ns[state] += ns;
	if (ended) {
		if (state != STATE_RUN) /* runs are counted by switches in */
			th->count[state]++;
		th->last_ns[state] = end_ns;
	}
}

static __always_inline void start_edge(struct edge *e, __s32 waker, __u32 state)
{
	e->waker = waker;
	e->state = state;
	e->count = 0;
	e->ns = 0;
}

static __always_inline void add_edge(struct thread *th, __s32 waker, __u32 state, __u64 ns)
{
	__u32 n = th->num_edges, i;
	struct edge *e;

	for (i = 0; i < MAX_EDGES && i < n; i++) {
		e = &th->edges[i];
		if (e->waker == waker && e->state == state)
			goto found;
	}
	if (n < MAX_EDGES) {
		th->num_edges = n + 1;
		asm volatile("" : "+r"(n)); /* keep the mask, the verifier needs it */
		e = &th->edges[n & (MAX_EDGES - 1)];
		start_edge(e, waker, state);
		goto found;
	}
	e = &th->edges[MAX_EDGES];
	if (n == MAX_EDGES) {
		th->num_edges = MAX_EDGES + 1;
		start_edge(e, WAKER_OVERFLOW, STATE_OTHER);
	}
found:
	e->count++;
	e->ns += ns;
}

/* Charges the run-queue wait from since_ns to now. */
static __always_inline void close_queue(struct thread *th, struct task_struct *task, __u64 now, __u64 clock, bool ended)
{
	__u64 wait = now - th->since_ns;
	__u64 throttled = throttled_part(th, task, wait, clock);

	if (throttled)
		add_interval(th, STATE_THROTTLED, throttled, now - (wait - throttled), ended);
	if (wait > throttled || !throttled)
		add_interval(th, STATE_QUEUED, wait - throttled, now, ended);
	th->since_ns = now;
}

/* Charges the open interval up to now. A sleep ends at its waking, the run
 * queue follows. A waking older than the sleep is the one that came while the
 * thread was on its way out: it counts once the thread is known to be woken.
 * ended: the thread is switched in, so waits count and name their waker. */
static __always_inline void close_interval(struct thread *th, struct task_struct *task, __u64 now, __u64 clock,
					   bool woken, bool ended)
{
	__u32 state = th->state & (NUM_STATES - 1);
	__u64 wake = th->wake_ns;

	if (now < th->since_ns)
		now = th->since_ns; /* clocks of two CPUs may differ by a little */
	if (state == STATE_QUEUED) {
		close_queue(th, task, now, clock, ended);
		return;
	}
	if (state == STATE_RUN) {
		add_interval(th, STATE_RUN, now - th->since_ns, now, ended);
		th->since_ns = now;
		return;
	}
	if (!wake || (wake < th->since_ns && !woken) || wake > now)
		wake = now;
	if (wake < th->since_ns)
		wake = th->since_ns;
	add_interval(th, state, wake - th->since_ns, wake, ended);
	if (ended)
		add_edge(th, th->wake_ns ? th->waker : WAKER_INTERRUPT, state, wake - th->since_ns);
	th->since_ns = wake;
	if (wake < now)
		close_queue(th, task, now, clock, ended);
}

#endif
