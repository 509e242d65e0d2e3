//go:build ignore

/* Memory pools, as far as a name goes: each allocation is one of its own. */
#include "driver.h"

#include <stdlib.h>

typedef struct pool {
	uint64_t keep; /* bytes that it may hold back; here it holds none */
} *CUmemoryPool;

API cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);

static struct pool by_default[VGPU_MAX_DEVICES];

API cuMemPoolCreate(CUmemoryPool *out, const void *properties)
{
	ENTER();
	(void)properties;
	*out = calloc(1, sizeof **out);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemPoolDestroy(CUmemoryPool p)
{
	ENTER();
	free(p);
	return CUDA_SUCCESS;
}

API cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice d)
{
	ENTER();
	if (d < 0 || d >= drv.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = &by_default[d];
	return CUDA_SUCCESS;
}

API cuDeviceGetMemPool(CUmemoryPool *out, CUdevice d) { return cuDeviceGetDefaultMemPool(out, d); }

API cuMemPoolSetAttribute(CUmemoryPool p, int which, void *value)
{
	enum { RELEASE_THRESHOLD = 4 };
	ENTER();
	if (p && which == RELEASE_THRESHOLD)
		p->keep = *(uint64_t *)value;
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemPoolSetAccess(CUmemoryPool p, const void *who, size_t n)
{
	ENTER();
	(void)who, (void)n;
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemPoolTrimTo(CUmemoryPool p, size_t keep)
{
	ENTER();
	(void)keep;
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t n, CUmemoryPool p, CUstream s)
{
	return p ? cuMemAllocAsync(out, n, s) : CUDA_ERROR_INVALID_VALUE;
}
