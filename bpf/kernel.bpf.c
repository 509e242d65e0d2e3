// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Where does the wall time of each thread of a watched container go, and who
 * ended its waits?
 *
 * Hooks, all by BTF, so that no kprobe or fentry is needed:
 *   sched_switch        closes the interval of the thread that leaves the CPU and
 *                       of the one that comes: the only writer of counters
 *   sched_waking        runs where the waker runs: leaves its name in the mailbox
 *   sched_wakeup[_new]  runs with the target run queue's lock held: notes that
 *                       queue and its throttled clock
 *   sched_process_fork, sched_process_exit, cgroup_attach_task
 *                       give a thread its counters and take them
 *   block_rq_issue/complete, mm_vmscan_*_reclaim_begin/end
 *   iter/task           seeding and reading
 * No system call is traced: an attached syscall tracepoint slows each call of
 * the host, and no BPF accounting shows it.
 *
 * An unwatched thread costs one load: task->bpf_storage is NULL.
 * Minimum kernel 5.15: bpf_task_pt_regs, task storage in tracing programs.
 */
#include "core_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "account.h"
#include "block.h"
#include "classify.h"
#include "container.h"
#include "followed.h"
#include "thread.h"

/* Room: a fork bomb costs at most max_threads times the size of struct thread. */
const volatile __u64 max_threads = 16384;
const volatile __u64 max_threads_per_container = 4096;
/* THREAD_SIZE: 16 KiB on amd64, and on arm64 with pages of up to 16 KiB. */
const volatile __u64 kernel_stack_bytes = 16384;

/* Set by user space before a reading that must also find new threads. */
volatile __u32 seed = 0;
/* Set here when threads moved that were not visited: the next reading seeds. */
volatile __u32 want_seed = 0;
__u64 num_threads = 0;
/* Counted up by user space before it drains the exits. */
volatile __u32 exit_turn = 0;

/* Final records. Drained at each reading without a wake-up; about 4,000 short
 * threads fit, a fifth of them of one container. Beyond that they count as lost. */
#define EXITS_BYTES (1 << 21)
#define RING_HEADER_BYTES 8 /* of each record, BPF_RINGBUF_HDR_SZ */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EXITS_BYTES);
} exits SEC(".maps");

/* From Linux 6.10 on; checked for, since older kernels have neither. */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* Up to 6.19 the kernel runs a tracepoint's programs with preemption off. From 7.0 on
 * (a46023d5616e) it does not: who preempts would find the scratch in use, and a program that
 * is entered again on its CPU is not run at all. */
static __always_inline void hold_cpu(void)
{
	if (bpf_preempt_disable)
		bpf_preempt_disable();
}

static __always_inline void let_cpu_go(void)
{
	if (bpf_preempt_enable)
		bpf_preempt_enable();
}

/* Scratch: a record is too large for the stack. Tracepoint programs hold the CPU
 * and share one; the iterator can be preempted by them and has its own. */
enum { SCRATCH_EVENT = 0, SCRATCH_ITER = 1, NUM_SCRATCH = 2 };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NUM_SCRATCH);
	__type(key, __u32);
	__type(value, struct record);
} scratch SEC(".maps");

/* Gives back the room of a thread. */
static __always_inline void release(struct container *c)
{
	__sync_fetch_and_add(&num_threads, -1);
	if (c)
		__sync_fetch_and_add(&c->threads, -1);
}

/* ---- switches and wakings ---- */

/* A thread's last switch finds its counters where its exit was missed: from Linux 7.0 on the
 * kernel leaves out a program that was preempted on its CPU before it held it. They go with the task. */
static __always_inline void exit_was_missed(struct thread *th)
{
	struct container *c = container_of_slot(th->slot, th->gen);

	count_lost(c);
	release(c);
}

static __always_inline void leave(struct task_struct *task, struct thread *th, bool preempt, __u64 now)
{
	/* The fourth argument of newer kernels is not used: with the run queue's lock held,
	 * __state of a thread that was taken off the queue stays non-zero until it is
	 * switched out (a waker in between makes it TASK_WAKING), and one that was not
	 * taken off has state 0 or is being preempted. */
	__u32 task_state = task->__state;

	write_begin(th);
	/* STATE_RUN, unless the switch in was missed: then whatever was open ends here. */
	if (now > th->since_ns) {
		add_interval(th, th->state, now - th->since_ns, now, true);
		th->since_ns = now;
	}
	if (preempt || !task_state) {
		th->state = STATE_QUEUED;
		th->preempted++;
		note_queue(th, task, now);
	} else {
		th->state = sleep_state(task, task_state, th, true);
		if (task_state & TASK_DEAD)
			exit_was_missed(th);
	}
	write_end(th);
}

