//go:build ignore

/* Faults to order. */
#include "node.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum vgpu_fault_kind ordered(struct vgpu_node *n, int device, const char *call)
{
	for (uint32_t i = 0; i < VGPU_MAX_FAULTS; i++) {
		struct vgpu_fault *f = &n->fault[i];
		if (f->kind && (f->device < 0 || f->device == device) && strcmp(f->call, call) == 0)
			return f->kind;
	}
	return FAULT_NONE;
}

/* Reads without the lock: the tool writes a fault's kind last. */
int fault_check(struct vgpu_node *n, int device, const char *call)
{
	if (!atomic_load_explicit(&n->nfaults, memory_order_relaxed))
		return 0;
	enum vgpu_fault_kind kind = ordered(n, device, call);
	while (kind == FAULT_HANG) {
		struct timespec t = {.tv_nsec = 50000000};
		nanosleep(&t, NULL);
		kind = ordered(n, device, call);
	}
	if (kind == FAULT_EXIT) {
		fprintf(stderr, "virtual GPU: %s ends the process, as ordered\n", call);
		_exit(127);
	}
	return kind == FAULT_UNSUPPORTED;
}
