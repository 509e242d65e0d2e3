// The part of CUDA's runtime and NCCL that the trainers use, declared by hand:
// they build without NVIDIA's headers, and link against the ordinary names.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct ncclComm;
typedef CUstream_st *cudaStream_t;
typedef CUevent_st *cudaEvent_t;
typedef CUgraph_st *cudaGraph_t;
typedef CUgraphExec_st *cudaGraphExec_t;
typedef ncclComm *ncclComm_t;

struct dim3 {
	unsigned x = 1, y = 1, z = 1;
};
struct ncclUniqueId {
	char internal[128];
};

enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum { cudaDeviceScheduleSpin = 1, cudaDeviceScheduleBlockingSync = 4 };
enum { cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaStreamNonBlocking = 1, cudaStreamCaptureModeGlobal = 0 };
enum { ncclFloat32 = 7, ncclSum = 0 };

const char *cudaGetErrorString(int error);
int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaSetDeviceFlags(unsigned flags);
int cudaDeviceSynchronize(void);
int cudaMalloc(void **p, size_t bytes);
int cudaHostAlloc(void **p, size_t bytes, unsigned flags);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream);
int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);
int cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
int cudaStreamSynchronize(cudaStream_t stream);
int cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
int cudaStreamBeginCapture(cudaStream_t stream, int mode);
int cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
int cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
int cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
int cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
int cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
int cudaEventSynchronize(cudaEvent_t event);
int cudaEventQuery(cudaEvent_t event);

const char *ncclGetErrorString(int result);
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
int ncclCommGetAsyncError(ncclComm_t comm, int *error);
int ncclCommAbort(ncclComm_t comm);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, cudaStream_t stream);
}
