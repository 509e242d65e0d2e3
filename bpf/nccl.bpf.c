// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which collectives does a process enqueue, and of how many bytes?
 *
 * Hooks: entry uprobes on NCCL's calls, wherever NCCL is linked. A collective
 * returns at once, so its duration is not to be had here. Communicators tell
 * their size only when they are made.
 *
 * Attached for each process by itself (probes/uprobe). Cookie: uprobe.h.
 * Maps: jobs (below); processes (cuda_process.h), shared with cuda.bpf.c, where a
 * collective leaves its mark.
 * Minimum kernel 5.15: bpf_get_attach_cookie.
 */
#include "cuda_process.h"

#define NUM_COLLECTIVES 8 /* probes.Collective */

#define CODE_KIND(code) ((code)&0xff)
#define KIND_INIT 0x80	/* (comm *, ranks, id by value, rank) */
#define KIND_INIT_FLAT 0x81 /* (comm *, ranks, rank) */
#define KIND_INIT_ALL 0x82  /* (comms, devices) */
/* Elements are counted in argument 2 and their type is argument 3, or one earlier. */
#define CODE_EARLY(code) ((code) >> 8 & 1)

struct job {
	__u64 calls[NUM_COLLECTIVES];
	__u64 bytes[NUM_COLLECTIVES];
	__u64 hits[2]; /* by COOKIE_STEPPED */
	__u64 last_ns;
	/* Of the largest communicator made: ranks in the upper half, rank in the lower. */
	__u64 size;
};

/* Processes with NCCL, by thread group. User space enters and deletes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct job);
} jobs SEC(".maps");

/* ncclDataType_t; types that are not known count one byte. */
static __always_inline __u32 element_shift(__u32 type)
{
	switch (type) {
	case 2: /* int32, uint32, float */
	case 3:
	case 7:
		return 2;
	case 4: /* int64, uint64, double */
	case 5:
	case 8:
		return 3;
	case 6: /* half, bfloat16 */
	case 9:
		return 1;
	}
	return 0;
}

static __always_inline void note_size(struct job *j, __u32 ranks, __u32 rank)
{
	__u64 size = (__u64)ranks << 32 | rank;

	if (ranks > (__u32)(j->size >> 32))
		j->size = size;
}

SEC("uprobe")
int on_collective(struct uprobe_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs), now;
	__u32 tgid = id >> 32, code = COOKIE_CODE(cookie), kind = CODE_KIND(code);
	__u64 arg1 = regs->arg1, arg2 = regs->arg2, arg3 = regs->arg3;
	struct job *j = bpf_map_lookup_elem(&jobs, &tgid);
	struct process *p;

	if (!j)
		return 0;
	KEEP(arg1);
	KEEP(arg2);
	KEEP(arg3);
	__sync_fetch_and_add(&j->hits[COOKIE_STEPPED(cookie)], 1);
	if (kind >= NUM_COLLECTIVES) {
		if (kind == KIND_INIT_ALL)
			note_size(j, (__u32)arg1, 0);
		else if (kind == KIND_INIT && !CALL_PUSHES)
			note_size(j, (__u32)arg1, (__u32)arg3); /* arm64 passes the id by address */
		else
			note_size(j, (__u32)arg1, (__u32)arg2); /* amd64 passes it on the stack */
		return 0;
	}
	now = bpf_ktime_get_ns();
	__sync_fetch_and_add(&j->calls[kind], 1);
	if (CODE_EARLY(code))
		__sync_fetch_and_add(&j->bytes[kind], arg1 << element_shift((__u32)arg2));
	else
		__sync_fetch_and_add(&j->bytes[kind], arg2 << element_shift((__u32)arg3));
	j->last_ns = now;
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (p)
		add_mark(p, MARK_COLLECTIVE, (__u32)id, now);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
