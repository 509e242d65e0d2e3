// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What does a process ask of its GPU, and how long does it wait for it?
 *
 * Hooks: entry uprobes on the launches, graphs and copies of CUDA's runtime
 * (libcudart, or the binary it is linked into) and driver (libcuda); entry and
 * return uprobes on the calls that block, and on asynchronous copies to the device,
 * which block where they come from pageable memory. Launches return at once, so
 * nothing would be learnt from their returns, and a return probe costs as much again.
 *
 * A call of the runtime goes on to the driver. Blocking calls are paired by the
 * stack pointer, so the inner one is known exactly. For the others the return
 * is not seen: a driver call counts as nested while the return address of the
 * thread's latest runtime call still lies where that call found it, at the present
 * stack pointer (the runtime may jump) or above. A wrong guess is harmless unless
 * the driver's entries are bypassed: then calls so misread are missed; none is ever
 * counted twice. Where the driver sees all that the runtime does, user space takes
 * the probes off the runtime's launches.
 *
 * Attached for each process by itself (probes/uprobe), so each hit is one of a
 * watched process.
 *
 * Cookie: uprobe.h; its code says which call it is, see CODE_*.
 * Maps: processes (cuda_process.h), threads and their limits (below).
 * Minimum kernel 5.15: bpf_get_attach_cookie.
 */
#include "cuda_process.h"
#include <bpf/bpf_core_read.h>

#define CODE_OP(code) ((code)&0xff)
#define OP_LAUNCH 0
#define OP_GRAPH 1
#define OP_COPY 2
#define OP_SYNC 3
#define OP_STAGED 4 /* an asynchronous copy that is open; no code has it */
#define CODE_DRIVER(code) ((code) >> 8 & 1)
#define CODE_BLOCKS(code) ((code) >> 9 & 1)
#define CODE_STAGES(code) ((code) >> 10 & 1) /* returns at once, but from pageable memory */
#define CODE_SIZE(code) ((code) >> 12 & 0xf)
#define SIZE_ARG2 0
#define SIZE_ARG4 1
#define SIZE_AREA 2 /* arg4 × arg5 */
/* Where the direction stands: 0..4 is the direction itself. */
#define CODE_DIRECTION(code) ((code) >> 16 & 0xf)
#define DIRECTION_ARG3 8
#define DIRECTION_STACK 9 /* the seventh argument */

/* Asynchronous copies to the device of no more than this return at once from any memory
 * (CUDA's documentation, "API synchronization behavior"), so they are not timed. */
#define STAGED_ABOVE (64 << 10)

/* A driver call further below the runtime's frame than this is not inside it. */
#define MAX_NESTED_BYTES (64 << 10)

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded" /* partial views of kernel types */
struct sched_entity___clock {
	__u64 exec_start;
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));
struct task_struct___clock {
	struct sched_entity___clock se;
} __attribute__((preserve_access_index));
struct xol_area___trampoline {
	unsigned long vaddr;
} __attribute__((preserve_access_index));
struct uprobes_state___trampoline {
	struct xol_area___trampoline *xol_area;
} __attribute__((preserve_access_index));
struct mm_struct___trampoline {
	struct uprobes_state___trampoline uprobes_state;
} __attribute__((preserve_access_index));
struct task_struct___trampoline {
	struct mm_struct___trampoline *mm;
} __attribute__((preserve_access_index));
#pragma clang diagnostic pop

struct thread {
	__u64 epoch; /* of the process; another one: the record is a former process's */
	/* The latest runtime call: the stack pointer at its entry, and its return address. */
	__u64 runtime_sp;
	__u64 runtime_ret;
	/* The blocking call that is open, its outermost frame; open_ns 0: none. */
	__u64 open_sp;
	__u64 open_ret;
	__u64 open_ns;
	__u64 open_sum;   /* se.sum_exec_runtime then */
	__u64 open_start; /* se.exec_start then */
	__u32 open_cpu;
	__u32 open_turn;
	__u32 open_op;
	__u32 open_kib; /* of an asynchronous copy that is timed; 0: it is not */
	__u64 syncs;
	__u64 sync_ns;
	__u64 sync_run_ns;
	__u64 copy_ns;
	__u64 copy_run_ns;
	/* Asynchronous copies to the device that have returned: their time and size. */
	__u64 staged;
	__u64 staged_ns;
	__u64 staged_kib;
	__u64 last_ns;
	__u64 launches[NUM_LEVELS]; /* kernels and graphs */
};

