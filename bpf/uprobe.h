/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_UPROBE_H
#define TRIMTAB_UPROBE_H

/* What programs on uprobes share: the registers at a function's entry and the
 * cookie that says which function it is. */

#include "core_types.h"
#include <bpf/bpf_helpers.h>

/* The registers that a uprobe program is given: the kernel's user ABI, the same
 * on every kernel, so plain offsets and no CO-RE. */
#if defined(__TARGET_ARCH_x86)
struct uprobe_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10;
	__u64 arg5, arg4, ax, arg3, arg2, arg1, arg0;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};
/* A call pushes its return address, and the return takes it off. */
#define CALL_PUSHES 8
#elif defined(__TARGET_ARCH_arm64)
struct uprobe_regs {
	__u64 arg0, arg1, arg2, arg3, arg4, arg5;
	__u64 regs[25];
	__u64 sp, pc, pstate;
};
#define CALL_PUSHES 0
#endif

/* Keeps the compiler from folding loads of different registers into one load at
 * a computed offset, which the verifier refuses on a context. */
#define KEEP(var) asm volatile("" : "+r"(var))

/* The cookie of an attachment; probes/uprobe writes bits 32..63. */
#define COOKIE_CODE(cookie) ((__u32)(cookie)) /* the probe's own: which function */
/* Several libraries of one process may have a hook's functions, as two versions do: which of them. */
#define COOKIE_LIBRARY(cookie) ((__u32)((cookie) >> 32) & 0xff)
/* The displaced instruction is single-stepped, not emulated: such a hit costs more. */
#define COOKIE_STEPPED(cookie) ((__u32)((cookie) >> 40) & 1)
/* Grows whenever a hook is attached again: what was open before is stale. */
#define COOKIE_TURN(cookie) ((__u32)((cookie) >> 48))

#endif
