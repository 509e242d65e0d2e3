//go:build ignore

/* One rank of nccl_test.go: `nccl_check MODE ARG`, with RANK, WORLD and
 * NCCL_COMM_ID in its environment. What it finds it prints as "key value" lines;
 * a wrong number ends it with status 1.
 *
 *     sums              every collective, several types, sizes that do not divide; checks each element
 *     ring KIND BYTES   KIND once, with BYTES in the larger buffer
 *     late MS           rank 0 comes MS late to an all-reduce: when it came, when each was through
 *     order             work before and after a collective on one stream, and none of it out of order
 *     graph             copies and an all-reduce as one graph, launched again and again; checks each element
 *     all               one process, a thread for each device: ncclCommInitAll and a group
 *     die               the last rank exits instead of coming; the others want an error, not a hang
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

typedef struct CUstream_st *cudaStream_t;
extern int cudaGetDeviceCount(int *n);
extern int cudaSetDevice(int device);
extern int cudaMalloc(void **p, size_t n);
extern int cudaFree(void *p);
extern int cudaMemcpy(void *to, const void *from, size_t n, int kind);
extern int cudaStreamCreate(cudaStream_t *s);
extern int cudaStreamQuery(cudaStream_t s);
extern int cudaStreamSynchronize(cudaStream_t s);

static int rank, world;
static ncclComm_t comm;
static cudaStream_t stream;

#define OK(call)                                                                      \
	do {                                                                                \
		int ok_ = (call);                                                                 \
		if (ok_) {                                                                        \
			fprintf(stderr, "rank %d: %s: error %d\n", rank, #call, ok_);                   \
			exit(1);                                                                        \
		}                                                                                 \
	} while (0)

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *device_copy(const void *from, size_t n)
{
	void *p;
	OK(cudaMalloc(&p, n));
	OK(cudaMemcpy(p, from, n, 1));
	return p;
}

static int32_t value(int r, size_t i) { return (int32_t)((i * 7 + (size_t)r * 13) % 1000); }

static int32_t summed(size_t i)
{
	int32_t s = 0;
	for (int r = 0; r < world; r++)
		s += value(r, i);
	return s;
}

/* wants compares what lies on the device with want(i), for elements from..from+n. */
static void wants(const char *what, const int32_t *device, size_t from, size_t n, int owner)
{
	int32_t *host = malloc(n * sizeof *host);
	OK(cudaMemcpy(host, device, n * sizeof *host, 2));
	for (size_t i = 0; i < n; i++) {
		int32_t want = owner < 0 ? summed(from + i) : value(owner, from + i);
		if (host[i] != want) {
			fprintf(stderr, "rank %d: %s: element %zu is %d, want %d\n", rank, what, i, host[i], want);
			exit(1);
		}
	}
	free(host);
}

static void sums_of(size_t n)
{
	size_t total = n * (size_t)world, bytes = total * sizeof(int32_t);
	int32_t *host = malloc(bytes), *in, *out;
	int root = world - 1, next = (rank + 1) % world, last = (rank + world - 1) % world;
	for (size_t i = 0; i < total; i++)
		host[i] = value(rank, i);
	in = device_copy(host, bytes);
	memset(host, 0xee, bytes);
	out = device_copy(host, bytes);

	OK(ncclAllReduce(in, out, total, ncclInt32, ncclSum, comm, stream));
	OK(cudaStreamSynchronize(stream));
	wants("all-reduce", out, 0, total, -1);
	OK(ncclReduceScatter(in, out, n, ncclInt32, ncclSum, comm, stream));
	OK(cudaStreamSynchronize(stream));
	wants("reduce-scatter", out, n * (size_t)rank, n, -1);
	OK(ncclBroadcast(in, out, total, ncclInt32, root, comm, stream));
	OK(cudaStreamSynchronize(stream));
	wants("broadcast", out, 0, total, root);
	OK(ncclReduce(in, out, total, ncclInt32, ncclSum, root, comm, stream));
	OK(cudaStreamSynchronize(stream));
	wants("reduce", out, 0, total, rank == root ? -1 : root);
	OK(ncclGroupStart());
	OK(ncclSend(in, total, ncclInt32, next, comm, stream));
	OK(ncclRecv(out, total, ncclInt32, last, comm, stream));
	OK(ncclGroupEnd());
	OK(cudaStreamSynchronize(stream));
	wants("send and receive", out, 0, total, last);
	OK(ncclAllGather(in, out, n, ncclInt32, comm, stream));
	OK(cudaStreamSynchronize(stream));
	for (int r = 0; r < world; r++)
		wants("all-gather", out + (size_t)r * n, 0, n, r);
	OK(ncclAllReduce(in, in, total, ncclInt32, ncclSum, comm, stream)); /* in place */
	OK(cudaStreamSynchronize(stream));
	wants("all-reduce in place", in, 0, total, -1);
	OK(cudaFree(in));
	OK(cudaFree(out));
	free(host);
}