/* Threads that called, by thread group and thread. Threads vanish without a word, and a
 * job may make thousands: user space deletes what is over. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct thread);
} threads SEC(".maps");

/* By thread group: how many threads it may have entered, so that no container takes
 * the room of others. User space writes it at each reading, and deletes it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} thread_limits SEC(".maps");

static __always_inline struct thread *thread_of(struct process *p, __u64 id)
{
	struct thread fresh = {}, *t = bpf_map_lookup_elem(&threads, &id);
	__u32 tgid = id >> 32;
	__u64 *limit;

	if (t && t->epoch == p->epoch)
		return t;
	t = NULL;
	limit = bpf_map_lookup_elem(&thread_limits, &tgid);
	if (limit && p->entered < *limit) {
		__sync_fetch_and_add(&p->entered, 1);
		fresh.epoch = p->epoch;
		bpf_map_update_elem(&threads, &id, &fresh, BPF_ANY);
		t = bpf_map_lookup_elem(&threads, &id);
	}
	if (!t)
		__sync_fetch_and_add(&p->lost, 1);
	return t;
}

static __always_inline __u64 return_address(struct uprobe_regs *regs)
{
	__u64 ret = 0;

	if (CALL_PUSHES)
		bpf_probe_read_user(&ret, sizeof(ret), (void *)regs->sp);
	return ret;
}

/* Is the call that found ret at outer_sp still running, and the one at sp inside it? */
static __always_inline bool inside(__u64 outer_sp, __u64 outer_ret, __u64 sp)
{
	__u64 ret = 0;

	if (!outer_sp || sp > outer_sp || outer_sp - sp > MAX_NESTED_BYTES)
		return false;
	if (!CALL_PUSHES)
		return sp < outer_sp;
	bpf_probe_read_user(&ret, sizeof(ret), (void *)outer_sp);
	return ret == outer_ret;
}

/* Where the kernel has probed calls of this process return to; 0: not known, or no return was probed yet. It is the first
 * slot of the page in which probed instructions are stepped (uprobe_get_trampoline_vaddr). */
static __always_inline __u64 trampoline(void)
{
	struct task_struct___trampoline *task = (void *)bpf_get_current_task();
	struct xol_area___trampoline *area = NULL;

	if (!CALL_PUSHES || !bpf_core_field_exists(area->vaddr))
		return 0;
	area = BPF_CORE_READ(task, mm, uprobes_state.xol_area);
	return area ? BPF_CORE_READ(area, vaddr) : 0;
}

/* Is a call open whose return is probed, and this one inside it? A return is missed where
 * the hook was detached in the middle, so what another turn opened is not believed. The
 * kernel has put a trampoline in place of the return address. It is the same for all calls
 * of a process. Where the kernel's types do not tell it, it is learnt where the call is surely
 * open: in the same turn of its hook. */
static __always_inline bool in_blocking(struct process *p, struct thread *t, __u64 sp, __u32 op, __u32 turn)
{
	bool one_hook = op == t->open_op || (op == OP_COPY && t->open_op == OP_STAGED);
	__u64 ret = 0;

	if (!t->open_ns || sp >= t->open_sp || (one_hook && turn != t->open_turn))
		return false;
	if (inside(t->open_sp, t->open_ret, sp))
		return true;
	if (!CALL_PUSHES || t->open_sp - sp > MAX_NESTED_BYTES)
		return false;
	if (bpf_probe_read_user(&ret, sizeof(ret), (void *)t->open_sp) || !ret)
		return false;
	if (!p->trampoline && one_hook)
		p->trampoline = ret;
	return ret == p->trampoline;
}

