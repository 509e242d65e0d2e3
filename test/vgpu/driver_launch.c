//go:build ignore

/* Kernels. There is no code to run: a kernel is the time that it takes. */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_KERNEL_NS = 10000 };
#define LONGEST_KERNEL_NS 60000000000ULL

struct variable {
	struct variable *next;
	CUdeviceptr at;
	char name[];
};
struct CUmod_st {
	struct variable *variables; /* under guard */
};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
struct CUfunc_st {
	char name[64];
};

API cuMemAlloc_v2(CUdeviceptr *, size_t);
API cuMemFree_v2(CUdeviceptr);

static __thread uint64_t thread_kernel_ns;

/* vgpuSetKernelNs sets what this thread's next kernels take; 0 unsets it. */
VGPU_API void vgpuSetKernelNs(uint64_t ns) { thread_kernel_ns = ns; }

static uint64_t kernel_ns(void **params)
{
	static _Atomic int64_t from_env = -2; /* -2: not looked, -1: not set */
	uint64_t ns = DEFAULT_KERNEL_NS;
	if (thread_kernel_ns)
		return thread_kernel_ns;
	if (from_env == -2) {
		const char *us = getenv("TRIMTAB_VGPU_KERNEL_US");
		from_env = us ? (int64_t)(atof(us) * 1000) : -1;
	}
	if (from_env >= 0)
		return (uint64_t)from_env;
	if (params && params[0])
		memcpy(&ns, params[0], sizeof ns);
	return ns <= LONGEST_KERNEL_NS ? ns : DEFAULT_KERNEL_NS;
}

CUresult launch_ns(struct CUstream_st *s, uint64_t ns, uint64_t *count)
{
	struct vgpu_op op = {.kind = OP_KERNEL, .left_ns = ns ? ns : 1};
	return push(s, &op, NULL, count);
}

static CUresult launch(CUstream handle, int by_default, void **params)
{
	struct CUstream_st *s;
	CUresult r = stream_of(handle, by_default, &s);
	if (r)
		return r;
	uint64_t ns = kernel_ns(params);
	if (s->capture)
		return capture_add(s->capture, &(struct node_desc){.kind = OP_KERNEL, .ns = ns ? ns : 1, .kernels = 1});
	return launch_ns(s, ns, &counts()->kernels);
}

#define LAUNCH_PARAMS                                                                                              \
	CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
	    CUstream s, void **params, void **extra

static int bad_grid(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz)
{
	return !gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024;
}

API cuLaunchKernel(LAUNCH_PARAMS)
{
	ENTER();
	(void)shared, (void)extra;
	return !f || bad_grid(gx, gy, gz, bx, by, bz) ? CUDA_ERROR_INVALID_VALUE : launch(s, DEFAULT_LEGACY, params);
}

API cuLaunchKernel_ptsz(LAUNCH_PARAMS)
{
	ENTER();
	(void)shared, (void)extra;
	return !f || bad_grid(gx, gy, gz, bx, by, bz) ? CUDA_ERROR_INVALID_VALUE : launch(s, DEFAULT_PER_THREAD, params);
}

API cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, CUstream s, void **params)
{
	ENTER();
	(void)shared;
	return !f || bad_grid(gx, gy, gz, bx, by, bz) ? CUDA_ERROR_INVALID_VALUE : launch(s, DEFAULT_LEGACY, params);
}

API cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	ENTER();
	(void)extra;
	return !c || !f ? CUDA_ERROR_INVALID_VALUE : launch(c->hStream, DEFAULT_LEGACY, params);
}

API cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	ENTER();
	(void)extra;
	return !c || !f ? CUDA_ERROR_INVALID_VALUE : launch(c->hStream, DEFAULT_PER_THREAD, params);
}

/* ---- modules: any image will do, any name is found ---- */

static CUresult module_load(CUmodule *m)
{
	*m = calloc(1, sizeof **m);
	return *m ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuModuleLoad(CUmodule *m, const char *path)
{
	ENTER();
	(void)path;
	return module_load(m);
}

API cuModuleLoadData(CUmodule *m, const void *image)
{
	ENTER();
	(void)image;
	return module_load(m);
}

API cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, void *options, void **values)
{
	ENTER();
	(void)image, (void)n, (void)options, (void)values;
	return module_load(m);
}

API cuModuleUnload(CUmodule m)
{
	ENTER();
	for (struct variable *v = m ? m->variables : NULL, *next; v; v = next) {
		next = v->next;
		cuMemFree_v2(v->at);
		free(v);
	}
	free(m);
	return CUDA_SUCCESS;
}

API cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
	ENTER();
	if (!m || !name)
		return CUDA_ERROR_INVALID_HANDLE;
	*f = calloc(1, sizeof **f); /* lives as long as the process */
	if (!*f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	strncpy((*f)->name, name, sizeof (*f)->name - 1);
	return CUDA_SUCCESS;
}

/* A variable of a module's is memory of its own, the same at each call and until the module
 * is unloaded; as modules are not read, of a size that holds what programs keep in one. */
enum { VARIABLE_BYTES = 64 << 10 };

static CUresult variable_of(CUmodule m, const char *name, CUdeviceptr *at)
{
	struct variable *v = m->variables;
	while (v && strcmp(v->name, name))
		v = v->next;
	if (!v) {
		v = malloc(sizeof *v + strlen(name) + 1);
		CUresult r = v ? cuMemAlloc_v2(&v->at, VARIABLE_BYTES) : CUDA_ERROR_OUT_OF_MEMORY;
		if (r) {
			free(v);
			return r;
		}
		strcpy(v->name, name);
		v->next = m->variables;
		m->variables = v;
	}
	*at = v->at;
	return CUDA_SUCCESS;
}

API cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *n, CUmodule m, const char *name)
{
	ENTER();
	if (!m || !name)
		return CUDA_ERROR_INVALID_HANDLE;
	CUdeviceptr p;
	pthread_mutex_lock(&guard);
	CUresult r = variable_of(m, name, &p);
	pthread_mutex_unlock(&guard);
	if (r)
		return r;
	if (at)
		*at = p;
	if (n)
		*n = VARIABLE_BYTES;
	return CUDA_SUCCESS;
}

API cuFuncGetAttribute(int *value, int which, CUfunction f)
{
	ENTER();
	(void)f;
	*value = which == 0 ? 1024 : which == 4 ? 32 : which == 5 || which == 6 ? 80 : 0; /* threads per block, registers, PTX's and the code's version */
	return CUDA_SUCCESS;
}

API cuFuncSetAttribute(CUfunction f, int which, int value)
{
	ENTER();
	(void)f, (void)which, (void)value;
	return CUDA_SUCCESS;
}
