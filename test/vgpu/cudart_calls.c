//go:build ignore

/* The virtual libcudart: memory, streams, events, graphs, kernels. Each call makes the
 * driver calls that the real runtime makes. */
#include "cudart_int.h"

#include <string.h>

/* ---- memory ---- */

RT cudaMalloc(void **p, size_t n)
{
	CUdeviceptr d = 0;
	cudaError_t r = vgpu_rt_ready();
	if (r == 0)
		r = (cudaError_t)vgpu_drv.cuMemAlloc_v2(&d, n);
	*p = (void *)(uintptr_t)d;
	return vgpu_rt_keep(r);
}

RT cudaMallocManaged(void **p, size_t n, unsigned flags) { CALL(vgpu_drv.cuMemAllocManaged((CUdeviceptr *)p, n, flags)); }
RT cudaMallocAsync(void **p, size_t n, CUstream s) { CALL(vgpu_drv.cuMemAllocAsync((CUdeviceptr *)p, n, s)); }
RT cudaFree(void *p) { CALL(vgpu_drv.cuMemFree_v2(D(p))); }
RT cudaFreeAsync(void *p, CUstream s) { CALL(vgpu_drv.cuMemFreeAsync(D(p), s)); }
RT cudaHostAlloc(void **p, size_t n, unsigned flags) { CALL(vgpu_drv.cuMemHostAlloc(p, n, flags)); }
RT cudaMallocHost(void **p, size_t n) { CALL(vgpu_drv.cuMemHostAlloc(p, n, 0)); }
RT cudaFreeHost(void *p) { CALL(vgpu_drv.cuMemFreeHost(p)); }
RT cudaHostRegister(void *p, size_t n, unsigned flags) { CALL(vgpu_drv.cuMemHostRegister_v2(p, n, flags)); }
RT cudaHostUnregister(void *p) { CALL(vgpu_drv.cuMemHostUnregister(p)); }
RT cudaMemGetInfo(size_t *free_bytes, size_t *total) { CALL(vgpu_drv.cuMemGetInfo_v2(free_bytes, total)); }
RT cudaMemset(void *p, int value, size_t n) { CALL(vgpu_drv.cuMemsetD8_v2(D(p), (unsigned char)value, n)); }
RT cudaMemsetAsync(void *p, int value, size_t n, CUstream s) { CALL(vgpu_drv.cuMemsetD8Async(D(p), (unsigned char)value, n, s)); }

struct pointer_attributes {
	int type, device; /* type: 0 unknown, 1 host, 2 device */
	void *device_pointer, *host_pointer;
};

RT cudaPointerGetAttributes(struct pointer_attributes *a, const void *p)
{
	cudaError_t r = vgpu_rt_ready();
	memset(a, 0, sizeof *a);
	if (r == 0 && vgpu_drv.cuPointerGetAttribute(&a->type, 2, D(p)) == CUDA_SUCCESS) {
		vgpu_drv.cuPointerGetAttribute(&a->device, 9, D(p));
		a->device_pointer = a->host_pointer = (void *)(uintptr_t)p;
	}
	return vgpu_rt_keep(r);
}

RT cudaMemcpy(void *to, const void *from, size_t n, int kind)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		CALL(vgpu_drv.cuMemcpyHtoD_v2(D(to), from, n));
	case cudaMemcpyDeviceToHost:
		CALL(vgpu_drv.cuMemcpyDtoH_v2(to, D(from), n));
	case cudaMemcpyDeviceToDevice:
		CALL(vgpu_drv.cuMemcpyDtoD_v2(D(to), D(from), n));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		CALL(vgpu_drv.cuMemcpy(D(to), D(from), n));
	default:
		return vgpu_rt_keep(cudaErrorInvalidMemcpyDirection);
	}
}

RT cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, CUstream s)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		CALL(vgpu_drv.cuMemcpyHtoDAsync_v2(D(to), from, n, s));
	case cudaMemcpyDeviceToHost:
		CALL(vgpu_drv.cuMemcpyDtoHAsync_v2(to, D(from), n, s));
	case cudaMemcpyDeviceToDevice:
		CALL(vgpu_drv.cuMemcpyDtoDAsync_v2(D(to), D(from), n, s));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		CALL(vgpu_drv.cuMemcpyAsync(D(to), D(from), n, s));
	default:
		return vgpu_rt_keep(cudaErrorInvalidMemcpyDirection);
	}
}

RT cudaMemcpyAsync_ptsz(void *to, const void *from, size_t n, int kind, CUstream s)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		CALL(vgpu_drv.cuMemcpyHtoDAsync_v2_ptsz(D(to), from, n, s));
	case cudaMemcpyDeviceToHost:
		CALL(vgpu_drv.cuMemcpyDtoHAsync_v2_ptsz(to, D(from), n, s));
	case cudaMemcpyDeviceToDevice:
		CALL(vgpu_drv.cuMemcpyDtoDAsync_v2_ptsz(D(to), D(from), n, s));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		CALL(vgpu_drv.cuMemcpyAsync_ptsz(D(to), D(from), n, s));
	default:
		return vgpu_rt_keep(cudaErrorInvalidMemcpyDirection);
	}
}

/* ---- kernels ---- */

/* A kernel is known by the address of its stub on the host; the virtual driver takes any. */
#define FUNCTION(f) ((CUfunction)(uintptr_t)(f))

RT cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, CUstream s)
{
	CALL(vgpu_drv.cuLaunchKernel(FUNCTION(f), grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, s, args, NULL));
}

RT cudaLaunchKernel_ptsz(const void *f, dim3 grid, dim3 block, void **args, size_t shared, CUstream s)
{
	CALL(vgpu_drv.cuLaunchKernel_ptsz(FUNCTION(f), grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, s, args,
	                                  NULL));
}

