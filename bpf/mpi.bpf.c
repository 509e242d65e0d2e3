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
 * not added. Calls pair by thread and stack pointer, so that one whose return was
 * missed (the hook was off, the thread jumped out of it) closes nothing.
 *
 * Attached for each process by itself (probes/uprobe), so each hit is one of a
 * watched process. Cookie: uprobe.h. Map: processes (below).
 * Minimum kernel 5.15: bpf_get_attach_cookie.
 */
#include "uprobe.h"

struct process {
	__u64 calls;
	__u64 ns;	/* inside calls that have returned */
	__u64 open_ns;	/* when the open one began; 0: none */
	__u64 open_sp;	/* the stack pointer at its entry */
	__u64 open_of;	/* its thread in the upper half, its turn in the lower */
	__u64 hits[2];	/* entries, by COOKIE_STEPPED */
	__u64 returns;
	__u64 last_ns;
};

/* MPI processes of watched containers. User space enters and deletes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
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
	__u64 of = caller(id, cookie), sp = regs->sp;
	__u32 tgid = id >> 32;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);

	if (!p)
		return 0;
	__sync_fetch_and_add(&p->hits[COOKIE_STEPPED(cookie)], 1);
	if (p->open_ns && (__u32)p->open_of == COOKIE_TURN(cookie)) {
		if (p->open_of != of)
			return 0; /* another thread is inside */
		if (sp < p->open_sp)
			return 0; /* the library calls itself */
	}
	__sync_fetch_and_add(&p->calls, 1);
	p->open_sp = sp;
	p->open_of = of;
	p->open_ns = bpf_ktime_get_ns();
	p->last_ns = p->open_ns;
	return 0;
}

SEC("uprobe")
int on_return(struct uprobe_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs), now;
	__u32 tgid = id >> 32;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);

	if (!p)
		return 0;
	__sync_fetch_and_add(&p->returns, 1);
	if (!p->open_ns || p->open_of != caller(id, cookie) || regs->sp != p->open_sp + CALL_PUSHES)
		return 0;
	now = bpf_ktime_get_ns();
	p->ns += now - p->open_ns;
	p->last_ns = now;
	p->open_ns = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
