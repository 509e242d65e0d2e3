// A stand-in for libcudart. It goes on to the driver's exported entries, or past them (BYPASS), as the real one might.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

extern volatile unsigned long done;
#ifdef BYPASS
volatile unsigned long done;
#define DRIVER(name, ...) (done++, 0)
#else
#define DRIVER(name, ...) ((int (*)())driver(#name))(__VA_ARGS__)
static void *driver(const char *name)
{
	void *f = dlsym(RTLD_DEFAULT, name);
	return f;
}
#endif

int cudaLaunchKernel(void *f, long a, int b) { int r = DRIVER(cuLaunchKernel, f, 1, 2, 3); done++; return r; }
int cudaGraphLaunch(void *g, void *s) { int r = DRIVER(cuGraphLaunch, g, s); done++; return r; }
int cudaMemcpyAsync(void *d, void *s, size_t n, int kind, void *stream)
{
#ifdef WAITS /* for the stream, but for the first so many times */
	static int copies;
	if (kind == 1 && copies++ >= WAITS)
		DRIVER(cuStreamSynchronize, stream);
#endif
	int r = kind == 1 ? DRIVER(cuMemcpyHtoDAsync_v2, d, s, n, stream) : kind == 2 ? DRIVER(cuMemcpyDtoHAsync_v2, d, s, n, stream) : 0;
	done++;
	return r;
}
int cudaMemcpy(void *d, void *s, size_t n, int kind)
{
	int r = kind == 1 ? DRIVER(cuMemcpyHtoD_v2, d, s, n) : kind == 2 ? DRIVER(cuMemcpyDtoH_v2, d, s, n) : 0;
	done++;
	return r;
}
int cudaMemcpy2D(void *d, size_t dp, void *s, size_t sp, size_t w, size_t h, int kind) { return done++, 0; }
int cudaStreamSynchronize(void *s) { int r = DRIVER(cuStreamSynchronize, s); done++; return r; }
int cudaDeviceSynchronize(void) { int r = DRIVER(cuCtxSynchronize); done++; return r; }
