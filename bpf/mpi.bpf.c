// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How long is a process inside MPI calls that wait for other ranks?
 *
 * Hooks: entry and return uprobes on the collectives, blocking sends and receives
 * and waits of the MPI library that the process maps. An MPI library waits by
 * spinning, so nothing else tells its waits from work.
 *
 * One call of a process is open at a time, its outermost: MPI programs call from
 * one thread unless they ask for more, and what a second thread waits meanwhile is
 * not added. The thread that is inside owns open_*, by compare and swap on open_of.
 * Calls pair by thread and stack pointer. One whose return is never seen (the hook
 * was off, the thread jumped out of it or ended) closes nothing, and any call takes
 * its place after a minute, or in another turn.
 *
 * Attached for each process by itself (probes/uprobe), so each hit is one of a
 * watched process. Cookie: uprobe.h. Map: processes (below).
 * Minimum kernel 5.15: bpf_get_attach_cookie.
 */
#include "uprobe.h"

struct process {
	__u64 calls;
	__u64 ns;	/* inside calls that have returned */
	__u64 open_of;	/* thread in the upper half, turn in the lower; 0: none is open */
	__u64 open_ns;	/* when it began; 0: nobody can tell */
	__u64 open_sp;	/* the stack pointer at its entry */
	__u64 hits[2];	/* entries, by COOKIE_STEPPED */
	__u64 returns;
	__u64 last_ns;
	__u64 last_of; /* as open_of, of the latest call */
};

#define MAX_OPEN_NS (60ULL * 1000 * 1000 * 1000)

/* MPI processes of watched containers. User space enters and deletes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

static __always_inline __u64 caller(__u64 id, __u64 cookie)
{
	return id << 32 | COOKIE_TURN(cookie);
}

SEC("uprobe")
int on_wait(struct uprobe_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs);
	__u64 of = caller(id, cookie), sp = regs->sp, now = bpf_ktime_get_ns(), was, began;
	__u32 tgid = id >> 32;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);

	if (!p)
		return 0;
	__sync_fetch_and_add(&p->hits[COOKIE_STEPPED(cookie)], 1);
	was = p->open_of;
	began = p->open_ns;
	if (was && (__u32)was == COOKIE_TURN(cookie) && now - began < MAX_OPEN_NS) {
		if (was != of)
			return 0; /* another thread is inside */
		if (began && sp < p->open_sp)
			return 0; /* the library calls itself */
	}
	if (was)
		p->open_ns = 0; /* given up */
	if (__sync_val_compare_and_swap(&p->open_of, was, of) != was)
		return 0;
	__sync_fetch_and_add(&p->calls, 1);
	p->open_sp = sp;
	p->open_ns = now;
	p->last_of = of;
	p->last_ns = now;
	return 0;
}

SEC("uprobe")
int on_return(struct uprobe_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs), began;
	__u32 tgid = id >> 32;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);

	if (!p)
		return 0;
	__sync_fetch_and_add(&p->returns, 1);
	began = p->open_ns;
	if (!began || p->open_of != caller(id, cookie) || regs->sp != p->open_sp + CALL_PUSHES)
		return 0;
	p->last_ns = bpf_ktime_get_ns();
	p->open_ns = 0; /* first: a reader that comes between counts the call later, not twice */
	p->ns += p->last_ns - began;
	p->open_of = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