/* sibling: the CPU comes from a thread of the same container. The whole wait is
 * then charged to siblings: who ran in its earlier part is not known, and evens
 * out over many waits.
 * idle: it comes from nobody. A thread that was also put on an idle CPU waited for
 * that to wake up: for an interrupt between CPUs, and for the hypervisor, which may
 * have given the CPU away. There was no other work that it stood behind. */
static __always_inline void enter(struct task_struct *task, struct thread *th, __u64 now, bool sibling, bool idle)
{
	__u64 queued = th->ns[STATE_QUEUED];

	write_begin(th);
	close_interval(th, task, now, 0, true, true);
	if (sibling)
		th->sibling_ns += th->ns[STATE_QUEUED] - queued;
	else if (idle && th->found_idle)
		th->alone_ns += th->ns[STATE_QUEUED] - queued;
	th->state = STATE_RUN;
	th->count[STATE_RUN]++;
	th->wake_ns = 0;
	th->cfs_rq = 0;
	write_end(th);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *out = lookup(prev);
	struct thread *in = lookup(next);
	__u64 now = 0; /* read once for both */

	if (out) {
		now = bpf_ktime_get_ns();
		leave(prev, out, preempt, now);
	}
	if (in) {
		if (!now)
			now = bpf_ktime_get_ns();
		enter(next, in, now, out && out->slot == in->slot && out->gen == in->gen, !prev->pid);
	}
	return 0;
}

/* Whether the current task itself wakes, from a system call, and not an
 * interrupt that came upon it. Interrupts and soft interrupts that come in kernel
 * mode run on stacks of their own (amd64, arm64), and ctx lies on the caller's
 * stack; one that comes in user mode may run on the task's stack, but its entry
 * has marked the saved registers as those of no system call. */
