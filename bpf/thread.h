/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_THREAD_H
#define TRIMTAB_THREAD_H

#include "states.h"

#define MAX_EDGES 16 /* wakers told apart for each thread; one more slot takes the rest */
#define WAKER_INTERRUPT 0
#define WAKER_OVERFLOW (-1)
#define MAX_CONTAINERS 2048
#define COMM_LEN 16

/* Waits of one thread in one state that one waker ended. */
struct edge {
	__s32 waker;
	__u32 state;
	__u64 count;
	__u64 ns; /* asleep, until the waking */
};

/* One thread's counters: the value in task storage. All is written on the CPU
 * that switches the thread in or out, except the mailbox, which the waker
 * writes: counters so need no lock, and seq tells a reader on another CPU that
 * it met a writer. */
struct thread {
	__u64 seq; /* odd while a writer is inside */
	__u32 slot;
	__u32 gen; /* of the slot; another one means: no longer watched */
	__u64 first_ns;
	__u64 since_ns; /* start of the open interval */
	__u32 state;	/* of the open interval */
	__u32 num_edges;

	/* Mailbox: the latest waking. Emptied at each switch in. */
	__u64 wake_ns;
	__s32 waker;
	__u32 pad;

	/* The run queue at the moment the thread was put on it, and its throttled clock then. */
	__u64 cfs_rq;
	__u64 throttled_ns;
	__s64 clock_skew; /* rq clock less CLOCK_MONOTONIC at that moment */

	/* Class of the last file slept on, by its inode. */
	__u64 inode;
	__u64 inode_state;

	__u64 reclaim_ns;
	__u64 reclaim_since_ns; /* 0: not in direct reclaim */
	__u64 preempted;
	__u64 sibling_ns; /* the part of ns[STATE_QUEUED] behind threads of the same container */
	__u64 alone_ns;	  /* the part of ns[STATE_QUEUED] behind nobody: see enter() */
	__u64 found_idle; /* the CPU that the thread was put on last ran nothing */
	/* What the kernel had counted when the thread was taken up; a record holds what came since. */
	__u64 io_bytes; /* read and written, by any call */
	__u64 faults;	/* minor */
	__u64 written;	/* bytes of files on disks, when they are dirtied */

	__u64 ns[NUM_STATES];
	__u64 count[NUM_STATES];
	__u64 last_ns[NUM_STATES];
	struct edge edges[MAX_EDGES + 1];
};

enum record_flags {
	RECORD_EXITED = 1, /* final counters */
	RECORD_TORN = 2,   /* a writer was inside at each try: counters are not to be used */
	RECORD_STOPPED = 4, /* a signal has stopped it, and it does not go on yet */
};

/* What the reader gets: a thread with its open interval closed at at_ns. Edges
 * beyond num_edges are not sent. */
struct record {
	__u64 at_ns;
	__u64 start_boot_ns;
	__u32 flags;
	__s32 tid;
	__s32 tgid;
	__s32 ppid;
	char comm[COMM_LEN];
	struct thread thread;
};

/* A container's slot: written by user space at Watch, counted into by programs. */
struct container {
	__u32 gen; /* 0: free */
	__u32 block_by_cgroup; /* its block I/O is charged to its own cgroup, and to no thread */
	__u64 threads; /* with storage now */
	__u64 lost;    /* threads, exits and block requests that found no room */
	__u64 reads;
	__u64 read_bytes;
	__u64 read_ns;
	__u64 writes;
	__u64 write_bytes;
	__u64 write_ns;
	__u64 requests;	  /* in flight */
	__u64 exit_bytes; /* final records since reading exit_turn */
	__u32 exit_turn;
	__u32 pad;
};

struct slot_ref {
	__u32 slot;
	__u32 gen;
};

#endif
