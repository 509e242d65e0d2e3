//go:build ignore

/* Memory. Device memory is the process's own, untouched pages cost nothing, and the
 * node's account says how much of each device is taken. */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { GRAIN = 2 << 20 }; /* what the driver takes from the device at a time */

struct range {
	char *at;
	size_t size;
	int device; /* -1: pinned host memory */
};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static size_t used, room;

static int add(char *at, size_t size, int device)
{
	int r = 0;
	pthread_mutex_lock(&guard);
	if (used == room) {
		struct range *more = realloc(ranges, (room + 64) * sizeof *more);
		if (more) {
			ranges = more;
			room += 64;
		}
	}
	if (used < room)
		ranges[used++] = (struct range){at, size, device};
	else
		r = -1;
	pthread_mutex_unlock(&guard);
	return r;
}

static int take(char *at, struct range *out)
{
	int r = -1;
	pthread_mutex_lock(&guard);
	for (size_t i = 0; i < used; i++)
		if (ranges[i].at == at) {
			*out = ranges[i];
			ranges[i] = ranges[--used];
			r = 0;
			break;
		}
	pthread_mutex_unlock(&guard);
	return r;
}

/* device_at is the device of the range that p lies in, -1 for pinned, -2 for other memory. */
static int device_at(const void *p)
{
	int device = -2;
	pthread_mutex_lock(&guard);
	for (size_t i = 0; i < used; i++)
		if ((const char *)p >= ranges[i].at && (const char *)p < ranges[i].at + ranges[i].size)
			device = ranges[i].device;
	pthread_mutex_unlock(&guard);
	return device;
}

int is_device(const void *p) { return device_at(p) >= 0; }
int is_pinned(const void *p) { return device_at(p) == -1; }

static uint64_t mem_used(struct vgpu_node *n, int device)
{
	uint64_t sum = 0;
	for (uint32_t p = 0; p < VGPU_MAX_PROCS; p++)
		if (n->proc[p].epoch & 1)
			sum += n->proc[p].on[device].mem;
	return sum;
}

static size_t grains(size_t n) { return (n + GRAIN - 1) / GRAIN * GRAIN; }

/* charge takes bytes from the device, if it has them. */
static CUresult charge(struct CUctx_st *ctx, size_t bytes)
{
	struct vgpu_node *n = drv.node;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	node_lock(n);
	uint64_t total = device_of(ctx)->mem_total, taken = mem_used(n, ctx->device);
	if (taken + bytes > total) {
		node_reap(n);
		taken = mem_used(n, ctx->device);
	}
	if (device_of(ctx)->lost) {
		r = CUDA_ERROR_LAUNCH_FAILED;
	} else if (taken <= total && bytes <= total - taken) {
		n->proc[drv.proc].on[ctx->device].mem += bytes;
		r = CUDA_SUCCESS;
	}
	node_unlock(n);
	return r;
}

static void give_back(int device, size_t bytes)
{
	node_lock(drv.node);
	drv.node->proc[drv.proc].on[device].mem -= bytes;
	node_unlock(drv.node);
}

static void *pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static CUresult mem_alloc(CUdeviceptr *out, size_t n)
{
	struct CUctx_st *ctx;
	CUresult r = out && n ? current(&ctx) : CUDA_ERROR_INVALID_VALUE;
	if (r || (r = charge(ctx, grains(n))))
		return r;
	void *p = pages(n);
	if (!p || add(p, n, ctx->device)) {
		give_back(ctx->device, grains(n));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *out, size_t n)
{
	ENTER();
	return mem_alloc(out, n);
}

API cuMemAllocManaged(CUdeviceptr *out, size_t n, unsigned flags)
{
	ENTER();
	(void)flags;
	return mem_alloc(out, n);
}

API cuMemAllocAsync(CUdeviceptr *out, size_t n, CUstream s)
{
	ENTER();
	(void)s;
	return mem_alloc(out, n);
}

static CUresult mem_free(void *p)
{
	struct range was;
	if (!p)
		return CUDA_SUCCESS;
	CUresult r = context_sync(0); /* as cudaFree does */
	if (r && r != CUDA_ERROR_INVALID_CONTEXT)
		return r;
	if (take(p, &was))
		return CUDA_ERROR_INVALID_VALUE;
	munmap(was.at, was.size);
	if (was.device >= 0)
		give_back(was.device, grains(was.size));
	return CUDA_SUCCESS;
}

API cuMemFree_v2(CUdeviceptr p)
{
	ENTER();
	return mem_free((void *)(uintptr_t)p);
}

API cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
	ENTER();
	(void)s;
	return mem_free((void *)(uintptr_t)p);
}

API cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
	ENTER();
	(void)flags;
	if (!out || !n)
		return CUDA_ERROR_INVALID_VALUE;
	*out = pages(n);
	return *out && !add(*out, n, -1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemAllocHost_v2(void **out, size_t n)
{
	ENTER();
	*out = pages(n);
	return *out && !add(*out, n, -1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemFreeHost(void *p)
{
	ENTER();
	return mem_free(p);
}

API cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	ENTER();
	(void)flags;
	return add(p, n, -1) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuMemHostUnregister(void *p)
{
	ENTER();
	struct range was;
	return take(p, &was) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER();
	struct CUctx_st *ctx;
	CUresult r = current(&ctx);
	if (r)
		return r;
	node_lock(drv.node);
	uint64_t taken = mem_used(drv.node, ctx->device);
	node_unlock(drv.node);
	*total = device_of(ctx)->mem_total;
	*free_bytes = taken < *total ? *total - taken : 0;
	return CUDA_SUCCESS;
}

/* Of CUpointer_attribute, what is answered. */
enum { OF_CONTEXT = 1, OF_TYPE, OF_DEVICE_POINTER, OF_HOST_POINTER, OF_BUFFER = 7, OF_MANAGED, OF_ORDINAL, OF_START = 11, OF_SIZE, OF_MAPPED };

static int range_at(const void *p, struct range *out)
{
	int found = 0;
	pthread_mutex_lock(&guard);
	for (size_t i = 0; i < used && !found; i++)
		if ((const char *)p >= ranges[i].at && (const char *)p < ranges[i].at + ranges[i].size) {
			*out = ranges[i];
			found = 1;
		}
	pthread_mutex_unlock(&guard);
	return found;
}

/* ordinal is the process's number of a device; pinned memory is of the thread's. */
static int ordinal(int device)
{
	struct CUctx_st *ctx;
	if (device < 0)
		device = current(&ctx) ? -1 : ctx->device;
	for (int i = 0; i < drv.devices; i++)
		if (drv.visible[i] == device)
			return i;
	return 0;
}

API cuPointerGetAttribute(void *value, int which, CUdeviceptr p)
{
	enum { HOST = 1, DEVICE = 2 };
	struct range in;
	ENTER();
	if (!value || !range_at((void *)(uintptr_t)p, &in))
		return CUDA_ERROR_INVALID_VALUE;
	if (which == OF_TYPE)
		*(unsigned *)value = in.device < 0 ? HOST : DEVICE;
	else if (which == OF_ORDINAL)
		*(int *)value = ordinal(in.device);
	else if (which == OF_DEVICE_POINTER)
		*(CUdeviceptr *)value = p;
	else if (which == OF_HOST_POINTER)
		*(void **)value = in.device < 0 ? (void *)(uintptr_t)p : NULL;
	else if (which == OF_START)
		*(char **)value = in.at;
	else if (which == OF_SIZE)
		*(size_t *)value = in.size;
	else if (which == OF_BUFFER)
		*(uint64_t *)value = (uint64_t)(uintptr_t)in.at;
	else if (which == OF_CONTEXT)
		return current((struct CUctx_st **)value);
	else if (which == OF_MANAGED || which == OF_MAPPED)
		*(uint8_t *)value = which == OF_MAPPED;
	else
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

/* pointer_unknown answers for memory that is not CUDA's. */
void pointer_unknown(void *value, int which)
{
	if (which == OF_ORDINAL)
		*(int *)value = -2;
	else if (which == OF_TYPE)
		*(unsigned *)value = 0;
	else if (which == OF_MANAGED || which == OF_MAPPED)
		*(uint8_t *)value = 0;
	else if (which == OF_CONTEXT || which == OF_DEVICE_POINTER || which == OF_HOST_POINTER || which == OF_START || which == OF_SIZE)
		*(uint64_t *)value = 0;
}

API cuMemGetAddressRange_v2(CUdeviceptr *at, size_t *n, CUdeviceptr p)
{
	struct range in;
	ENTER();
	if (!range_at((void *)(uintptr_t)p, &in))
		return CUDA_ERROR_INVALID_VALUE;
	if (at)
		*at = (CUdeviceptr)(uintptr_t)in.at;
	if (n)
		*n = in.size;
	return CUDA_SUCCESS;
}
