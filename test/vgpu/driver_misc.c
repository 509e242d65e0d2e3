//go:build ignore

/* Errors' names, and functions by name. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int find(CUresult code)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == code)
			return (int)i;
	return -1;
}

API cuGetErrorName(CUresult code, const char **name)
{
	int i = find(code);
	*name = i < 0 ? NULL : errors[i].name;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API cuGetErrorString(CUresult code, const char **text)
{
	int i = find(code);
	*text = i < 0 ? NULL : errors[i].text;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Names that change what they mean: who asks for an older interface gets the older call. */
static const struct {
	const char *name;
	int since;
} versions[] = {{"cuGetProcAddress_v2", 12000}, {"cuStreamGetCaptureInfo_v2", 11030}};

static int too_new(const char *full, int version)
{
	for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
		if (strcmp(full, versions[i].name) == 0)
			return version < versions[i].since;
	return 0;
}

/* by_name looks in this library only: NAME, with the suffix of its newest version that the
 * asker knows. */
static void *by_name(const char *name, int version, int per_thread)
{
	static const char *const suffixes[2][5] = {{"_v2", "", NULL}, {"_v2_ptsz", "_ptsz", "_v2", "", NULL}};
	char full[128];
	Dl_info self;
	if (!dladdr((void *)(uintptr_t)find, &self))
		return NULL;
	void *lib = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD), *f = NULL;
	for (int i = 0; lib && !f && suffixes[per_thread][i]; i++) {
		snprintf(full, sizeof full, "%s%s", name, suffixes[per_thread][i]);
		if (!too_new(full, version))
			f = dlsym(lib, full);
	}
	if (lib)
		dlclose(lib);
	return f;
}

API cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status)
{
	*f = by_name(name, version, (flags & 2) != 0);
	if (status)
		*status = *f ? 0 : 1;
	return *f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API cuGetProcAddress(const char *name, void **f, int version, uint64_t flags)
{
	*f = by_name(name, version, (flags & 2) != 0);
	return *f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
