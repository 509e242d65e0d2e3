//go:build ignore

/* The tables of functions without names that CUDA's runtime takes from the driver
 * (cuGetExportTable). What is in them is told by ZLUDA (dark_api/src/lib.rs) and by what
 * the runtimes 11.8 and 12.4 call. */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

API cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
API cuModuleLoadData(CUmodule *, const void *);

typedef void *const table[];
/* Most tables begin with their size. */
#define SIZE(n) (void *)(sizeof(void *) * (n))

static CUresult not_given(void) { return CUDA_ERROR_NOT_SUPPORTED; }
#define NONE (void *)not_given

/* ---- what belongs to a context and is found by a key ---- */

struct kept {
	CUcontext ctx;
	void *key, *value;
	struct kept *next;
};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct kept *all;

/* find_kept is under guard; without a context the thread's is meant. */
static struct kept **find_kept(CUcontext ctx, void *key)
{
	struct kept **k = &all;
	if (!ctx)
		current(&ctx);
	while (*k && ((*k)->ctx != ctx || (*k)->key != key))
		k = &(*k)->next;
	return k;
}

static CUresult keep(CUcontext ctx, void *key, void *value, void *ended)
{
	(void)ended; /* contexts end with the process */
	if (!ctx && current(&ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&guard);
	struct kept **at = find_kept(ctx, key);
	if (!*at && (*at = calloc(1, sizeof **at)))
		**at = (struct kept){.ctx = ctx, .key = key};
	if (*at)
		(*at)->value = value;
	CUresult r = *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&guard);
	return r;
}

static CUresult forget(CUcontext ctx, void *key)
{
	pthread_mutex_lock(&guard);
	struct kept **at = find_kept(ctx, key), *was = *at;
	if (was)
		*at = was->next;
	pthread_mutex_unlock(&guard);
	free(was);
	return CUDA_SUCCESS;
}

static CUresult get(void **value, CUcontext ctx, void *key)
{
	pthread_mutex_lock(&guard);
	struct kept *k = *find_kept(ctx, key);
	if (k)
		*value = k->value;
	pthread_mutex_unlock(&guard);
	return k ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static table storage = {(void *)keep, (void *)forget, (void *)get, NONE};

/* ---- the runtime's own ---- */

static CUresult load_for_tools(CUmodule *m, const void *image, void *a, void *b, unsigned c)
{
	(void)a, (void)b, (void)c;
	return cuModuleLoadData(m, image);
}

static CUresult load_header(const void *image, CUmodule *m, void *a, void *b, unsigned c)
{
	(void)a, (void)b, (void)c;
	return cuModuleLoadData(m, image);
}

static table runtime = {SIZE(13), (void *)cuModuleLoadData, (void *)cuDevicePrimaryCtxRetain, NONE, NONE, NONE,
                        (void *)load_for_tools, NONE, (void *)load_header, NONE, NONE, NONE, NONE};

/* ---- where tools hook in: memory that the runtime writes to ---- */

static uint32_t hooks_one[1024], hooks_two[14];

static void give_one(void **at, size_t *n)
{
	*at = hooks_one;
	*n = sizeof hooks_one / sizeof *hooks_one;
}

static void give_two(void **at, size_t *n)
{
	*at = hooks_two;
	*n = sizeof hooks_two / sizeof *hooks_two;
}

static table hooks = {SIZE(7), NONE, (void *)give_one, NONE, NONE, NONE, (void *)give_two};
static table tools = {SIZE(4), NONE, NONE, NONE};

/* ---- checks ---- */

static CUresult check_context(CUcontext ctx, uint32_t *bits, const void **more)
{
	(void)ctx, (void)more;
	*bits = 0;
	return CUDA_SUCCESS;
}

static uint32_t no_bits(void) { return 0; }

static table checks = {SIZE(4), NONE, (void *)check_context, (void *)no_bits};

static CUresult valid_answer(uint32_t version, uint64_t seconds, uint64_t answer[2]);
static table valid = {SIZE(3), (void *)valid_answer, NONE};

static CUresult valid_answer(uint32_t version, uint64_t seconds, uint64_t answer[2])
{
	return driver_valid ? driver_valid(version, seconds, answer, runtime, valid) : CUDA_ERROR_NOT_SUPPORTED;
}

API cuGetExportTable(const void **t, const CUuuid *id)
{
	static const struct {
		uint8_t id[16];
		void *const *table;
	} tables[] = {
	    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}, runtime},
	    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66}, hooks},
	    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc}, tools},
	    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93}, storage},
	    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e}, checks},
	    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2}, valid},
	};
	if (!t || !id)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		if (memcmp(tables[i].id, id, sizeof tables[i].id) == 0) {
			*t = tables[i].table;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}