static __always_inline bool wakes_itself(void *ctx, struct task_struct *current)
{
	__u64 begin = (__u64)current->stack;
	__u64 end = begin + kernel_stack_bytes;
	__u64 here = (__u64)ctx;
	struct call call;

	asm volatile("" : "+r"(end), "+r"(begin), "+r"(here));
	if (here < begin)
		return false;
	asm volatile("" : "+r"(here));
	if (here >= end)
		return false;
	current_call(current, &call);
	return call.nr >= 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct thread *th = lookup(task);
	struct task_struct *current;
	__s32 waker = WAKER_INTERRUPT;

	if (!th)
		return 0;
	current = bpf_get_current_task_btf();
	if (!(current->flags & PF_KTHREAD) && wakes_itself(ctx, current))
		waker = current->pid;
	if (current == task)
		return 0; /* it had not left the CPU */
	th->waker = waker;
	th->wake_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int queued(struct task_struct *task)
{
	struct thread *th = lookup(task);

	/* A waking that found the thread still queued or running changes nothing. */
	if (th && th->state != STATE_RUN && (th->state != STATE_QUEUED || !th->cfs_rq))
		note_queue(th, task, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return queued(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return queued(task);
}

/* ---- threads come and go ---- */

/* Read whatever size the kernel gives it: of an int four bytes, of a byte one, since the
 * verifier refuses a load that goes beyond the field. */
static __always_inline bool on_a_cpu(struct task_struct *task)
{
	return BPF_CORE_READ_BITFIELD(task, on_cpu);
}

static __always_inline bool reserve(struct container *c)
{
	if (c->threads >= max_threads_per_container || !has_share(c->threads, num_threads, max_threads))
		return false;
	__sync_fetch_and_add(&num_threads, 1);
	__sync_fetch_and_add(&c->threads, 1);
	return true;
}

/* Takes a thread's counters away: its room is given back once, whoever else takes them. */
static __always_inline void forget(struct task_struct *task, struct container *c)
{
	if (!bpf_task_storage_delete(&threads, task))
		release(c);
}

/* Edges stay: num_edges says that none is used. */
static __always_inline void clear(struct thread *th)
{
	volatile __u64 *word = (volatile __u64 *)th;
	__u32 i;

	for (i = 0; i < offsetof(struct thread, edges) / sizeof(*word); i++)
		word[i] = 0;
}

/* Bytes that the task read and wrote by any call: files, pipes, sockets. 0 where the kernel
 * does not account them. */
static __always_inline __u64 io_bytes(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->ioac.rchar))
		return 0;
	return task->ioac.rchar + task->ioac.wchar;
}

/* Bytes of files that the task wrote, counted when it does and not when they reach a disk. */
static __always_inline __u64 written(struct task_struct *task)
{
	return bpf_core_field_exists(task->ioac.write_bytes) ? task->ioac.write_bytes : 0;
}

/* Gives a task storage in the given state, if a watched container holds it. */
static __always_inline void adopt(struct task_struct *task, __u32 state, __u32 scratch_key)
{
	struct slot_ref *ref = find_watched(task_cgroup(task), TREE_TASKS);
	struct container *c;
	struct record *r;
	struct thread *th;

	/* PF_EXITING is raised before sched_process_exit: what exits is not taken up again. */
	if (!ref || task->flags & PF_EXITING)
		return;
	c = container_of_slot(ref->slot, ref->gen);
	r = bpf_map_lookup_elem(&scratch, &scratch_key);
	if (!c || !r)
		return;
	if (!reserve(c)) {
		count_lost(c);
		return;
	}
	th = &r->thread;
	clear(th);
	th->slot = ref->slot;
	th->gen = ref->gen;
	th->state = state;
	th->first_ns = th->since_ns = bpf_ktime_get_ns();
	th->io_bytes = io_bytes(task);
	th->faults = task->min_flt;
	th->written = written(task);
	if (!bpf_task_storage_get(&threads, task, th, BPF_LOCAL_STORAGE_GET_F_CREATE)) {
		release(c);
		count_lost(c);
	}
}

/* Copies a thread's counters when no writer is inside, at *now. A writer needs
 * about 200 ns, so the tries that find one inside are over quickly. */
#define MAX_TRIES 32
static __always_inline bool copy_whole(struct thread *th, struct thread *to, __u64 *now)
{
	__u64 seq;
	int i;

	for (i = 0; i < MAX_TRIES; i++) {
		seq = *(volatile __u64 *)&th->seq;
		if (seq & 1) {
			bpf_ktime_get_ns(); /* let it go on */
			continue;
		}
		bpf_probe_read_kernel(to, sizeof(*to), th);
		*now = bpf_ktime_get_ns();
		if (*(volatile __u64 *)&th->seq == seq)
			return true;
	}
	return false;
}

/* A copy of a thread's counters with its open interval closed at at_ns. */
static __always_inline bool snapshot(struct thread *th, struct task_struct *task, struct record *r, bool woken)
{
	struct thread *copy = &r->thread;
	__u64 now;

	if (!copy_whole(th, copy, &now))
		return false;
	close_interval(copy, task, now, now + (__u64)copy->clock_skew, woken, false);
	r->at_ns = copy->since_ns;
	/* The flag, since an end may be missed: who is not in reclaim would seem to be till the next. */
	if (copy->reclaim_since_ns && task->flags & PF_MEMALLOC && now > copy->reclaim_since_ns)
		copy->reclaim_ns += now - copy->reclaim_since_ns;
	return true;
}

/* Fills a record and returns the bytes to send. */
static __always_inline __u32 fill(struct task_struct *task, struct thread *th, struct record *r, __u32 flags)
{
	__u32 task_state = task->__state;
	__u32 edges;

	if (!snapshot(th, task, r, task_state == 0 || task_state == TASK_WAKING)) {
		flags |= RECORD_TORN;
		r->at_ns = bpf_ktime_get_ns();
		r->thread.slot = th->slot;
		r->thread.gen = th->gen;
		r->thread.num_edges = 0;
	}
	if (task_state & TASK_STOPPED)
		flags |= RECORD_STOPPED;
	r->thread.io_bytes = io_bytes(task) - th->io_bytes;
	r->thread.faults = task->min_flt - th->faults;
	r->thread.written = written(task) - th->written;
	r->flags = flags;
	r->start_boot_ns = task->start_boottime;
	r->tid = task->pid;
	r->tgid = task->tgid;
	r->ppid = task->real_parent->tgid;
	__builtin_memcpy(r->comm, task->comm, COMM_LEN);
	edges = r->thread.num_edges;
	if (edges > MAX_EDGES + 1)
		edges = MAX_EDGES + 1;
	return offsetof(struct record, thread.edges) + edges * sizeof(struct edge);
}

/* Takes a container's share of the exit buffer. What is in it of former turns is being drained. */
static __always_inline bool reserve_exit(struct container *c, __u32 size)
{
	if (c->exit_turn != exit_turn) {
		c->exit_turn = exit_turn;
		c->exit_bytes = 0;
	}
	if (!has_share(c->exit_bytes, bpf_ringbuf_query(&exits, RING_UNREAD), EXITS_BYTES))
		return false;
	__sync_fetch_and_add(&c->exit_bytes, size + RING_HEADER_BYTES);
	return true;
}

/* Sends the final counters and takes the storage away. */
static __always_inline void dismiss(struct task_struct *task, struct thread *th)
{
	struct container *c = container_of_slot(th->slot, th->gen);
	__u32 key = SCRATCH_EVENT, size;
	struct record *r = bpf_map_lookup_elem(&scratch, &key);

	if (r && c) {
		size = fill(task, th, r, RECORD_EXITED);
		if (size > sizeof(*r) || !reserve_exit(c, size) || bpf_ringbuf_output(&exits, r, size, BPF_RB_NO_WAKEUP))
			count_lost(c);
	}
	forget(task, c);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	hold_cpu();
	adopt(child, STATE_QUEUED, SCRATCH_EVENT);
	let_cpu_go();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *th;

	hold_cpu();
	th = lookup(task);
	if (th)
		dismiss(task, th);
	let_cpu_go();
	return 0;
}

static __always_inline void moved(struct task_struct *task)
{
	struct slot_ref *ref = find_watched(task_cgroup(task), TREE_TASKS);
	struct thread *th = lookup(task);

	if (th && ref && th->slot == ref->slot && th->gen == ref->gen)
		return;
	if (th)
		dismiss(task, th);
	if (ref)
		adopt(task, on_a_cpu(task) ? STATE_RUN : STATE_QUEUED, SCRATCH_EVENT);
}

/* Raised in any hierarchy, for the leader alone even when its whole process
 * moves: the other threads are left to the next reading. The task's cgroups are
 * switched by now. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_attach, struct cgroup *dst, const char *path, struct task_struct *task, bool threadgroup)
{
	if (threadgroup && task->signal->nr_threads > 1)
		want_seed = 1;
	hold_cpu();
	moved(task);
	let_cpu_go();
	return 0;
}

/* ---- reading ---- */

/* What a thread that was not followed so far does now. */
static __always_inline __u32 present_state(struct task_struct *task)
{
	__u32 task_state = task->__state;

	if (on_a_cpu(task))
		return STATE_RUN;
	if (!task_state || task_state == TASK_WAKING)
		return STATE_QUEUED;
	return sleep_state(task, task_state, NULL, false);
}

SEC("iter/task")
int read_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 key = SCRATCH_ITER, size;
	struct thread *th;
	struct record *r;

	if (!task || task->exit_state)
		return 0;
	th = lookup(task);
	if (!th && seed) {
		adopt(task, present_state(task), SCRATCH_ITER);
		th = lookup(task);
	}
	if (!th)
		return 0;
	if (!container_of_slot(th->slot, th->gen)) {
		forget(task, NULL);
		return 0;
	}
	r = bpf_map_lookup_elem(&scratch, &key);
	if (!r)
		return 0;
	size = fill(task, th, r, 0);
	if (size <= sizeof(*r))
		bpf_seq_write(ctx->meta->seq, r, size);
	return 0;
}

/* ---- direct reclaim: written by the thread itself ---- */

static __always_inline int reclaim_begin(void)
{
	struct thread *th = lookup(bpf_get_current_task_btf());

	if (th)
		th->reclaim_since_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int reclaim_end(void)
{
	struct thread *th = lookup(bpf_get_current_task_btf());
	__u64 now;

	if (!th || !th->reclaim_since_ns)
		return 0;
	now = bpf_ktime_get_ns();
	if (now > th->reclaim_since_ns)
		th->reclaim_ns += now - th->reclaim_since_ns;
	th->reclaim_since_ns = 0;
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(on_reclaim_begin)
{
	return reclaim_begin();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_reclaim_end)
{
	return reclaim_end();
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(on_memcg_reclaim_begin)
{
	return reclaim_begin();
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_memcg_reclaim_end)
{
	return reclaim_end();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
