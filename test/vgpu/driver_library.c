//go:build ignore

/* Libraries, as CUDA 12's runtime loads code: a library is a module, a kernel a function. */
#include "driver.h"

typedef struct CUmod_st *CUlibrary;
typedef struct CUfunc_st *CUkernel;

API cuModuleLoad(CUmodule *, const char *);
API cuModuleLoadData(CUmodule *, const void *);
API cuModuleUnload(CUmodule);
API cuModuleGetFunction(CUfunction *, CUmodule, const char *);
API cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, CUmodule, const char *);
API cuFuncGetAttribute(int *, int, CUfunction);

API cuModuleLoadFatBinary(CUmodule *m, const void *image) { return cuModuleLoadData(m, image); }

API cuLibraryLoadData(CUlibrary *l, const void *image, void *jit, void **jit_values, unsigned njit, void *how, void **how_values, unsigned nhow)
{
	(void)jit, (void)jit_values, (void)njit, (void)how, (void)how_values, (void)nhow;
	return cuModuleLoadData(l, image);
}

API cuLibraryLoadFromFile(CUlibrary *l, const char *path, void *jit, void **jit_values, unsigned njit, void *how, void **how_values, unsigned nhow)
{
	(void)jit, (void)jit_values, (void)njit, (void)how, (void)how_values, (void)nhow;
	return cuModuleLoad(l, path);
}

API cuLibraryUnload(CUlibrary l) { return cuModuleUnload(l); }
API cuLibraryGetKernel(CUkernel *k, CUlibrary l, const char *name) { return cuModuleGetFunction(k, l, name); }
API cuLibraryGetGlobal(CUdeviceptr *at, size_t *n, CUlibrary l, const char *name) { return cuModuleGetGlobal_v2(at, n, l, name); }

API cuLibraryGetModule(CUmodule *m, CUlibrary l)
{
	ENTER();
	*m = l;
	return CUDA_SUCCESS;
}

API cuKernelGetFunction(CUfunction *f, CUkernel k)
{
	ENTER();
	*f = k;
	return CUDA_SUCCESS;
}

API cuKernelGetAttribute(int *value, int which, CUkernel k, CUdevice d)
{
	(void)d;
	return cuFuncGetAttribute(value, which, k);
}

API cuKernelSetAttribute(int which, int value, CUkernel k, CUdevice d)
{
	ENTER();
	(void)which, (void)value, (void)k, (void)d;
	return CUDA_SUCCESS;
}

API cuKernelSetCacheConfig(CUkernel k, int config, CUdevice d)
{
	ENTER();
	(void)k, (void)config, (void)d;
	return CUDA_SUCCESS;
}
