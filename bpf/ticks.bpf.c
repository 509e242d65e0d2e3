// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How often does a process enter functions that a training framework calls once for
 * each step, pass or round?
 *
 * Hook: an entry uprobe on each function of the table in probes/counted.go. Entry
 * only: a return probe costs more, and the duration is not asked for.
 *
 * Attached for each process by itself (probes/uprobe), so each hit is one of a
 * watched process, once.
 *
 * Minimum kernel 5.15: bpf_get_attach_cookie.
 */
#include "uprobe.h"

#define MAX_FUNCTIONS 24 /* of the table */
#define MAX_LIBRARIES 2 /* that have the same function; the last place is that of all further ones */

struct ticks {
	__u64 count[MAX_LIBRARIES][MAX_FUNCTIONS]; /* by COOKIE_LIBRARY and COOKIE_CODE */
	__u64 last_ns[MAX_FUNCTIONS]; /* in any library */
	__u64 stepped; /* a bit for each: its hits are single-stepped, by COOKIE_STEPPED */
};

/* Processes of watched containers. User space enters and deletes them; the room
 * is that of the processes it looks at. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct ticks);
} processes SEC(".maps");

SEC("uprobe")
int on_entry(void *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct ticks *p = bpf_map_lookup_elem(&processes, &tgid);
	__u32 i = COOKIE_CODE(cookie), library = COOKIE_LIBRARY(cookie);

	if (!p || i >= MAX_FUNCTIONS)
		return 0;
	if (library >= MAX_LIBRARIES)
		library = MAX_LIBRARIES - 1;
	__sync_fetch_and_add(&p->count[library][i], 1);
	p->last_ns[i] = bpf_ktime_get_ns();
	if (COOKIE_STEPPED(cookie))
		p->stepped |= 1ULL << i; /* never cleared: a write that is lost comes again */
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
