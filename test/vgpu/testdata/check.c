/* One CUDA program of vgpu_test.go: `check MODE ARGS`, in what an unmodified program
 * would call. What it finds it prints as "key value" lines.
 *
 *     time N US HOW         N kernels of US µs, then a synchronisation (stream, device, event,
 *                           memcpy); HOW: spin or blocking; wall and CPU time of the wait,
 *                           and how long the thread was kept from a CPU in it
 *     run US SECONDS PCT    keeps a device busy PCT of the time, prints its kernels
 *     hold MIB              holds memory until it is killed
 *     graph N US            a captured graph of N kernels
 *     copy BYTES            to the device and back, asynchronously and not; checks each byte
 *     events US             time between two events around a kernel
 *     order                 the default stream waits for the others, and they for it
 *     fork                  CUDA in a child after a fork
 *     lost                  launches until an error comes
 *     threads N             N short-lived threads, each with work on its own default stream
 *     overlap US            a copy beside a kernel, a kernel behind the copy's event
 *     exec MIB              holds memory, then becomes another program that holds none
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct {
	unsigned x, y, z;
} dim3;
extern int cudaGetDeviceCount(int *n), cudaSetDevice(int d), cudaSetDeviceFlags(unsigned f), cudaDeviceSynchronize(void);
extern int cudaMalloc(void **p, size_t n), cudaFree(void *p), cudaHostAlloc(void **p, size_t n, unsigned f);
extern int cudaMemGetInfo(size_t *free_bytes, size_t *total);
extern int cudaMemcpy(void *to, const void *from, size_t n, int kind);
extern int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t s);
extern int cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s);
extern int cudaStreamCreate(cudaStream_t *s), cudaStreamSynchronize(cudaStream_t s), cudaStreamQuery(cudaStream_t s);
extern int cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
extern int cudaStreamBeginCapture(cudaStream_t s, int mode), cudaStreamEndCapture(cudaStream_t s, void **g);
extern int cudaGraphInstantiate(void **x, void *g, unsigned long long flags), cudaGraphLaunch(void *x, cudaStream_t s);
extern int cudaEventCreate(cudaEvent_t *e), cudaEventRecord(cudaEvent_t e, cudaStream_t s), cudaEventSynchronize(cudaEvent_t e);
extern int cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
extern int cudaGetLastError(void);

static cudaStream_t stream;

#define OK(call)                                                   \
	do {                                                             \
		int ok_ = (call);                                              \
		if (ok_) {                                                     \
			printf("failed %d %s\n", ok_, #call);                        \
			exit(1);                                                     \
		}                                                              \
	} while (0)

static double clock_s(clockid_t which)
{
	struct timespec t;
	clock_gettime(which, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
static double now(void) { return clock_s(CLOCK_MONOTONIC); }

/* How long this thread was runnable and not running. */
static double queued(void)
{
	unsigned long long run = 0, wait = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	if (f) {
		if (fscanf(f, "%llu %llu", &run, &wait) != 2)
			wait = 0;
		fclose(f);
	}
	return wait / 1e9;
}

static int launch(double us, cudaStream_t s)
{
	uint64_t ns = (uint64_t)(us * 1000);
	void *args[] = {&ns};
	return cudaLaunchKernel((const void *)&launch, (dim3){64, 1, 1}, (dim3){256, 1, 1}, args, 0, s);
}

static void wait_by(const char *how)
{
	void *d;
	char host[4];
	cudaEvent_t e;
	if (!strcmp(how, "stream")) {
		OK(cudaStreamSynchronize(stream));
	} else if (!strcmp(how, "device")) {
		OK(cudaDeviceSynchronize());
	} else if (!strcmp(how, "event")) {
		OK(cudaEventCreate(&e));
		OK(cudaEventRecord(e, stream));
		OK(cudaEventSynchronize(e));
	} else {
		OK(cudaMalloc(&d, 4));
		OK(cudaMemcpy(host, d, 4, 2)); /* on the default stream: behind the other */
	}
}

