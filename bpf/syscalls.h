/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_SYSCALLS_H
#define TRIMTAB_SYSCALLS_H

/* What a system call waits for, by number; a wait in a call that is not listed
 * is STATE_OTHER. A table, not a switch: one load on the hot path. */
enum call_class {
	CALL_OTHER = 0,
	CALL_FD = 1,    /* the file behind the first argument tells */
	CALL_POLL = 2,  /* the first pollfd tells */
	CALL_EVENTS = 3, /* select, epoll: several files, none of them first */
	CALL_FUTEX = 4,
	CALL_TIMER = 5,
	CALL_CHILD = 6,
	CALL_PATH = 7, /* names a file by path: FILE when uninterruptible */
	CALL_AIO = 8,  /* waits for completions of file I/O */
};

#define CALL_TABLE_SIZE 512

#if defined(__TARGET_ARCH_x86)
static const volatile __u8 call_table[CALL_TABLE_SIZE] = {
	[0] = CALL_FD,      /* read */
	[1] = CALL_FD,      /* write */
	[2] = CALL_PATH,    /* open */
	[4] = CALL_PATH,    /* stat */
	[5] = CALL_FD,      /* fstat */
	[6] = CALL_PATH,    /* lstat */
	[7] = CALL_POLL,    /* poll */
	[8] = CALL_FD,      /* lseek */
	[16] = CALL_FD,     /* ioctl */
	[17] = CALL_FD,     /* pread64 */
	[18] = CALL_FD,     /* pwrite64 */
	[19] = CALL_FD,     /* readv */
	[20] = CALL_FD,     /* writev */
	[21] = CALL_PATH,   /* access */
	[23] = CALL_EVENTS, /* select */
	[35] = CALL_TIMER,  /* nanosleep */
	[40] = CALL_FD,     /* sendfile */
	[42] = CALL_FD,     /* connect */
	[43] = CALL_FD,     /* accept */
	[44] = CALL_FD,     /* sendto */
	[45] = CALL_FD,     /* recvfrom */
	[46] = CALL_FD,     /* sendmsg */
	[47] = CALL_FD,     /* recvmsg */
	[56] = CALL_CHILD,  /* clone: the vfork wait */
	[58] = CALL_CHILD,  /* vfork */
	[61] = CALL_CHILD,  /* wait4 */
	[72] = CALL_FD,     /* fcntl: record locks */
	[73] = CALL_FD,     /* flock */
	[74] = CALL_FD,     /* fsync */
	[75] = CALL_FD,     /* fdatasync */
	[76] = CALL_PATH,   /* truncate */
	[77] = CALL_FD,     /* ftruncate */
	[78] = CALL_FD,     /* getdents */
	[82] = CALL_PATH,   /* rename */
	[83] = CALL_PATH,   /* mkdir */
	[84] = CALL_PATH,   /* rmdir */
	[87] = CALL_PATH,   /* unlink */
	[187] = CALL_FD,    /* readahead */
	[202] = CALL_FUTEX, /* futex */
	[208] = CALL_AIO,   /* io_getevents */
	[217] = CALL_FD,    /* getdents64 */
	[221] = CALL_FD,    /* fadvise64 */
	[230] = CALL_TIMER, /* clock_nanosleep */
	[232] = CALL_EVENTS, /* epoll_wait */
	[247] = CALL_CHILD, /* waitid */
	[257] = CALL_PATH,  /* openat */
	[262] = CALL_PATH,  /* newfstatat */
	[263] = CALL_PATH,  /* unlinkat */
	[264] = CALL_PATH,  /* renameat */
	[270] = CALL_EVENTS, /* pselect6 */
	[271] = CALL_POLL,  /* ppoll */
	[275] = CALL_FD,    /* splice */
	[276] = CALL_FD,    /* tee */
	[277] = CALL_FD,    /* sync_file_range */
	[278] = CALL_FD,    /* vmsplice */
	[281] = CALL_EVENTS, /* epoll_pwait */
	[285] = CALL_FD,    /* fallocate */
	[288] = CALL_FD,    /* accept4 */
	[295] = CALL_FD,    /* preadv */
	[296] = CALL_FD,    /* pwritev */
	[299] = CALL_FD,    /* recvmmsg */
	[306] = CALL_FD,    /* syncfs */
	[307] = CALL_FD,    /* sendmmsg */
	[316] = CALL_PATH,  /* renameat2 */
	[326] = CALL_FD,    /* copy_file_range */
	[327] = CALL_FD,    /* preadv2 */
	[328] = CALL_FD,    /* pwritev2 */
	[332] = CALL_PATH,  /* statx */
	[333] = CALL_AIO,   /* io_pgetevents */
	[435] = CALL_CHILD, /* clone3 */
	[437] = CALL_PATH,  /* openat2 */
	[439] = CALL_PATH,  /* faccessat2 */
	[441] = CALL_EVENTS, /* epoll_pwait2 */
	[449] = CALL_FUTEX, /* futex_waitv */
	[455] = CALL_FUTEX, /* futex_wait */
};
#elif defined(__TARGET_ARCH_arm64) /* the generic numbers */
static const volatile __u8 call_table[CALL_TABLE_SIZE] = {
	[4] = CALL_AIO,     /* io_getevents */
	[22] = CALL_EVENTS, /* epoll_pwait */
	[25] = CALL_FD,     /* fcntl */
	[29] = CALL_FD,     /* ioctl */
	[32] = CALL_FD,     /* flock */
	[34] = CALL_PATH,   /* mkdirat */
	[35] = CALL_PATH,   /* unlinkat */
	[38] = CALL_PATH,   /* renameat */
	[45] = CALL_PATH,   /* truncate */
	[46] = CALL_FD,     /* ftruncate */
	[47] = CALL_FD,     /* fallocate */
	[48] = CALL_PATH,   /* faccessat */
	[56] = CALL_PATH,   /* openat */
	[61] = CALL_FD,     /* getdents64 */
	[62] = CALL_FD,     /* lseek */
	[63] = CALL_FD,     /* read */
	[64] = CALL_FD,     /* write */
	[65] = CALL_FD,     /* readv */
	[66] = CALL_FD,     /* writev */
	[67] = CALL_FD,     /* pread64 */
	[68] = CALL_FD,     /* pwrite64 */
	[69] = CALL_FD,     /* preadv */
	[70] = CALL_FD,     /* pwritev */
	[71] = CALL_FD,     /* sendfile */
	[72] = CALL_EVENTS, /* pselect6 */
	[73] = CALL_POLL,   /* ppoll */
	[75] = CALL_FD,     /* vmsplice */
	[76] = CALL_FD,     /* splice */
	[77] = CALL_FD,     /* tee */
	[79] = CALL_PATH,   /* newfstatat */
	[80] = CALL_FD,     /* fstat */
	[82] = CALL_FD,     /* fsync */
	[83] = CALL_FD,     /* fdatasync */
	[84] = CALL_FD,     /* sync_file_range */
	[95] = CALL_CHILD,  /* waitid */
	[98] = CALL_FUTEX,  /* futex */
	[101] = CALL_TIMER, /* nanosleep */
	[115] = CALL_TIMER, /* clock_nanosleep */
	[202] = CALL_FD,    /* accept */
	[203] = CALL_FD,    /* connect */
	[206] = CALL_FD,    /* sendto */
	[207] = CALL_FD,    /* recvfrom */
	[211] = CALL_FD,    /* sendmsg */
	[212] = CALL_FD,    /* recvmsg */
	[213] = CALL_FD,    /* readahead */
	[220] = CALL_CHILD, /* clone: the vfork wait */
	[223] = CALL_FD,    /* fadvise64 */
	[242] = CALL_FD,    /* accept4 */
	[243] = CALL_FD,    /* recvmmsg */
	[260] = CALL_CHILD, /* wait4 */
	[267] = CALL_FD,    /* syncfs */
	[269] = CALL_FD,    /* sendmmsg */
	[276] = CALL_PATH,  /* renameat2 */
	[285] = CALL_FD,    /* copy_file_range */
	[286] = CALL_FD,    /* preadv2 */
	[287] = CALL_FD,    /* pwritev2 */
	[291] = CALL_PATH,  /* statx */
	[292] = CALL_AIO,   /* io_pgetevents */
	[435] = CALL_CHILD, /* clone3 */
	[437] = CALL_PATH,  /* openat2 */
	[439] = CALL_PATH,  /* faccessat2 */
	[441] = CALL_EVENTS, /* epoll_pwait2 */
	[449] = CALL_FUTEX, /* futex_waitv */
	[455] = CALL_FUTEX, /* futex_wait */
};
#else
#error "numbers of system calls are known for amd64 and arm64 only"
#endif

#endif