typedef struct {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	CUstream stream;
	void *attrs;
	unsigned numAttrs;
} cudaLaunchConfig_t;

static CUlaunchConfig config_of(const cudaLaunchConfig_t *c)
{
	return (CUlaunchConfig){c->gridDim.x, c->gridDim.y, c->gridDim.z, c->blockDim.x, c->blockDim.y, c->blockDim.z,
	                        (unsigned)c->dynamicSmemBytes, c->stream, NULL, 0};
}

RT cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **args)
{
	CUlaunchConfig config = config_of(c);
	CALL(vgpu_drv.cuLaunchKernelEx(&config, FUNCTION(f), args, NULL));
}

RT cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *c, const void *f, void **args)
{
	CUlaunchConfig config = config_of(c);
	CALL(vgpu_drv.cuLaunchKernelEx_ptsz(&config, FUNCTION(f), args, NULL));
}

RT cudaFuncSetAttribute(const void *f, int which, int value)
{
	(void)f, (void)which, (void)value;
	return 0;
}

__attribute__((visibility("default"))) void vgpuSetKernelNs(uint64_t ns)
{
	if (vgpu_rt_load() == 0 && vgpu_drv.set_kernel_ns)
		vgpu_drv.set_kernel_ns(ns);
}

/* ---- streams ---- */

RT cudaStreamCreate(CUstream *s) { CALL(vgpu_drv.cuStreamCreate(s, 0)); }
RT cudaStreamCreateWithFlags(CUstream *s, unsigned flags) { CALL(vgpu_drv.cuStreamCreate(s, flags)); }
RT cudaStreamCreateWithPriority(CUstream *s, unsigned flags, int priority)
{
	CALL(vgpu_drv.cuStreamCreateWithPriority(s, flags, priority));
}
RT cudaStreamDestroy(CUstream s) { CALL(vgpu_drv.cuStreamDestroy_v2(s)); }
RT cudaStreamQuery(CUstream s) { CALL(vgpu_drv.cuStreamQuery(s)); }
RT cudaStreamSynchronize(CUstream s) { CALL(vgpu_drv.cuStreamSynchronize(s)); }
RT cudaStreamSynchronize_ptsz(CUstream s) { CALL(vgpu_drv.cuStreamSynchronize_ptsz(s)); }
RT cudaStreamWaitEvent(CUstream s, CUevent e, unsigned flags) { CALL(vgpu_drv.cuStreamWaitEvent(s, e, flags)); }
RT cudaStreamBeginCapture(CUstream s, int mode) { CALL(vgpu_drv.cuStreamBeginCapture_v2(s, mode)); }
RT cudaStreamEndCapture(CUstream s, CUgraph *g) { CALL(vgpu_drv.cuStreamEndCapture(s, g)); }
RT cudaStreamIsCapturing(CUstream s, int *status) { CALL(vgpu_drv.cuStreamIsCapturing(s, status)); }

/* ---- graphs ---- */

RT cudaGraphInstantiate(CUgraphExec *x, CUgraph g, unsigned long long flags)
{
	CALL(vgpu_drv.cuGraphInstantiateWithFlags(x, g, flags));
}
RT cudaGraphLaunch(CUgraphExec x, CUstream s) { CALL(vgpu_drv.cuGraphLaunch(x, s)); }
RT cudaGraphLaunch_ptsz(CUgraphExec x, CUstream s) { CALL(vgpu_drv.cuGraphLaunch_ptsz(x, s)); }
RT cudaGraphDestroy(CUgraph g) { CALL(vgpu_drv.cuGraphDestroy(g)); }
RT cudaGraphExecDestroy(CUgraphExec x) { CALL(vgpu_drv.cuGraphExecDestroy(x)); }

/* ---- events ---- */

RT cudaEventCreate(CUevent *e) { CALL(vgpu_drv.cuEventCreate(e, 0)); }
RT cudaEventCreateWithFlags(CUevent *e, unsigned flags) { CALL(vgpu_drv.cuEventCreate(e, flags)); }
RT cudaEventDestroy(CUevent e) { CALL(vgpu_drv.cuEventDestroy_v2(e)); }
RT cudaEventRecord(CUevent e, CUstream s) { CALL(vgpu_drv.cuEventRecord(e, s)); }
RT cudaEventQuery(CUevent e) { CALL(vgpu_drv.cuEventQuery(e)); }
RT cudaEventSynchronize(CUevent e) { CALL(vgpu_drv.cuEventSynchronize(e)); }
RT cudaEventElapsedTime(float *ms, CUevent from, CUevent to) { CALL(vgpu_drv.cuEventElapsedTime(ms, from, to)); }

/* ---- what nvcc's start-up code and <<< >>> call ---- */

static __thread struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} pushed[8];
static __thread unsigned npushed;

__attribute__((visibility("default"))) void **__cudaRegisterFatBinary(void *image)
{
	static void *handle;
	(void)image;
	return &handle;
}
__attribute__((visibility("default"))) void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
__attribute__((visibility("default"))) void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
__attribute__((visibility("default"))) void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name)
{
	(void)handle, (void)host, (void)device, (void)name;
}
__attribute__((visibility("default"))) unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
	if (npushed == 8)
		return 1;
	pushed[npushed].grid = grid;
	pushed[npushed].block = block;
	pushed[npushed].shared = shared;
	pushed[npushed++].stream = stream;
	return 0;
}
RT __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	if (!npushed)
		return cudaErrorInvalidValue;
	npushed--;
	*grid = pushed[npushed].grid;
	*block = pushed[npushed].block;
	*shared = pushed[npushed].shared;
	*(void **)stream = pushed[npushed].stream;
	return 0;
}
