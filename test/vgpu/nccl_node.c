//go:build ignore

/* How the virtual libnccl reaches the device: through a few calls that the
 * virtual libcuda has beside the driver's own, for a kernel that runs until
 * somebody ends it. */
#include "nccl_int.h"

typedef int CUresult; /* 0 is CUDA_SUCCESS */
enum { CU_NOT_READY = 600 };

struct vgn_open; /* libcuda's struct vgpuOpenOp */

extern CUresult cuInit(unsigned flags);
extern CUresult cuCtxGetDevice(int *device);
extern CUresult cuDevicePrimaryCtxRetain(void **ctx, int device);
extern CUresult cuCtxSetCurrent(void *ctx);
extern CUresult vgpuFault(const char *call);
extern CUresult vgpuOpenOpCapture(struct CUstream_st *s, CUresult (*again)(void *arg, struct CUstream_st *s), void *arg);
extern CUresult vgpuOpenOpEnqueue(struct CUstream_st *s, const char *name, struct vgn_open **op);
extern CUresult vgpuOpenOpWaitStart(struct vgn_open *op, int timeout_ms);
extern CUresult vgpuOpenOpMoved(struct vgn_open *op, uint64_t out, uint64_t in);
extern CUresult vgpuOpenOpFinish(struct vgn_open *op);

ncclResult_t vgn_set_device(int ordinal)
{
	void *ctx;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, ordinal) || cuCtxSetCurrent(ctx))
		return ncclUnhandledCudaError;
	return ncclSuccess;
}

int vgn_fault(const char *call) { return vgpuFault(call) != 0; }

/* A thread without a context gets device 0's, as from the runtime. */
ncclResult_t vgn_device(int *ordinal)
{
	if (cuCtxGetDevice(ordinal) == 0)
		return ncclSuccess;
	*ordinal = 0;
	return vgn_set_device(0);
}

int vgn_captured(struct CUstream_st *s, int (*again)(void *arg, struct CUstream_st *s), void *arg)
{
	return vgpuOpenOpCapture(s, again, arg) == 0;
}

ncclResult_t vgn_open_enqueue(struct CUstream_st *s, const char *name, struct vgn_open **op)
{
	return vgpuOpenOpEnqueue(s, name, op) ? ncclUnhandledCudaError : ncclSuccess;
}

int vgn_open_wait(struct vgn_open *op, int timeout_ms)
{
	CUresult r = vgpuOpenOpWaitStart(op, timeout_ms);
	return r == 0 ? 1 : r == CU_NOT_READY ? 0 : -1;
}

void vgn_open_moved(struct vgn_open *op, uint64_t out, uint64_t in) { vgpuOpenOpMoved(op, out, in); }

void vgn_open_finish(struct vgn_open *op)
{
	vgpuOpenOpFinish(op);
}