static void times(int n, double us, const char *how, const char *what)
{
	OK(cudaSetDeviceFlags(!strcmp(how, "spin") ? 1 : 4));
	OK(cudaStreamCreate(&stream));
	double t0 = now();
	for (int i = 0; i < n; i++)
		OK(launch(us, stream));
	printf("launch %.6f\nquery %d\nready 1\n", now() - t0, cudaStreamQuery(stream));
	double kept = queued(), cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID), t1 = now();
	wait_by(what);
	printf("wait %.6f\ncpu %.6f\nwall %.6f\nafter %d\n", now() - t1, clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu, now() - t0,
	       cudaStreamQuery(stream));
	printf("queued %.6f\n", queued() - kept);
}

static void run(double us, double seconds, int percent)
{
	double end = now() + seconds;
	long kernels = 0;
	OK(cudaSetDeviceFlags(4));
	OK(cudaStreamCreate(&stream));
	printf("ready 1\n");
	while (now() < end) {
		double t = now();
		OK(launch(us, stream));
		OK(cudaStreamSynchronize(stream));
		kernels++;
		if (percent < 100)
			usleep((useconds_t)((now() - t) * 1e6 * (100 - percent) / percent));
	}
	printf("kernels %ld\n", kernels);
}

static void hold(size_t mib)
{
	void *d;
	size_t free_bytes, total;
	OK(cudaMalloc(&d, mib << 20));
	OK(cudaMemGetInfo(&free_bytes, &total));
	printf("free %zu\ntotal %zu\n", free_bytes >> 20, total >> 20);
	printf("toomuch %d\n", cudaMalloc(&d, total));
	printf("ready 1\n");
	for (;;)
		pause();
}

static void graph(int n, double us)
{
	void *g, *x;
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamBeginCapture(stream, 0));
	for (int i = 0; i < n; i++)
		OK(launch(us, stream));
	OK(cudaStreamEndCapture(stream, &g));
	OK(cudaGraphInstantiate(&x, g, 0));
	double t = now();
	for (int i = 0; i < 5; i++)
		OK(cudaGraphLaunch(x, stream));
	OK(cudaStreamSynchronize(stream));
	printf("wall %.6f\n", now() - t);
}

static void copies(size_t n)
{
	char *d, *pinned, *plain = malloc(n), *back = malloc(n);
	OK(cudaMalloc((void **)&d, n));
	OK(cudaHostAlloc((void **)&pinned, n, 0));
	for (size_t i = 0; i < n; i++)
		plain[i] = (char)(i * 31 + 7);
	OK(cudaMemcpy(d, plain, n, 1)); /* what a host takes to find the pages is no part of a copy's time */
	double t = now();
	OK(cudaMemcpy(d, plain, n, 1));
	printf("in %.6f\n", now() - t);
	OK(cudaMemcpyAsync(pinned, d, n, 2, NULL));
	OK(cudaStreamSynchronize(NULL));
	OK(cudaMemcpy(back, pinned, n, 0));
	OK(memcmp(back, plain, n) != 0);
	memset(back, 0, n);
	OK(cudaMemcpy(back, d, n, 4));
	OK(memcmp(back, plain, n) != 0);
	printf("same 1\nbad %d\n", cudaMemcpy(back, d, n, 9));
	printf("last %d\n", cudaGetLastError());
	printf("then %d\n", cudaGetLastError());
	OK(cudaFree(d));
}

static void events(double us)
{
	cudaEvent_t a, b;
	float ms;
	OK(cudaEventCreate(&a));
	OK(cudaEventCreate(&b));
	OK(cudaEventRecord(a, NULL));
	OK(launch(us, NULL));
	OK(cudaEventRecord(b, NULL));
	OK(cudaEventSynchronize(b));
	OK(cudaEventElapsedTime(&ms, a, b));
	printf("ms %.4f\n", ms);
}

static void order(void)
{
	cudaStream_t other;
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamCreate(&other));
	OK(launch(30000, stream));
	OK(launch(1000, NULL));
	OK(launch(1000, other));
	double t = now();
	OK(cudaStreamSynchronize(other));
	printf("wait %.6f\nfirst %d\n", now() - t, cudaStreamQuery(stream));
}

