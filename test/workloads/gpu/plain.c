//go:build ignore

/* Training without a framework: a loop on CUDA's driver interface alone. Its kernel is PTX, which the
 * driver compiles, so no compiler of NVIDIA's is needed to build it. libcuda.so.1 is opened when it
 * runs, so no library of NVIDIA's is needed either. On the virtual GPU any image loads, and the kernel's
 * first argument is its time.
 *
 *   plain MODE [--kernel-us N] [--wait]
 *
 *   async     a step is 20 kernels of 2 ms; it waits for nothing: the full launch queue paces it
 *   each50    the same, and reads its loss every 50 steps
 *   staged    the same, and waits for nothing but 1 MiB a step from pageable memory, copied asynchronously
 *   polling   the same, and asks an event again and again whether the step is done
 *   graph     the same as one graph launch a step; its loss is read every 50 steps
 *   storm     20,000 launches a second of a kernel that does nothing; it waits every 2,000
 *
 * Prints one line a step, as other workloads do. It counts its own calls. SIGUSR2, SIGTERM and SIGINT end
 * the loop; then it waits for the device and prints
 *
 *   note counts launches=1000 graphs=0 in=0 out=1 waits=1
 *
 * of the loop and that wait: kernels and graphs launched, copies to the device and from it, calls that
 * wait for it. With --wait it first says "note ready" and does nothing until SIGUSR1; once it has
 * counted it does nothing again, until SIGTERM.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
enum { NOT_READY = 600, MULTIPROCESSORS = 16, DISABLE_TIMING = 2 };

/* All that is called, by the names that libcuda.so.1 exports since CUDA 11.4. */
#define CALLS(X)                                                                                                \
	X(cuInit, (unsigned))                                                                                         \
	X(cuGetErrorName, (CUresult, const char **))                                                                  \
	X(cuDeviceGet, (CUdevice *, int))                                                                             \
	X(cuDeviceGetAttribute, (int *, int, CUdevice))                                                               \
	X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                          \
	X(cuCtxSetCurrent, (CUcontext))                                                                               \
	X(cuModuleLoadData, (CUmodule *, const void *))                                                               \
	X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                \
	X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                     \
	X(cuStreamCreate, (CUstream *, unsigned))                                                                     \
	X(cuEventCreate, (CUevent *, unsigned))                                                                       \
	X(cuEventRecord, (CUevent, CUstream))                                                                         \
	X(cuEventQuery, (CUevent))                                                                                    \
	X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
	                   void **, void **))                                                                         \
	X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                        \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                             \
	X(cuStreamSynchronize, (CUstream))                                                                            \
	X(cuCtxSynchronize, (void))                                                                                   \
	X(cuStreamBeginCapture_v2, (CUstream, int))                                                                   \
	X(cuStreamEndCapture, (CUstream, CUgraph *))                                                                  \
	X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                                  \
	X(cuGraphLaunch, (CUgraphExec, CUstream))

#define DECLARE(name, args) static CUresult(*name) args;
CALLS(DECLARE)

static void die(const char *what, const char *why)
{
	printf("%s: %s\n", what, why);
	exit(1);
}

static void open_driver(void)
{
	void *at, *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		die("libcuda.so.1", dlerror());
#define FIND(name, args)                                \
	at = dlsym(lib, #name);                               \
	if (!at)                                              \
		die(#name, "the driver has none (CUDA 11.4 or later)"); \
	memcpy(&name, &at, sizeof at);
	CALLS(FIND)
}

static void must(const char *what, CUresult r)
{
	const char *name = NULL;
	if (!r)
		return;
	cuGetErrorName(r, &name);
	die(what, name ? name : "an error without a name");
}
#define MUST(call) must(#call, call)

/* ---- the device ---- */

/* Keeps its multiprocessors for so many nanoseconds of the device's clock. */
static const char ptx[] = ".version %s\n"
                          ".target %s\n"
                          ".address_size 64\n"
                          ".visible .entry busy(.param .u64 ns)\n"
                          "{\n"
                          ".reg .pred %%p;\n"
                          ".reg .u64 %%t<4>;\n"
                          "ld.param.u64 %%t0, [ns];\n"
                          "mov.u64 %%t1, %%globaltimer;\n"
                          "AGAIN:\n"
                          "mov.u64 %%t2, %%globaltimer;\n"
                          "sub.u64 %%t3, %%t2, %%t1;\n"
                          "setp.lt.u64 %%p, %%t3, %%t0;\n"
                          "@%%p bra AGAIN;\n"
                          "ret;\n"
                          "}\n";

enum { KERNELS = 20, BLOCK = 128, BATCH = 1 << 20, EACH = 50, STORM_STEP = 2000, STORM_NS = 1000000000 / 20000 };

static struct {
	CUfunction busy;
	CUstream stream;
	CUevent event;
	CUdeviceptr batch;
	char *host; /* pageable */
	CUgraphExec graph;
	unsigned blocks; /* so many fill all multiprocessors */
	uint64_t kernel_ns;
} gpu = {.kernel_ns = 2000000};

static struct {
	unsigned long long launches, graphs, in, out, waits;
} did;

static void launch(uint64_t ns, unsigned blocks)
{
	void *params[] = {&ns};
	MUST(cuLaunchKernel(gpu.busy, blocks, 1, 1, BLOCK, 1, 1, 0, gpu.stream, params, NULL));
	did.launches++;
}

static void work(void)
{
	for (int i = 0; i < KERNELS; i++)
		launch(gpu.kernel_ns, gpu.blocks);
}

/* The oldest that a driver of its time knows comes first: it is compiled for every later device. */
static CUmodule load(void)
{
	static const char *const as[][2] = {{"6.0", "sm_50"}, {"7.0", "sm_75"}, {"7.8", "sm_90"}, {"8.7", "sm_100"}};
	char image[sizeof ptx + 32];
	CUmodule module = NULL;
	CUresult r = 1;
	for (size_t i = 0; r && i < sizeof as / sizeof *as; i++) {
		snprintf(image, sizeof image, ptx, as[i][0], as[i][1]);
		r = cuModuleLoadData(&module, image);
	}
	must("cuModuleLoadData", r);
	return module;
}

static void start(void)
{
	CUdevice device;
	CUcontext context;
	CUgraph graph;
	int processors = 0;
	open_driver();
	MUST(cuInit(0));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuDeviceGetAttribute(&processors, MULTIPROCESSORS, device));
	gpu.blocks = 2 * (unsigned)(processors > 0 ? processors : 1);
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleGetFunction(&gpu.busy, load(), "busy"));
	MUST(cuMemAlloc_v2(&gpu.batch, BATCH));
	MUST(cuStreamCreate(&gpu.stream, 0));
	MUST(cuEventCreate(&gpu.event, DISABLE_TIMING));
	if (!(gpu.host = malloc(BATCH)))
		die("memory", "none is left");
	memset(gpu.host, 1, BATCH);
	MUST(cuStreamBeginCapture_v2(gpu.stream, 0));
	work();
	MUST(cuStreamEndCapture(gpu.stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&gpu.graph, graph, 0));
}

