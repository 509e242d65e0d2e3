//go:build ignore

/* The virtual libcudart: start, devices, errors. */
#define _GNU_SOURCE
#include "cudart_int.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct vgpu_driver_calls vgpu_drv;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t load_error;
static __thread int device;
static __thread int bound; /* 1 + the device whose context the thread has */
static __thread cudaError_t last_error;

/* lacking stands for a call that an older driver does not have. */
static CUresult lacking(void) { return (CUresult)cudaErrorCallRequiresNewerDriver; }

static void load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib || !dlsym(lib, "cuInit")) {
		load_error = cudaErrorInsufficientDriver;
		return;
	}
#define LOOK(name, params) \
	if (!(*(void **)&vgpu_drv.name = dlsym(lib, #name))) \
		*(void **)&vgpu_drv.name = (void *)lacking;
	DRIVER_CALLS(LOOK)
#undef LOOK
	*(void **)&vgpu_drv.set_kernel_ns = dlsym(lib, "vgpuSetKernelNs");
	if (!load_error)
		load_error = (cudaError_t)vgpu_drv.cuInit(0);
}

cudaError_t vgpu_rt_load(void)
{
	pthread_once(&once, load);
	return load_error;
}

cudaError_t vgpu_rt_ready(void)
{
	CUcontext c;
	cudaError_t r = vgpu_rt_load();
	if (r || bound == device + 1)
		return r;
	if (!bound && device == 0 && vgpu_drv.cuCtxGetCurrent(&c) == CUDA_SUCCESS && c)
		return 0; /* the program brought its own */
	if ((r = (cudaError_t)vgpu_drv.cuDevicePrimaryCtxRetain(&c, device)) == 0)
		r = (cudaError_t)vgpu_drv.cuCtxSetCurrent(c);
	if (r == 0)
		bound = device + 1;
	return r;
}

cudaError_t vgpu_rt_keep(int error)
{
	if (error && error != CUDA_ERROR_NOT_READY)
		last_error = error;
	return error;
}

RT cudaGetLastError(void)
{
	cudaError_t e = last_error;
	last_error = 0;
	return e;
}

RT cudaPeekAtLastError(void) { return last_error; }

static const struct {
	cudaError_t code;
	const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {36, "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {201, "cudaErrorDeviceUninitialized", "invalid device context"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {401, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {600, "cudaErrorNotReady", "device not ready"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
};

static const char *describe(cudaError_t e, int name)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == e)
			return name ? errors[i].name : errors[i].text;
	return name ? "cudaErrorUnknown" : "unknown error";
}

__attribute__((visibility("default"))) const char *cudaGetErrorString(cudaError_t e) { return describe(e, 0); }
__attribute__((visibility("default"))) const char *cudaGetErrorName(cudaError_t e) { return describe(e, 1); }

/* ---- devices ---- */

RT cudaRuntimeGetVersion(int *v)
{
	*v = 12040;
	return 0;
}

RT cudaDriverGetVersion(int *v)
{
	*v = 0;
	if (vgpu_rt_load() != cudaErrorInsufficientDriver)
		vgpu_drv.cuDriverGetVersion(v);
	return 0;
}

RT cudaGetDeviceCount(int *n)
{
	*n = 0;
	cudaError_t r = vgpu_rt_load();
	return vgpu_rt_keep(r ? r : (cudaError_t)vgpu_drv.cuDeviceGetCount(n));
}

static cudaError_t known(int d)
{
	int n = 0;
	cudaError_t r = vgpu_rt_load();
	if (r == 0)
		r = (cudaError_t)vgpu_drv.cuDeviceGetCount(&n);
	return r ? r : d < 0 || d >= n ? CUDA_ERROR_INVALID_DEVICE : 0;
}

RT cudaSetDevice(int d)
{
	cudaError_t r = known(d);
	if (r == 0) {
		device = d;
		bound = bound ? bound : -1; /* a context of the program's own no longer counts */
		r = vgpu_rt_ready();
	}
	return vgpu_rt_keep(r);
}

RT cudaGetDevice(int *d)
{
	cudaError_t r = vgpu_rt_load();
	*d = device;
	return vgpu_rt_keep(r);
}

RT cudaSetDeviceFlags(unsigned flags)
{
	cudaError_t r = vgpu_rt_load();
	return vgpu_rt_keep(r ? r : (cudaError_t)vgpu_drv.cuDevicePrimaryCtxSetFlags_v2(device, flags));
}

RT cudaGetDeviceFlags(unsigned *flags)
{
	int active;
	cudaError_t r = vgpu_rt_load();
	return vgpu_rt_keep(r ? r : (cudaError_t)vgpu_drv.cuDevicePrimaryCtxGetState(device, flags, &active));
}

RT cudaDeviceReset(void)
{
	cudaError_t r = vgpu_rt_load();
	bound = 0;
	return vgpu_rt_keep(r ? r : (cudaError_t)vgpu_drv.cuDevicePrimaryCtxReset_v2(device));
}

RT cudaDeviceSynchronize(void) { CALL(vgpu_drv.cuCtxSynchronize()); }

RT cudaDeviceGetAttribute(int *value, int which, int d)
{
	cudaError_t r = vgpu_rt_load();
	return vgpu_rt_keep(r ? r : (cudaError_t)vgpu_drv.cuDeviceGetAttribute(value, which, d));
}

RT cudaDeviceGetPCIBusId(char *id, int len, int d)
{
	cudaError_t r = vgpu_rt_load();
	return vgpu_rt_keep(r ? r : (cudaError_t)vgpu_drv.cuDeviceGetPCIBusId(id, len, d));
}

RT cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return 0;
}

/* The head of CUDA 12's cudaDeviceProp; the rest of its 1032 bytes reads as 0. */
struct properties {
	char name[256];
	CUuuid uuid;
	char luid[8];
	unsigned luid_mask;
	size_t total, shared_per_block;
	int regs_per_block, warp;
	size_t pitch;
	int threads_per_block, threads_dim[3], grid[3], clock_khz;
	size_t constant;
	int major, minor;
	size_t texture, texture_pitch;
	int overlap, processors;
};
enum { PROPERTIES_BYTES = 1032 };

static cudaError_t properties(void *out, int d)
{
	struct properties p = {.shared_per_block = 49152, .regs_per_block = 65536, .warp = 32, .threads_per_block = 1024,
	                       .threads_dim = {1024, 1024, 64}, .grid = {2147483647, 65535, 65535}, .constant = 65536, .overlap = 1};
	cudaError_t r = known(d);
	if (r)
		return r;
	vgpu_drv.cuDeviceGetName(p.name, sizeof p.name, d);
	vgpu_drv.cuDeviceGetUuid_v2(&p.uuid, d);
	vgpu_drv.cuDeviceTotalMem_v2(&p.total, d);
	vgpu_drv.cuDeviceGetAttribute(&p.clock_khz, 13, d);
	vgpu_drv.cuDeviceGetAttribute(&p.processors, 16, d);
	vgpu_drv.cuDeviceGetAttribute(&p.major, 75, d);
	memset(out, 0, PROPERTIES_BYTES);
	memcpy(out, &p, sizeof p);
	return 0;
}

RT cudaGetDeviceProperties_v2(void *p, int d) { return vgpu_rt_keep(properties(p, d)); }
RT cudaGetDeviceProperties(void *p, int d) { return vgpu_rt_keep(properties(p, d)); }
