/* What the files of the virtual libcuda share. */
#ifndef VGPU_DRIVER_H
#define VGPU_DRIVER_H

#include "cuda.h"
#include "node.h"

#define API VGPU_API CUresult

/* How a call without a stream reads: its own thread's (_ptsz), or the default one. */
enum { DEFAULT_LEGACY, DEFAULT_PER_THREAD };

struct CUctx_st {
	int device; /* the node's */
	int primary, users;
	unsigned flags;
	struct CUstream_st *legacy;
};

/* A place in a stream: reached once the operation before it has ended. */
struct place {
	uint32_t stream, epoch;
	uint64_t seq; /* the operation that has to end */
	int valid;
};

struct CUstream_st {
	uint32_t index, epoch;
	struct CUctx_st *ctx;
	unsigned flags;
	uint64_t hold; /* 1 + the last operation behind which copies must wait to move their bytes */
	struct capture *capture;
};

struct CUevent_st {
	unsigned flags;
	uint32_t index, records;
	struct CUctx_st *ctx;
	struct place at;
	struct capture *capture;
};

#pragma GCC visibility push(hidden)

struct driver {
	struct vgpu_node *node;
	uint32_t proc;
	int devices, visible[VGPU_MAX_DEVICES]; /* ordinals, as CUDA_VISIBLE_DEVICES says */
	int forked;
};
extern struct driver drv;

/* driver.c */
CUresult enter(const char *call);
CUresult current(struct CUctx_st **ctx);
struct vgpu_device *device_of(struct CUctx_st *ctx);
#define ENTER()                       \
	do {                                \
		CUresult e_ = enter(__func__);    \
		if (e_)                           \
			return e_;                      \
	} while (0)

/* driver_stream.c */
CUresult stream_of(CUstream handle, int by_default, struct CUstream_st **s);
CUresult stream_make(struct CUctx_st *ctx, unsigned flags, int legacy, struct CUstream_st **s);
/* push queues op behind what it has to wait for, and waits itself while the stream is
 * full. count, one of the process's counters, may be NULL. */
CUresult push(struct CUstream_st *s, struct vgpu_op *op, struct place *at, uint64_t *count);
struct vgpu_counts *counts(void);

/* driver_wait.c */
int reached(const struct place *at);
CUresult wait_for(struct CUctx_st *ctx, const struct place *at, int blocking);
CUresult wait_counted(struct CUctx_st *ctx, const struct place *at, int blocking);
struct place last_place(struct CUstream_st *s);
CUresult context_sync(int count);
void wake_all(void);

/* driver_copy.c */
enum { COPY_HOST, COPY_IN, COPY_OUT, COPY_ON, COPY_ANY };
CUresult copy(struct CUstream_st *s, void *to, const void *from, size_t n, int kind, int wait);
void late_copies(void); /* moves the bytes of those whose time has come */

/* driver_mem.c */
int is_device(const void *p);
int is_pinned(const void *p);
void pointer_unknown(void *value, int which);

/* driver_graph.c */
struct node_desc {
	int kind; /* OP_KERNEL, OP_OPEN, or a copy */
	uint64_t ns, kernels;
	void *to;
	const void *from;
	size_t bytes;
	int copy_kind;
	CUresult (*again)(void *arg, CUstream s); /* OP_OPEN: puts it on the stream, at each launch */
	void *arg;
};
CUresult capture_add(struct capture *c, const struct node_desc *d);
void capture_join(struct capture *c, struct CUstream_st *s);

/* driver_launch.c */
CUresult launch_ns(struct CUstream_st *s, uint64_t ns, uint64_t *count);

/* What the runtime, told its tables, asks of a driver to prove itself. The answer is a secret of
 * NVIDIA's and not in this tree: who may give it puts it into driver_valid.c. */
__attribute__((weak)) CUresult driver_valid(uint32_t version, uint64_t seconds, uint64_t answer[2], const void *runtime, void *const *valid);

#pragma GCC visibility pop
#endif