static void forks(void)
{
	OK(cudaStreamCreate(&stream));
	OK(launch(1000, stream));
	fflush(stdout);
	if (fork() == 0) {
		printf("child %d\n", launch(1000, stream));
		fflush(stdout);
		_exit(0);
	}
	wait(NULL);
	OK(cudaStreamSynchronize(stream));
	printf("parent 0\n");
}

static void lost(void)
{
	int r = 0;
	OK(cudaStreamCreate(&stream));
	printf("ready 1\n");
	for (int i = 0; i < 500 && r == 0; i++) {
		r = launch(10000, stream);
		r = r ? r : cudaStreamSynchronize(stream);
	}
	printf("error %d\n", r);
}

static void *short_lived(void *arg)
{
	cudaStream_t own = (cudaStream_t)2; /* cudaStreamPerThread */
	OK(launch(10, own));
	OK(cudaStreamSynchronize(own));
	return arg;
}

static void threads(int n)
{
	pthread_t t[4];
	OK(cudaSetDeviceFlags(4));
	for (int i = 0; i < n; i += 4) {
		for (int k = 0; k < 4; k++)
			OK(pthread_create(&t[k], NULL, short_lived, NULL));
		for (int k = 0; k < 4; k++)
			OK(pthread_join(t[k], NULL));
	}
	printf("threads %d\n", n);
}

static void overlap(double us)
{
	cudaStream_t copies;
	cudaEvent_t there, a, b;
	char *d, *pinned;
	float ms;
	size_t n = (size_t)(us * 100); /* at 100 MB/s as long as the kernel */
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamCreate(&copies));
	OK(cudaEventCreate(&there));
	OK(cudaEventCreate(&a));
	OK(cudaEventCreate(&b));
	OK(cudaMalloc((void **)&d, n));
	OK(cudaHostAlloc((void **)&pinned, n, 0));
	OK(cudaEventRecord(a, stream));
	OK(launch(us, stream));
	OK(cudaMemcpyAsync(d, pinned, n, 1, copies));
	OK(cudaEventRecord(there, copies));
	OK(cudaStreamWaitEvent(stream, there, 0));
	OK(launch(us, stream));
	OK(cudaEventRecord(b, stream));
	OK(cudaStreamSynchronize(stream));
	OK(cudaEventElapsedTime(&ms, a, b));
	printf("together %.3f\n", ms);
	OK(cudaEventRecord(a, stream));
	OK(cudaMemcpyAsync(d, pinned, n, 1, stream));
	OK(launch(us, stream));
	OK(cudaEventRecord(b, stream));
	OK(cudaStreamSynchronize(stream));
	OK(cudaEventElapsedTime(&ms, a, b));
	printf("behind %.3f\n", ms);
}

static void execs(const char *mib)
{
	void *d;
	OK(cudaMalloc(&d, (size_t)atol(mib) << 20));
	execl("/proc/self/exe", "check", "hold", "1", NULL);
	exit(1);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "", *a = argc > 2 ? argv[2] : "0", *b = argc > 3 ? argv[3] : "0";
	int n;
	setvbuf(stdout, NULL, _IOLBF, 0);
	OK(cudaGetDeviceCount(&n));
	OK(cudaSetDevice(getenv("DEVICE") ? atoi(getenv("DEVICE")) : 0));
	if (!strcmp(mode, "time"))
		times(atoi(a), atof(b), argc > 4 ? argv[4] : "spin", argc > 5 ? argv[5] : "stream");
	else if (!strcmp(mode, "run"))
		run(atof(a), atof(b), argc > 4 ? atoi(argv[4]) : 100);
	else if (!strcmp(mode, "hold"))
		hold((size_t)atol(a));
	else if (!strcmp(mode, "graph"))
		graph(atoi(a), atof(b));
	else if (!strcmp(mode, "copy"))
		copies((size_t)atol(a));
	else if (!strcmp(mode, "events"))
		events(atof(a));
	else if (!strcmp(mode, "order"))
		order();
	else if (!strcmp(mode, "fork"))
		forks();
	else if (!strcmp(mode, "overlap"))
		overlap(atof(a));
	else if (!strcmp(mode, "threads"))
		threads(atoi(a));
	else if (!strcmp(mode, "exec"))
		execs(a);
	else if (!strcmp(mode, "lost"))
		lost();
	else
		return 2;
	return 0;
}