/* ---- the loops ---- */

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void read_loss(unsigned n)
{
	float loss;
	if (n % EACH)
		return;
	MUST(cuMemcpyDtoH_v2(&loss, gpu.batch, sizeof loss));
	did.out++;
}

static void async(unsigned n)
{
	(void)n;
	work();
}

static void each50(unsigned n)
{
	work();
	read_loss(n);
}

static void staged(unsigned n)
{
	(void)n;
	MUST(cuMemcpyHtoDAsync_v2(gpu.batch, gpu.host, BATCH, gpu.stream));
	did.in++;
	work();
}

static void polling(unsigned n)
{
	CUresult r;
	(void)n;
	work();
	MUST(cuEventRecord(gpu.event, gpu.stream));
	while ((r = cuEventQuery(gpu.event)) == NOT_READY) {
	}
	must("cuEventQuery", r);
}

static void graph(unsigned n)
{
	MUST(cuGraphLaunch(gpu.graph, gpu.stream));
	did.graphs++;
	read_loss(n);
}

/* Who was late does not catch up: it is never more than 20,000 a second. */
static void storm(unsigned n)
{
	(void)n;
	for (int i = 0; i < STORM_STEP; i++) {
		uint64_t end = now_ns() + STORM_NS;
		launch(0, 1);
		while (now_ns() < end) {
		}
	}
	MUST(cuStreamSynchronize(gpu.stream));
	did.waits++;
}

static const struct {
	const char *name;
	void (*step)(unsigned n);
} modes[] = {{"async", async}, {"each50", each50}, {"staged", staged}, {"polling", polling}, {"graph", graph}, {"storm", storm}};

static volatile sig_atomic_t begun, ended, over;

static void told(int signal)
{
	if (signal == SIGUSR1)
		begun = 1;
	else
		ended = 1;
	if (signal == SIGTERM || signal == SIGINT)
		over = 1;
}

static void listen(void)
{
	static const int all[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT};
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_handler = told;
	a.sa_flags = SA_RESTART;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		sigaction(all[i], &a, NULL);
}

static void rest(volatile sig_atomic_t *until)
{
	while (!*until && !over)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void train(void (*step)(unsigned n))
{
	uint64_t last = now_ns();
	memset(&did, 0, sizeof did); /* not what was captured */
	for (unsigned n = 1; !ended; n++) {
		step(n);
		uint64_t t = now_ns();
		printf("step=%u t=%.6f dt=%.6f\n", n, (double)t / 1e9, (double)(t - last) / 1e9);
		last = t;
	}
	MUST(cuCtxSynchronize());
	did.waits++;
	printf("note counts launches=%llu graphs=%llu in=%llu out=%llu waits=%llu\n", did.launches, did.graphs, did.in, did.out, did.waits);
}

int main(int argc, char **argv)
{
	void (*step)(unsigned n) = NULL;
	int wait = 0;
	for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++)
		if (strcmp(argv[1], modes[i].name) == 0)
			step = modes[i].step;
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--wait") == 0)
			wait = 1;
		else if (strcmp(argv[i], "--kernel-us") == 0 && i + 1 < argc)
			gpu.kernel_ns = strtoull(argv[++i], NULL, 10) * 1000;
		else
			step = NULL;
	}
	if (!step) {
		fprintf(stderr, "usage: plain async|each50|staged|polling|graph|storm [--kernel-us N] [--wait]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	listen();
	start();
	if (wait) {
		puts("note ready");
		rest(&begun);
	}
	train(step);
	if (wait)
		rest(&over);
	return 0;
}