/* Is a call of the runtime's still running, and this one inside it? Where its return is probed the trampoline
 * stands in its place: a call that blocked inside has ended what was open. */
static __always_inline bool in_runtime(struct process *p, struct thread *t, __u64 sp)
{
	__u64 ret = 0;

	if (inside(t->runtime_sp, t->runtime_ret, sp))
		return true;
	if (!CALL_PUSHES || !p->trampoline || sp >= t->runtime_sp || t->runtime_sp - sp > MAX_NESTED_BYTES)
		return false;
	return !bpf_probe_read_user(&ret, sizeof(ret), (void *)t->runtime_sp) && ret == p->trampoline;
}

/* Returns the size of a copy to the device in KiB, if it is to be timed though it is asynchronous; else 0. */
static __always_inline __u32 count_copy(struct process *p, struct uprobe_regs *regs, __u32 code, __u32 level, __u32 tid,
					__u64 now)
{
	__u64 arg2 = regs->arg2, arg3 = regs->arg3, arg4 = regs->arg4, arg5 = regs->arg5;
	__u32 direction = CODE_DIRECTION(code);
	__u64 size, above;

	KEEP(arg2);
	KEEP(arg3);
	KEEP(arg4);
	KEEP(arg5);
	size = CODE_SIZE(code) == SIZE_ARG2 ? arg2 : CODE_SIZE(code) == SIZE_ARG4 ? arg4 : arg4 * arg5;
	if (direction == DIRECTION_ARG3) {
		direction = (__u32)arg3;
	} else if (direction == DIRECTION_STACK) {
		/* amd64: above the return address; arm64: in the seventh register, not kept here. */
		direction = COPY_DEFAULT;
		if (CALL_PUSHES && !bpf_probe_read_user(&above, sizeof(above), (void *)(regs->sp + CALL_PUSHES)))
			direction = (__u32)above;
	}
	if (direction >= NUM_DIRECTIONS)
		direction = COPY_DEFAULT;
	if (level >= NUM_LEVELS)
		return 0;
	__sync_fetch_and_add(&p->copies[level][direction], 1);
	__sync_fetch_and_add(&p->bytes[level][direction], size);
	/* One copy is one mark: the runtime's, or the driver's own. */
	if (direction == 1 && level != LEVEL_NESTED)
		add_mark(p, MARK_COPY, tid, now);
	if (!CODE_STAGES(code) || direction != 1 || size <= STAGED_ABOVE)
		return 0;
	return size >> 10 > (__u32)-1 ? (__u32)-1 : (__u32)(size >> 10);
}

static __always_inline void open_call(struct thread *t, __u64 sp, __u64 ret, __u32 op, __u32 kib, __u32 turn, __u64 now)
{
	struct task_struct___clock *task = (void *)bpf_get_current_task();

	t->open_sp = sp;
	t->open_ret = ret;
	t->open_op = op;
	t->open_kib = kib;
	t->open_turn = turn;
	t->open_cpu = bpf_get_smp_processor_id();
	t->open_sum = BPF_CORE_READ(task, se.sum_exec_runtime);
	t->open_start = BPF_CORE_READ(task, se.exec_start);
	t->open_ns = now;
}

