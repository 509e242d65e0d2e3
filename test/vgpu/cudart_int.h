/* What the files of the virtual libcudart share. It knows nothing of the node: like the
 * real runtime it opens libcuda.so.1 and calls it. */
#ifndef VGPU_CUDART_INT_H
#define VGPU_CUDART_INT_H

#include "cuda.h"

typedef int cudaError_t; /* numbers as CUresult's */
enum { cudaErrorInvalidValue = 1, cudaErrorInsufficientDriver = 35, cudaErrorCallRequiresNewerDriver = 36, cudaErrorInvalidMemcpyDirection = 21 };
enum { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };

typedef struct {
	unsigned x, y, z;
} dim3;

#define RT __attribute__((visibility("default"))) cudaError_t

/* Every driver call that the runtime makes: name, parameters. */
#define DRIVER_CALLS(X)                                                                                               \
	X(cuInit, (unsigned))                                                                                               \
	X(cuDriverGetVersion, (int *))                                                                                      \
	X(cuDeviceGetCount, (int *))                                                                                        \
	X(cuDeviceGetName, (char *, int, CUdevice))                                                                         \
	X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                                         \
	X(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                                        \
	X(cuDeviceGetAttribute, (int *, int, CUdevice))                                                                     \
	X(cuDeviceGetPCIBusId, (char *, int, CUdevice))                                                                     \
	X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                                \
	X(cuDevicePrimaryCtxReset_v2, (CUdevice))                                                                           \
	X(cuDevicePrimaryCtxSetFlags_v2, (CUdevice, unsigned))                                                              \
	X(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *))                                                        \
	X(cuCtxSetCurrent, (CUcontext))                                                                                     \
	X(cuCtxGetCurrent, (CUcontext *))                                                                                   \
	X(cuCtxGetDevice, (CUdevice *))                                                                                     \
	X(cuCtxSynchronize, (void))                                                                                         \
	X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                           \
	X(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                                             \
	X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                                               \
	X(cuMemFree_v2, (CUdeviceptr))                                                                                      \
	X(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                          \
	X(cuMemHostAlloc, (void **, size_t, unsigned))                                                                      \
	X(cuMemFreeHost, (void *))                                                                                          \
	X(cuMemHostRegister_v2, (void *, size_t, unsigned))                                                                 \
	X(cuMemHostUnregister, (void *))                                                                                    \
	X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                            \
	X(cuPointerGetAttribute, (void *, int, CUdeviceptr))                                                                \
	X(cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t))                                                                     \
	X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                             \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                                   \
	X(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t))                                                              \
	X(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                                      \
	X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                              \
	X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                                    \
	X(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                               \
	X(cuMemcpyAsync_ptsz, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                                 \
	X(cuMemcpyHtoDAsync_v2_ptsz, (CUdeviceptr, const void *, size_t, CUstream))                                         \
	X(cuMemcpyDtoHAsync_v2_ptsz, (void *, CUdeviceptr, size_t, CUstream))                                               \
	X(cuMemcpyDtoDAsync_v2_ptsz, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                          \
	X(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))                                                              \
	X(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                                  \
	X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
	X(cuLaunchKernel_ptsz, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
	X(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **))                                         \
	X(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *, CUfunction, void **, void **))                                    \
	X(cuStreamCreate, (CUstream *, unsigned))                                                                           \
	X(cuStreamCreateWithPriority, (CUstream *, unsigned, int))                                                          \
	X(cuStreamDestroy_v2, (CUstream))                                                                                   \
	X(cuStreamQuery, (CUstream))                                                                                        \
	X(cuStreamSynchronize, (CUstream))                                                                                  \
	X(cuStreamSynchronize_ptsz, (CUstream))                                                                             \
	X(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                                                 \
	X(cuStreamBeginCapture_v2, (CUstream, int))                                                                         \
	X(cuStreamEndCapture, (CUstream, CUgraph *))                                                                        \
	X(cuStreamIsCapturing, (CUstream, int *))                                                                           \
	X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                                        \
	X(cuGraphLaunch, (CUgraphExec, CUstream))                                                                           \
	X(cuGraphLaunch_ptsz, (CUgraphExec, CUstream))                                                                      \
	X(cuGraphDestroy, (CUgraph))                                                                                        \
	X(cuGraphExecDestroy, (CUgraphExec))                                                                                \
	X(cuEventCreate, (CUevent *, unsigned))                                                                             \
	X(cuEventDestroy_v2, (CUevent))                                                                                     \
	X(cuEventRecord, (CUevent, CUstream))                                                                               \
	X(cuEventQuery, (CUevent))                                                                                          \
	X(cuEventSynchronize, (CUevent))                                                                                    \
	X(cuEventElapsedTime, (float *, CUevent, CUevent))

#pragma GCC visibility push(hidden)
struct vgpu_driver_calls {
#define FIELD(name, params) CUresult(*name) params;
	DRIVER_CALLS(FIELD)
#undef FIELD
	void (*set_kernel_ns)(uint64_t ns);
};
extern struct vgpu_driver_calls vgpu_drv;

/* vgpu_rt_ready opens libcuda and gives the thread a context; 0 or the error. */
cudaError_t vgpu_rt_ready(void);
cudaError_t vgpu_rt_load(void);
/* vgpu_rt_keep remembers an error for cudaGetLastError. */
cudaError_t vgpu_rt_keep(int error);
#pragma GCC visibility pop

#define CALL(expr)                                       \
	do {                                                   \
		cudaError_t e_ = vgpu_rt_ready();                    \
		return vgpu_rt_keep(e_ ? e_ : (cudaError_t)(expr));  \
	} while (0)
#define D(p) ((CUdeviceptr)(uintptr_t)(p))

#endif
