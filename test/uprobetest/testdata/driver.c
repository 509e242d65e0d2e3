// A stand-in for libcuda.so.1: the names and arguments of the driver's calls. Blocking ones wait as they are told.
#define _GNU_SOURCE
#include <stddef.h>
#include <time.h>

volatile unsigned long done;
static long wait_ns, spin;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int wait_as_told(void)
{
	long end = now() + wait_ns;
	struct timespec t = {wait_ns / 1000000000L, wait_ns % 1000000000L};

	if (!wait_ns)
		return 0;
	if (!spin)
		return nanosleep(&t, NULL);
	while (now() < end)
		done++;
	return 0;
}

void fake_wait(long ns, long by_spinning) { wait_ns = ns, spin = by_spinning; }

int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c) { return done++, 0; }
int cuLaunchKernelEx(void *c, void *f) { return done++, 0; }
int cuGraphLaunch(void *g, void *s) { return done++, 0; }
int cuMemcpyHtoD_v2(unsigned long d, const void *h, size_t n) { return wait_as_told(); }
int cuMemcpyDtoH_v2(void *h, unsigned long d, size_t n) { return wait_as_told(); }
int cuMemcpyHtoDAsync_v2(unsigned long d, const void *h, size_t n, void *s) { return done++, wait_as_told(); }
int cuMemcpyDtoHAsync_v2(void *h, unsigned long d, size_t n, void *s) { return done++, 0; }
int cuStreamSynchronize(void *s) { return wait_as_told(); }
int cuCtxSynchronize(void) { return wait_as_told(); }
