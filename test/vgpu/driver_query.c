//go:build ignore

/* What NVIDIA's runtime and NCCL ask of streams, pointers, peers and kernels before they work. */
#include "driver.h"

#include <string.h>

API cuDeviceGetPCIBusId(char *, int, CUdevice);
API cuPointerGetAttribute(void *, int, CUdeviceptr);
API cuEventRecord(CUevent, CUstream);
API cuEventRecord_ptsz(CUevent, CUstream);

/* ---- capture, as far as it is asked for ---- */

API cuThreadExchangeStreamCaptureMode(int *mode)
{
	static __thread int mine;
	ENTER();
	int was = mine;
	mine = *mode;
	*mode = was;
	return CUDA_SUCCESS;
}

/* capture_info tells of a capture that it is, and not what is in it. */
static CUresult capture_info(CUstream handle, int by_default, int *status, uint64_t *id, CUgraph *graph, size_t *nodes)
{
	struct CUstream_st *s;
	CUresult r = stream_of(handle, by_default, &s);
	if (r)
		return r;
	*status = s->capture != NULL;
	if (id)
		*id = (uint64_t)(uintptr_t)s->capture;
	if (graph)
		*graph = NULL;
	if (nodes)
		*nodes = 0;
	return CUDA_SUCCESS;
}

API cuStreamGetCaptureInfo(CUstream s, int *status, uint64_t *id)
{
	ENTER();
	return capture_info(s, DEFAULT_LEGACY, status, id, NULL, NULL);
}

API cuStreamGetCaptureInfo_v2(CUstream s, int *status, uint64_t *id, CUgraph *graph, const void **nodes, size_t *n)
{
	ENTER();
	(void)nodes;
	return capture_info(s, DEFAULT_LEGACY, status, id, graph, n);
}

API cuStreamGetCaptureInfo_v2_ptsz(CUstream s, int *status, uint64_t *id, CUgraph *graph, const void **nodes, size_t *n)
{
	ENTER();
	(void)nodes;
	return capture_info(s, DEFAULT_PER_THREAD, status, id, graph, n);
}

/* ---- streams and events ---- */

API cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	ENTER();
	struct CUstream_st *s;
	CUresult r = stream_of(handle, DEFAULT_LEGACY, &s);
	*flags = r ? 0 : s->flags;
	return r;
}

API cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
	ENTER();
	struct CUstream_st *s;
	CUresult r = stream_of(handle, DEFAULT_LEGACY, &s);
	*ctx = r ? NULL : s->ctx;
	return r;
}

API cuStreamGetPriority(CUstream handle, int *priority)
{
	ENTER();
	(void)handle;
	*priority = 0;
	return CUDA_SUCCESS;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER();
	*least = *greatest = 0;
	return CUDA_SUCCESS;
}

API cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags)
{
	(void)flags;
	return cuEventRecord(e, s);
}

API cuEventRecordWithFlags_ptsz(CUevent e, CUstream s, unsigned flags)
{
	(void)flags;
	return cuEventRecord_ptsz(e, s);
}

/* ---- devices ---- */

API cuDeviceGetByPCIBusId(CUdevice *d, const char *id)
{
	char has[32];
	ENTER();
	for (int i = 0; i < drv.devices; i++)
		if (cuDeviceGetPCIBusId(has, sizeof has, i) == CUDA_SUCCESS && strcmp(has, id) == 0) {
			*d = i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

/* Device memory is the process's own, so all devices reach it. */
API cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer)
{
	ENTER();
	*can = d != peer;
	return CUDA_SUCCESS;
}

API cuDeviceGetP2PAttribute(int *value, int which, CUdevice d, CUdevice peer)
{
	enum { ACCESS_SUPPORTED = 2 };
	ENTER();
	*value = which == ACCESS_SUPPORTED && d != peer;
	return CUDA_SUCCESS;
}

API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	ENTER();
	(void)flags;
	return peer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API cuCtxDisablePeerAccess(CUcontext peer)
{
	ENTER();
	return peer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
	ENTER();
	*version = 3020; /* as all contexts since CUDA 3.2 */
	return ctx || !current(&ctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API cuCtxGetLimit(size_t *value, int which)
{
	ENTER();
	(void)which;
	*value = 1024; /* what the stack's limit begins with */
	return CUDA_SUCCESS;
}

API cuCtxSetLimit(int which, size_t value)
{
	ENTER();
	(void)which, (void)value;
	return CUDA_SUCCESS;
}

/* ---- pointers ---- */

API cuPointerGetAttributes(unsigned n, int *which, void **values, CUdeviceptr p)
{
	ENTER();
	for (unsigned i = 0; i < n; i++)
		if (cuPointerGetAttribute(values[i], which[i], p) == CUDA_ERROR_INVALID_VALUE)
			pointer_unknown(values[i], which[i]); /* no memory of CUDA's: that is an answer here */
	return CUDA_SUCCESS;
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *at, void *p, unsigned flags)
{
	ENTER();
	(void)flags;
	*at = (CUdeviceptr)(uintptr_t)p;
	return is_pinned(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemHostGetFlags(unsigned *flags, void *p)
{
	enum { PORTABLE = 1, DEVICE_MAP = 2 };
	ENTER();
	*flags = PORTABLE | DEVICE_MAP;
	return is_pinned(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- kernels ---- */

API cuModuleGetLoadingMode(int *mode)
{
	enum { LAZY = 2 };
	ENTER();
	*mode = LAZY;
	return CUDA_SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, CUfunction f, int threads, size_t shared, unsigned flags)
{
	enum { THREADS_PER_MULTIPROCESSOR = 2048 };
	ENTER();
	(void)shared, (void)flags;
	if (!f || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*n = THREADS_PER_MULTIPROCESSOR / threads;
	return CUDA_SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads, size_t shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, threads, shared, 0);
}
