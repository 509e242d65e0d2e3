// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What did the TCP sockets of a watched container move, and what did they wait for?
 *
 * Hooks:
 *   iter/task_file             one pass over the open files of the host. It finds sockets that
 *                              were connected long before, in every network namespace, and needs
 *                              no entry into one: iter/tcp walks the opener's namespace alone.
 *   tp_btf/inet_sock_set_state the final counters of a socket that closes, a rare event
 *
 * A socket belongs to the container of a process that holds it; at its close no
 * process may hold it any more, and it belongs to the cgroup that made it.
 * Not seen: sockets in no descriptor table (io_uring's fixed files, the kernel's own),
 * MPTCP's subflows, UDP.
 *
 * Map lifetimes: watched and containers as in container.h; passes is overwritten
 * by each pass. Minimum kernel 5.15: socket cookies in tracing programs (5.12),
 * sock_cgroup_data's plain pointer (5.15).
 */
#include "core_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "container.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define LOOPBACK_NET 127
/* enum tcp state, include/net/tcp_states.h */
#define TCP_SYN_SENT 2
#define TCP_CLOSE 7
#define TCP_LISTEN 10
/* enum tcp_chrono, include/linux/tcp.h */
#define NUM_CHRONO 3
/* First and second half of an IPv4 address mapped into IPv6, as 32-bit words. */
#define MAPPED_PREFIX bpf_htonl_const(0xffff)
#define bpf_htonl_const(x) __builtin_bswap32(x)

/* Records of one container in one pass: a socket shared by forked loaders comes
 * once for each descriptor. */
const volatile __u32 max_records = 16384;
/* Counted up by user space before each pass. */
volatile __u32 pass = 0;
__u64 lost_total = 0; /* final counters that found no room */

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded" /* partial views of kernel types */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};
struct sock_common___tcp {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};
struct sock_cgroup_data {
	struct cgroup *cgroup;
};
struct sock___tcp {
	struct sock_common___tcp __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
};
struct tcp_sock {
	__u64 bytes_received;
	__u64 bytes_acked;
	__u32 data_segs_out;
	__u32 total_retrans;
	__u32 srtt_us;
	__u32 snd_cwnd;
	__u32 mss_cache;
	__u32 write_seq;
	__u32 snd_nxt;
	__u32 chrono_start;
	__u32 chrono_stat[NUM_CHRONO];
	__u8 chrono_type : 2; /* a bit field to 6.8 */
};
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop
#pragma clang diagnostic pop

/* One socket: what user space reads. */
struct sock_record {
	__u64 cookie;
	__u32 slot;
	__u32 gen;
	__u64 rx_bytes;
	__u64 tx_bytes; /* acknowledged */
	__u32 segments; /* sent with data; wraps */
	__u32 retransmits;
	__u32 srtt_us; /* as the kernel keeps it: 8 times */
	__u32 window;  /* of congestion, bytes */
	__u32 unsent;  /* bytes written by the application that the socket could not send yet */
	__u8 state;
	__u8 loopback;
	__u8 pad[2];
	/* In the kernel's ticks: now, with data outstanding, and of that the time the
	 * receiver's window or the sender's buffer was the bound. */
	__u32 now_ticks;
	__u32 chrono[NUM_CHRONO];
};

/* What one container had in the latest pass; user space reads it after the pass. */
struct pass_count {
	__u32 pass;
	__u32 records;
	__u32 dropped; /* beyond max_records */
	__u32 closed_pass;
	__u32 closed; /* final records since that pass began */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CONTAINERS);
	__type(key, __u32);
	__type(value, struct pass_count);
} passes SEC(".maps");

/* Final records, drained at each reading without a wake-up: 2,700 fit, a fifth of them of
 * one container. */
#define CLOSED_BYTES (1 << 18)
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, CLOSED_BYTES);
} closed SEC(".maps");

/* Keeps struct sock_record's type for bpf2go. */
const struct sock_record *unused_record __attribute__((unused));

static __always_inline bool is_loopback(const struct sock_common___tcp *c)
{
	const __be32 *to = c->skc_v6_daddr.in6_u.u6_addr32;
	const __be32 *from = c->skc_v6_rcv_saddr.in6_u.u6_addr32;

	if (c->skc_family == AF_INET)
		return (c->skc_daddr & 0xff) == LOOPBACK_NET || c->skc_daddr == c->skc_rcv_saddr;
	if (c->skc_family != AF_INET6)
		return false;
	if (!to[0] && !to[1]) {
		if (!to[2] && to[3] == bpf_htonl_const(1))
			return true;
		if (to[2] == MAPPED_PREFIX && (to[3] & 0xff) == LOOPBACK_NET)
			return true;
	}
	return to[0] == from[0] && to[1] == from[1] && to[2] == from[2] && to[3] == from[3];
}