/* average checks a type narrower than the sums: 2 bytes of bfloat16 holding rank+1. */
static void average(void)
{
	static const uint16_t small[] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100}; /* 1..8 */
	enum { n = 1001 };
	uint16_t host[n];
	for (int i = 0; i < n; i++)
		host[i] = small[rank];
	uint16_t *d = device_copy(host, sizeof host);
	OK(ncclAllReduce(d, d, n, ncclBfloat16, ncclAvg, comm, stream));
	OK(cudaStreamSynchronize(stream));
	OK(cudaMemcpy(host, d, sizeof host, 2));
	uint32_t bits = (uint32_t)host[n - 1] << 16;
	float got, want = (world + 1) / 2.0f;
	memcpy(&got, &bits, sizeof got);
	if (got != want) {
		fprintf(stderr, "rank %d: average of bfloat16 is %g, want %g\n", rank, got, want);
		exit(1);
	}
	OK(cudaFree(d));
}

static void sums(void)
{
	static const size_t sizes[] = {1, 7, 1000, 300001};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		sums_of(sizes[i]);
	average();
	printf("sums ok\n");
}

static void ring(const char *kind, size_t bytes)
{
	void *in, *out;
	OK(cudaMalloc(&in, bytes));
	OK(cudaMalloc(&out, bytes));
	size_t n = bytes / 4;
	if (!strcmp(kind, "allreduce"))
		OK(ncclAllReduce(in, out, n, ncclFloat32, ncclSum, comm, stream));
	else if (!strcmp(kind, "reducescatter"))
		OK(ncclReduceScatter(in, out, n / (size_t)world, ncclFloat32, ncclSum, comm, stream));
	else if (!strcmp(kind, "allgather"))
		OK(ncclAllGather(in, out, n / (size_t)world, ncclFloat32, comm, stream));
	else if (!strcmp(kind, "broadcast"))
		OK(ncclBroadcast(in, out, n, ncclFloat32, 0, comm, stream));
	else
		exit(2);
	OK(cudaStreamSynchronize(stream));
}

static void late(int ms)
{
	void *d;
	OK(cudaMalloc(&d, 4096));
	OK(ncclAllReduce(d, d, 1024, ncclFloat32, ncclSum, comm, stream)); /* all are here now */
	OK(cudaStreamSynchronize(stream));
	if (rank == 0)
		usleep((useconds_t)ms * 1000);
	printf("came %.6f\n", now());
	OK(ncclBroadcast(d, d, 1024, ncclFloat32, world - 1, comm, stream));
	printf("returned %.6f\n", now());
	printf("query %d\n", rank == 0 ? 600 : cudaStreamQuery(stream)); /* 600: cudaErrorNotReady */
	OK(cudaStreamSynchronize(stream));
	printf("through %.6f\n", now());
}

/* order: each collective reads what the copy before it brought, on the same stream. */
extern int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t s);
static void order(void)
{
	enum { rounds = 20, n = 50000 };
	int32_t *in, *out, *host = malloc(rounds * n * sizeof *host), *back = malloc(rounds * n * sizeof *back);
	OK(cudaMalloc((void **)&in, n * sizeof *in));
	OK(cudaMalloc((void **)&out, n * sizeof *out));
	for (int k = 0; k < rounds; k++) {
		for (int i = 0; i < n; i++)
			host[k * n + i] = k * 100 + rank;
		OK(cudaMemcpyAsync(in, host + k * n, n * sizeof *in, 1, stream));
		OK(ncclAllReduce(in, out, n, ncclInt32, ncclSum, comm, stream));
		OK(cudaMemcpyAsync(back + k * n, out, n * sizeof *in, 2, stream));
	}
	OK(cudaStreamSynchronize(stream));
	for (int k = 0; k < rounds; k++)
		for (int i = 0; i < n; i++)
			if (back[k * n + i] != world * k * 100 + world * (world - 1) / 2) {
				fprintf(stderr, "rank %d: round %d: element %d is %d\n", rank, k, i, back[k * n + i]);
				exit(1);
			}
	printf("order ok\n");
}