/* Attached to the entry of everything. */
SEC("uprobe")
int on_call(struct uprobe_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs);
	__u32 tgid = id >> 32, code = COOKIE_CODE(cookie), op = CODE_OP(code);
	__u32 turn = COOKIE_TURN(cookie), level = LEVEL_RUNTIME, hook, kib = 0;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct thread *t;
	__u64 now, sp;
	bool inner;

	if (!p)
		return 0;
	hook = op == OP_COPY ? HOOK_COPY : HOOK_SYNC;
	if (op == OP_LAUNCH)
		hook = CODE_DRIVER(code) ? HOOK_DRIVER_LAUNCH : HOOK_LAUNCH;
	__sync_fetch_and_add(&p->hits[hook][COOKIE_STEPPED(cookie)], 1);
	t = thread_of(p, id);
	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	sp = regs->sp;
	p->last_ns = now;
	if (!p->trampoline)
		p->trampoline = trampoline();

	inner = in_blocking(p, t, sp, op, turn);
	if (CODE_DRIVER(code)) {
		level = inner || in_runtime(p, t, sp) ? LEVEL_NESTED : LEVEL_DIRECT;
	} else {
		if (inner && op == t->open_op)
			return 0; /* the runtime calls itself */
		t->runtime_sp = sp;
		t->runtime_ret = return_address(regs);
	}
	if (level < NUM_LEVELS && (op == OP_LAUNCH || op == OP_GRAPH))
		t->launches[level]++;
	if (op == OP_LAUNCH) {
		__sync_fetch_and_add(&p->kernels[level], 1);
	} else if (op == OP_GRAPH) {
		__sync_fetch_and_add(&p->graphs[level], 1);
		if (level != LEVEL_NESTED)
			add_mark(p, MARK_GRAPH, (__u32)id, now);
	} else if (op == OP_COPY) {
		kib = count_copy(p, regs, code, level, (__u32)id, now);
	}
	if (CODE_STAGES(code) && !inner)
		open_call(t, sp, return_address(regs), OP_STAGED, kib, turn, now);
	/* A call that blocks inside an asynchronous one is timed in its place. */
	if (CODE_BLOCKS(code) && (!inner || t->open_op == OP_STAGED))
		open_call(t, sp, return_address(regs), op, 0, turn, now);
	return 0;
}

/* The part of a call of wall ns that was on a CPU. sum_exec_runtime is brought up
 * to date only at ticks and switches, when exec_start moves along, so the two
 * together are exact, on one CPU: CPUs' clocks differ by what was stolen of them. */
static __always_inline __u64 time_on_cpu(struct thread *t, __u64 wall)
{
	struct task_struct___clock *task = (void *)bpf_get_current_task();
	__s64 ran = BPF_CORE_READ(task, se.sum_exec_runtime) - t->open_sum;

	if (t->open_cpu == bpf_get_smp_processor_id())
		ran += wall - (BPF_CORE_READ(task, se.exec_start) - t->open_start);
	return ran < 0 ? 0 : (__u64)ran > wall ? wall : (__u64)ran;
}

/* Attached to the return of calls that block. Kernels before 6.12 may run it for
 * several attachments; the call is closed by the first. */
SEC("uprobe")
int on_return(struct uprobe_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs);
	__u32 tgid = id >> 32;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct thread *t;
	__u64 now, wall, ran;

	if (!p)
		return 0;
	__sync_fetch_and_add(&p->returns[CODE_OP(COOKIE_CODE(cookie)) == OP_COPY ? HOOK_COPY : HOOK_SYNC], 1);
	t = bpf_map_lookup_elem(&threads, &id);
	if (!t || t->epoch != p->epoch)
		return 0;
	if (regs->sp == t->runtime_sp + CALL_PUSHES)
		t->runtime_sp = 0; /* the trampoline may stand there for a while */
	if (!t->open_ns || t->open_turn != COOKIE_TURN(cookie) ||
	    regs->sp != t->open_sp + CALL_PUSHES)
		return 0;
	now = bpf_ktime_get_ns();
	wall = now - t->open_ns;
	t->open_ns = 0;
	if (t->open_op == OP_STAGED) {
		if (t->open_kib) {
			t->staged++;
			t->staged_ns += wall;
			t->staged_kib += t->open_kib;
		}
		return 0;
	}
	ran = time_on_cpu(t, wall);
	if (t->open_op == OP_COPY) {
		t->copy_ns += wall;
		t->copy_run_ns += ran;
	} else {
		t->syncs++;
		t->sync_ns += wall;
		t->sync_run_ns += ran;
		add_mark(p, MARK_SYNC, (__u32)id, now);
	}
	t->last_ns = now;
	p->last_ns = now;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