static __always_inline void read_chrono(struct sock_record *r, struct tcp_sock *tp)
{
	int kind = BPF_CORE_READ_BITFIELD_PROBED(tp, chrono_type);
	__u32 open;
	int i;

	r->now_ticks = (__u32)bpf_jiffies64();
	open = r->now_ticks - tp->chrono_start;
	/* Read while another CPU may write: a state that ended in between reads as a negative span. */
	if ((__s32)open < 0)
		open = 0;
	for (i = 0; i < NUM_CHRONO; i++) {
		r->chrono[i] = tp->chrono_stat[i];
		if (kind == i + 1)
			r->chrono[i] += open;
	}
}

static __always_inline void fill(struct sock_record *r, struct sock___tcp *sk, struct tcp_sock *tp,
				 __u32 slot, __u32 gen)
{
	r->cookie = bpf_get_socket_cookie(sk);
	r->slot = slot;
	r->gen = gen;
	r->rx_bytes = tp->bytes_received;
	r->tx_bytes = tp->bytes_acked;
	r->segments = tp->data_segs_out;
	r->retransmits = tp->total_retrans;
	r->srtt_us = tp->srtt_us;
	r->window = tp->snd_cwnd * tp->mss_cache;
	r->unsent = tp->write_seq - tp->snd_nxt;
	r->state = sk->__sk_common.skc_state;
	r->loopback = is_loopback(&sk->__sk_common);
	r->pad[0] = r->pad[1] = 0;
	read_chrono(r, tp);
}

/* The process that the pass is at: its container is looked up once, not for each file. */
struct {
	__u32 pass;
	__s32 tgid;
	__u32 slot;
	__u32 gen; /* 0: not watched */
} at;

static __always_inline bool take_turn(__u32 slot)
{
	struct pass_count *c = bpf_map_lookup_elem(&passes, &slot);

	if (!c)
		return false;
	if (c->pass != pass) {
		c->pass = pass;
		c->records = c->dropped = 0;
	}
	if (c->records >= max_records) {
		c->dropped++;
		return false;
	}
	c->records++;
	return true;
}

SEC("iter/task_file")
int read_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sock_record r = {};
	struct slot_ref *ref;
	struct socket *socket;
	struct sock___tcp *sk;
	struct tcp_sock *tp;

	if (!task || !file)
		return 0;
	if (at.tgid != task->tgid || at.pass != pass) {
		at.tgid = task->tgid;
		at.pass = pass;
		ref = find_watched(task_cgroup(task), TREE_TASKS);
		at.gen = ref ? ref->gen : 0;
		at.slot = ref ? ref->slot : 0;
	}
	if (!at.gen)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = (struct sock___tcp *)socket->sk;
	if (!sk)
		return 0;
	tp = (struct tcp_sock *)bpf_skc_to_tcp_sock(sk);
	if (!tp || sk->__sk_common.skc_state == TCP_LISTEN || sk->__sk_common.skc_state == TCP_CLOSE)
		return 0;
	if (!take_turn(at.slot))
		return 0;
	fill(&r, sk, tp, at.slot, at.gen);
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

/* Takes a container's share of the buffer of closed sockets. */
static __always_inline bool reserve_closed(__u32 slot)
{
	struct pass_count *c = bpf_map_lookup_elem(&passes, &slot);

	if (!c)
		return false;
	if (c->closed_pass != pass) {
		c->closed_pass = pass;
		c->closed = 0;
	}
	if (!has_share((__u64)c->closed * sizeof(struct sock_record), bpf_ringbuf_query(&closed, RING_UNREAD),
		       CLOSED_BYTES))
		return false;
	__sync_fetch_and_add(&c->closed, 1);
	return true;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, struct sock___tcp *sk, int old, int new)
{
	struct sock_record *r;
	struct slot_ref *ref;
	struct tcp_sock *tp;

	if (new != TCP_CLOSE || old == TCP_LISTEN || old == TCP_SYN_SENT || tasks_by_v1_cpu)
		return 0;
	tp = (struct tcp_sock *)bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	ref = find_watched(sk->sk_cgrp_data.cgroup, TREE_TASKS);
	if (!ref)
		return 0;
	r = reserve_closed(ref->slot) ? bpf_ringbuf_reserve(&closed, sizeof(*r), 0) : NULL;
	if (!r) {
		__sync_fetch_and_add(&lost_total, 1);
		return 0;
	}
	fill(r, sk, tp, ref->slot, ref->gen);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