/* graph: a step of copies and an all-reduce as one graph, the all-reduce on a stream of its own. */
extern int cudaStreamBeginCapture(cudaStream_t s, int mode), cudaStreamEndCapture(cudaStream_t s, void **g);
extern int cudaGraphInstantiate(void **x, void *g, unsigned long long flags), cudaGraphLaunch(void *x, cudaStream_t s);
extern int cudaEventCreate(void **e), cudaEventRecord(void *e, cudaStream_t s), cudaStreamWaitEvent(cudaStream_t s, void *e, unsigned flags);
static void graph(void)
{
	enum { launches = 20, n = 5000 };
	int32_t *in, *out, host[n], back[n];
	void *g, *x, *ready, *reduced;
	cudaStream_t beside;
	OK(cudaStreamCreate(&beside));
	OK(cudaEventCreate(&ready) || cudaEventCreate(&reduced));
	OK(cudaMalloc((void **)&in, sizeof host));
	OK(cudaMalloc((void **)&out, sizeof host));
	OK(cudaStreamBeginCapture(stream, 0));
	OK(cudaMemcpyAsync(in, host, sizeof host, 1, stream));
	OK(cudaEventRecord(ready, stream) || cudaStreamWaitEvent(beside, ready, 0));
	OK(ncclAllReduce(in, out, n, ncclInt32, ncclSum, comm, beside));
	OK(cudaEventRecord(reduced, beside) || cudaStreamWaitEvent(stream, reduced, 0));
	OK(cudaMemcpyAsync(back, out, sizeof back, 2, stream));
	OK(cudaStreamEndCapture(stream, &g));
	OK(cudaGraphInstantiate(&x, g, 0));
	for (int k = 0; k < launches; k++) {
		for (int i = 0; i < n; i++)
			host[i] = k * 100 + rank, back[i] = -1;
		OK(cudaGraphLaunch(x, stream));
		OK(cudaStreamSynchronize(stream));
		for (int i = 0; i < n; i++)
			if (back[i] != world * k * 100 + world * (world - 1) / 2) {
				fprintf(stderr, "rank %d: launch %d: element %d is %d\n", rank, k, i, back[i]);
				exit(1);
			}
	}
	printf("graph ok\n");
}

static void all(int n)
{
	ncclComm_t comms[16];
	cudaStream_t streams[16];
	float *d[16], host[1000];
	OK(ncclCommInitAll(comms, n, NULL));
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < 1000; k++)
			host[k] = (float)(i + 1);
		OK(cudaSetDevice(i));
		OK(cudaStreamCreate(&streams[i]));
		d[i] = device_copy(host, sizeof host);
	}
	OK(ncclGroupStart());
	for (int i = 0; i < n; i++)
		OK(ncclAllReduce(d[i], d[i], 1000, ncclFloat32, ncclSum, comms[i], streams[i]));
	OK(ncclGroupEnd());
	for (int i = 0; i < n; i++) {
		OK(cudaSetDevice(i));
		OK(cudaStreamSynchronize(streams[i]));
		OK(cudaMemcpy(host, d[i], sizeof host, 2));
		if (host[999] != n * (n + 1) / 2.0f)
			exit(1);
		OK(ncclCommDestroy(comms[i]));
	}
	printf("all ok\n");
}

static void die(void)
{
	void *d;
	ncclResult_t error = ncclSuccess;
	OK(cudaMalloc(&d, 1 << 20));
	if (rank == world - 1)
		_exit(0);
	OK(ncclAllReduce(d, d, 1 << 18, ncclFloat32, ncclSum, comm, stream));
	for (int i = 0; i < 2000 && error == ncclSuccess; i++) { /* what PyTorch's watchdog does */
		usleep(5000);
		OK(ncclCommGetAsyncError(comm, &error));
	}
	printf("error %d %s\n", error, ncclGetErrorString(error));
	printf("query %d\n", cudaStreamQuery(stream));
	OK(ncclCommAbort(comm));
	OK(cudaStreamSynchronize(stream));
	printf("aborted\n");
	exit(0);
}

static int number(const char *name)
{
	const char *text = getenv(name);
	return text ? atoi(text) : 0;
}

int main(int argc, char **argv)
{
	ncclUniqueId id;
	int devices, version, got;
	const char *mode = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "0";
	rank = number("RANK");
	world = number("WORLD");
	setvbuf(stdout, NULL, _IOLBF, 0);
	OK(cudaGetDeviceCount(&devices));
	OK(ncclGetVersion(&version));
	if (!strcmp(mode, "all")) {
		all(atoi(arg));
		return 0;
	}
	OK(cudaSetDevice(rank % devices));
	OK(cudaStreamCreate(&stream));
	OK(ncclGetUniqueId(&id));
	OK(ncclCommInitRank(&comm, world, id, rank));
	OK(ncclCommCount(comm, &got) || got != world);
	OK(ncclCommUserRank(comm, &got) || got != rank);
	if (!strcmp(mode, "sums"))
		sums();
	else if (!strcmp(mode, "ring"))
		ring(arg, (size_t)atol(argc > 3 ? argv[3] : "0"));
	else if (!strcmp(mode, "late"))
		late(atoi(arg));
	else if (!strcmp(mode, "order"))
		order();
	else if (!strcmp(mode, "graph"))
		graph();
	else if (!strcmp(mode, "die"))
		die();
	else
		return 2;
	OK(ncclCommDestroy(comm));
	return 0;
}
