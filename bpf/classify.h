/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_CLASSIFY_H
#define TRIMTAB_CLASSIFY_H

/* Why a thread sleeps: the system call it is in, from its saved registers, and
 * the file behind the call's first argument. No system call is traced. */

#include "core_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "syscalls.h"
#include "thread.h"

/* include/linux/sched.h */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED 0x4 /* by a signal */
#define TASK_DEAD 0x80
#define TASK_STOPPED_TRACED_DEAD 0xfc
#define TASK_WAKING 0x200
#define TASK_FROZEN 0x8000
#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_MEMALLOC 0x800
#define PF_KTHREAD 0x200000
#define TS_COMPAT 0x2 /* x86: in a 32-bit system call, with other numbers */

/* include/uapi/linux/stat.h, socket.h */
#define S_IFMT 0xf000
#define S_IFSOCK 0xc000
#define S_IFREG 0x8000
#define S_IFBLK 0x6000
#define S_IFDIR 0x4000
#define S_IFCHR 0x2000
#define S_IFIFO 0x1000
#define AF_UNIX 1

static __always_inline bool is_network_magic(__u64 magic)
{
	switch (magic) {
	case 0x6969:	 /* NFS */
	case 0xff534d42: /* CIFS */
	case 0xfe534d42: /* SMB2 */
	case 0x517b:	 /* SMB */
	case 0x00c36400: /* Ceph */
	case 0x65735546: /* FUSE: what stands behind it is unknown, and it is not the page cache */
	case 0x01021997: /* 9P */
	case 0x0bd00bd0: /* Lustre */
	case 0x5346414f: /* AFS */
	case 0x47504653: /* GPFS */
	case 0x19830326: /* BeeGFS */
	case 0x7461636f: /* OCFS2 */
	case 0x01161970: /* GFS2 */
		return true;
	}
	return false;
}

static __always_inline __u32 socket_state(struct file *file)
{
	struct socket *socket = (struct socket *)BPF_CORE_READ(file, private_data);
	unsigned short family = BPF_CORE_READ(socket, sk, __sk_common.skc_family);

	return family == AF_UNIX ? STATE_UNIX : STATE_INET;
}

static __always_inline __u32 inode_class(struct file *file, struct inode *inode)
{
	__u16 mode = BPF_CORE_READ(inode, i_mode);

	switch (mode & S_IFMT) {
	case S_IFIFO:
		return STATE_PIPE;
	case S_IFSOCK:
		return socket_state(file);
	case S_IFCHR:
		return STATE_DEVICE;
	case S_IFBLK:
		return STATE_FILE;
	case S_IFREG:
	case S_IFDIR:
		return is_network_magic(BPF_CORE_READ(inode, i_sb, s_magic)) ? STATE_NETFILE : STATE_FILE;
	}
	return STATE_OTHER; /* anonymous inodes: eventfd, timerfd, … */
}

/* The state for a sleep in a call on descriptor fd. The class is remembered by
 * inode in *th, since a thread mostly waits on the same file again; inodes of
 * different kinds of file come from different slab caches, so a recycled
 * address keeps its class. th may be NULL. */
static __always_inline __u32 fd_state(struct task_struct *task, __u32 fd, struct thread *th)
{
	struct files_struct *files = task->files;
	struct file *file = NULL;
	struct inode *inode = NULL;
	struct fdtable *fdt;
	__u32 class;

	if (!files)
		return STATE_OTHER;
	fdt = files->fdt;
	if (!fdt || fd >= fdt->max_fds)
		return STATE_OTHER;
	bpf_probe_read_kernel(&file, sizeof(file), (void *)fdt->fd + (__u64)fd * sizeof(file));
	if (!file)
		return STATE_OTHER;
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return STATE_OTHER;
	if (th && th->inode == (__u64)inode)
		return th->inode_state & (NUM_STATES - 1);
	class = inode_class(file, inode);
	if (th) {
		th->inode = (__u64)inode;
		th->inode_state = class;
	}
	return class;
}

struct call {
	__s64 nr;
	__u64 arg0;
};

static __always_inline void current_call(struct task_struct *task, struct call *call)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	call->nr = -1;
	call->arg0 = 0;
#if defined(__TARGET_ARCH_x86)
	if (task->thread_info.status & TS_COMPAT)
		return;
	call->nr = (__s64)regs->orig_ax;
	call->arg0 = regs->di;
#else
	call->nr = regs->syscallno;
	call->arg0 = regs->orig_x0;
#endif
}

/* The state of a poll by its first pollfd, where that can be read: user memory
 * is reachable only of the thread that runs. */
static __always_inline __u32 poll_state(struct task_struct *task, __u64 pollfds, struct thread *th, bool is_current)
{
	__s32 fd = -1;
	__u32 class;

	if (!is_current || !pollfds || bpf_probe_read_user(&fd, sizeof(fd), (void *)pollfds) || fd < 0)
		return STATE_POLL;
	class = fd_state(task, (__u32)fd, th);
	return class == STATE_OTHER ? STATE_POLL : class;
}

/* sleep_state says what a thread that leaves the CPU not runnable waits for. */
static __always_inline __u32 sleep_state(struct task_struct *task, __u32 task_state, struct thread *th, bool is_current)
{
	bool in_iowait = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
	bool uninterruptible = task_state & TASK_UNINTERRUPTIBLE;
	__u32 state = STATE_OTHER;
	__u8 class = CALL_OTHER;
	struct call call;

	if (task->flags & (PF_IO_WORKER | PF_KTHREAD) || task_state & (TASK_STOPPED_TRACED_DEAD | TASK_FROZEN))
		return STATE_OTHER;
	current_call(task, &call);
	if (call.nr >= 0 && call.nr < CALL_TABLE_SIZE)
		class = call_table[call.nr & (CALL_TABLE_SIZE - 1)];
	if (class == CALL_FD) {
		state = fd_state(task, (__u32)call.arg0, th);
		/* Page reads on a network filesystem raise in_iowait as well. */
		if (state == STATE_NETFILE)
			return state;
	}
	if (in_iowait)
		return STATE_BLOCKIO;
	switch (class) {
	case CALL_FD:
		return state == STATE_OTHER && uninterruptible ? STATE_LOCK : state;
	case CALL_POLL:
		return poll_state(task, call.arg0, th, is_current);
	case CALL_EVENTS:
		return STATE_POLL;
	case CALL_CHILD: /* vfork waits uninterruptibly */
		return STATE_CHILD;
	case CALL_AIO:
		return STATE_FILE;
	case CALL_PATH:
		return uninterruptible ? STATE_FILE : STATE_OTHER;
	case CALL_FUTEX:
		return uninterruptible ? STATE_LOCK : STATE_FUTEX;
	case CALL_TIMER:
		return uninterruptible ? STATE_LOCK : STATE_TIMER;
	}
	return uninterruptible ? STATE_LOCK : STATE_OTHER;
}

#endif
