/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_CORE_TYPES_H
#define TRIMTAB_CORE_TYPES_H

/* The kernel types that the programs touch, and of each only the fields they
 * read: CO-RE finds the offsets on the running kernel, so a dumped vmlinux.h is
 * not needed. Fields that only some kernels have are marked with the versions;
 * reads of them stand behind bpf_core_field_exists. */

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define NULL ((void *)0)
#define true 1
#define false 0
#define offsetof(type, member) __builtin_offsetof(type, member)

/* From include/uapi/linux/bpf.h. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
};

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded" /* partial views of kernel types */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_local_storage;
struct kernfs_node {
	__u64 id;
};
struct cgroup_root;
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};
enum cgroup_subsys_id { cpu_cgrp_id = 1 };

struct rq {
	struct task_struct *curr;
	struct task_struct *idle;
	__u64 clock;
	__u64 clock_task;
	__u64 clock_pelt;
	unsigned long lost_idle_time; /* 5.1+ */
};
struct cfs_rq {
	struct rq *rq;
	int throttle_count;
	__u64 throttled_clock_task;      /* to 5.18 */
	__u64 throttled_clock_task_time; /* to 5.18 */
	__u64 throttled_clock_pelt;      /* 5.19+ */
	__u64 throttled_clock_pelt_time; /* 5.19+ */
	__u64 throttled_clock_self;      /* 6.6+ */
	__u64 throttled_clock_self_time; /* 6.6+ */
};
struct sched_entity {
	struct cfs_rq *cfs_rq;
	unsigned char sched_delayed; /* 6.12+ */
};

struct super_block {
	unsigned long s_magic;
};
struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
};
struct file {
	struct inode *f_inode;
	void *private_data;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};
struct sock_common {
	unsigned short skc_family;
};
struct sock {
	struct sock_common __sk_common;
};
struct socket {
	struct sock *sk;
};

struct signal_struct {
	int nr_threads;
};
struct thread_info {
	__u32 status;
};
struct task_io_accounting {
	__u64 rchar; /* CONFIG_TASK_XACCT */
	__u64 wchar;
	__u64 write_bytes; /* CONFIG_TASK_IO_ACCOUNTING */
};
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state; /* 5.14+ */
	void *stack;
	unsigned int flags;
	int on_cpu; /* a byte in newer kernels (7.2) */
	int prio;
	struct sched_entity se;
	int exit_state;
	unsigned int in_iowait : 1;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	__u64 start_boottime;
	char comm[16];
	struct files_struct *files;
	unsigned long min_flt;
	struct task_io_accounting ioac;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct bpf_local_storage *bpf_storage;
};

/* Not there in programs that are built once for all architectures. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 orig_x0;
	__s32 syscallno;
};
#endif

struct blkcg {
	struct cgroup_subsys_state css;
};
struct blkcg_gq {
	struct blkcg *blkcg;
};
struct bio {
	struct blkcg_gq *bi_blkg;
};
struct request {
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
};

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop
#pragma clang diagnostic pop

#endif
