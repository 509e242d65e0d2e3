//go:build ignore

/* The virtual libcuda: start, devices, contexts. */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct driver drv;
static pthread_mutex_t start = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primary[VGPU_MAX_DEVICES];
static __thread struct CUctx_st *stack[16];
static __thread int depth;

static void forked(void) { drv.forked = 1; }

/* visible_add takes one entry of CUDA_VISIBLE_DEVICES; 0 ends the list, as an unknown one does. */
static int visible_add(const char *entry)
{
	char *end, mig[96];
	long ordinal = strtol(entry, &end, 10);
	if (end == entry || *end) {
		ordinal = -1;
		for (uint32_t i = 0; i < drv.node->ndevices; i++) {
			if (strncasecmp(drv.node->device[i].uuid, entry, strlen(entry)) == 0)
				ordinal = i;
			for (uint32_t m = 0; m < drv.node->device[i].mig_slices; m++) {
				mig_uuid(&drv.node->device[i], m, mig, sizeof mig);
				if (strncasecmp(mig, entry, strlen(entry)) == 0) {
					ordinal = i;
					drv.node->proc[drv.proc].mig_slice = m;
				}
			}
		}
	}
	if (ordinal < 0 || ordinal >= (long)drv.node->ndevices || drv.devices >= VGPU_MAX_DEVICES)
		return 0;
	drv.visible[drv.devices++] = (int)ordinal;
	return 1;
}

/* may_open tells whether the device's node in a folder can be opened. A node without a driver behind it
 * fails for that, once the control group has let it pass. */
static int may_open(const char *nodes, uint32_t minor)
{
	char path[512];
	snprintf(path, sizeof path, "%s/nvidia%u", nodes, minor);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno == ENXIO || errno == ENODEV;
}

/* see_devices finds those that the process may use, in the driver's order. */
static void see_devices(void)
{
	const char *only = getenv("CUDA_VISIBLE_DEVICES"), *nodes = getenv("TRIMTAB_VGPU_DEVICE_NODES");
	char list[512], *rest = list;
	drv.devices = 0;
	if (!only) {
		for (uint32_t i = 0; i < drv.node->ndevices; i++)
			if (!nodes || may_open(nodes, drv.node->device[i].minor))
				drv.visible[drv.devices++] = (int)i;
		return;
	}
	snprintf(list, sizeof list, "%s", only);
	for (char *entry; (entry = strsep(&rest, ",")) && *entry && visible_add(entry);) {
	}
}

static CUresult begin(void)
{
	struct vgpu_node *n = node_open();
	if (!n)
		return CUDA_ERROR_NO_DEVICE;
	int slot = node_attach(n);
	if (slot < 0)
		return slot == -2 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_OUT_OF_MEMORY;
	drv.proc = (uint32_t)slot;
	drv.node = n;
	see_devices();
	pthread_atfork(NULL, NULL, forked);
	return CUDA_SUCCESS;
}

API cuInit(unsigned flags)
{
	CUresult r = CUDA_SUCCESS;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&start);
	if (!drv.node)
		r = begin();
	else if (!drv.forked && getenv("TRIMTAB_VGPU_DEVICE_NODES"))
		see_devices(); /* what was shown or hidden since */
	pthread_mutex_unlock(&start);
	if (r)
		return r;
	if (drv.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (fault_check(drv.node, -1, __func__))
		return CUDA_ERROR_NOT_SUPPORTED;
	return drv.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult enter(const char *call)
{
	if (!drv.node || drv.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	int device = depth ? stack[depth - 1]->device : -1;
	return fault_check(drv.node, device, call) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult current(struct CUctx_st **ctx)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ctx = stack[depth - 1];
	return CUDA_SUCCESS;
}

struct vgpu_device *device_of(struct CUctx_st *ctx) { return &drv.node->device[ctx->device]; }

/* ---- devices ---- */

static struct vgpu_device *device(CUdevice ordinal)
{
	return ordinal < 0 || ordinal >= drv.devices ? NULL : &drv.node->device[drv.visible[ordinal]];
}

API cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	struct vgpu_node *n = node_open();
	*version = n ? n->cuda : 0;
	return CUDA_SUCCESS;
}

API cuDeviceGetCount(int *count)
{
	ENTER();
	*count = drv.devices;
	return CUDA_SUCCESS;
}

API cuDeviceGet(CUdevice *d, int ordinal)
{
	ENTER();
	if (!device(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*d = ordinal;
	return CUDA_SUCCESS;
}

API cuDeviceGetName(char *name, int len, CUdevice d)
{
	ENTER();
	if (!device(d) || len <= 0)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "%s", device(d)->name);
	return CUDA_SUCCESS;
}

static CUresult uuid(CUuuid *u, CUdevice d)
{
	if (!device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	const char *text = device(d)->uuid;
	memset(u, 0, sizeof *u);
	for (int i = 0; *text && i < 32; text++) {
		const char *hex = "0123456789abcdef", *at = strchr(hex, *text);
		if (text - device(d)->uuid < 4 || !at)
			continue;
		u->bytes[i / 2] = (char)(u->bytes[i / 2] << 4 | (at - hex));
		i++;
	}
	return CUDA_SUCCESS;
}

API cuDeviceGetUuid(CUuuid *u, CUdevice d)
{
	ENTER();
	return uuid(u, d);
}

API cuDeviceGetUuid_v2(CUuuid *u, CUdevice d)
{
	ENTER();
	return uuid(u, d);
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice d)
{
	ENTER();
	if (!device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = device(d)->mem_total;
	return CUDA_SUCCESS;
}

/* What an A100 and an H100 say, by CUdevice_attribute; what is not here is 0. */
static const struct {
	int which, ampere, hopper;
} attributes[] = {
    {1, 1024, 1024}, /* threads per block, and its three sides */
    {2, 1024, 1024},
    {3, 1024, 1024},
    {4, 64, 64},
    {5, 2147483647, 2147483647}, /* the grid's sides */
    {6, 65535, 65535},
    {7, 65535, 65535},
    {8, 49152, 49152}, /* bytes of shared memory per block, of constant memory */
    {9, 65536, 65536},
    {10, 32, 32}, /* warp */
    {11, 2147483647, 2147483647},
    {12, 65536, 65536}, /* registers per block */
    {14, 512, 512},
    {15, 1, 1}, /* copies beside kernels */
    {16, 108, 132}, /* multiprocessors */
    {19, 1, 1}, /* maps host memory */
    {31, 1, 1}, /* kernels beside kernels */
    {32, 1, 1}, /* ECC */
    {37, 5120, 5120}, /* memory bus, bits */
    {38, 41943040, 52428800}, /* L2, bytes */
    {39, 2048, 2048}, /* threads per multiprocessor */
    {40, 2, 2}, /* engines for copies */
    {41, 1, 1}, /* unified addressing */
    {75, 8, 9}, /* compute capability; its minor number is 0 */
    {78, 1, 1}, /* streams have priorities */
    {79, 1, 1}, /* L1 caches */
    {80, 1, 1},
    {81, 167936, 233472}, /* shared memory and registers per multiprocessor */
    {82, 65536, 65536},
    {83, 1, 1}, /* managed memory */
    {95, 1, 1}, /* cooperative launches */
    {97, 166912, 232448}, /* shared memory per block, for who asks */
    {106, 32, 32}, /* blocks per multiprocessor */
};

static int attribute(struct vgpu_device *d, int which)
{
	if (which == 13) /* clock, kHz */
		return (int)d->clock_max_mhz * 1000;
	if (which == 33) /* PCI bus */
		return (int)(d->minor + 1) << 4;
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
		if (attributes[i].which == which)
			return d->hopper ? attributes[i].hopper : attributes[i].ampere;
	return 0;
}

API cuDeviceGetAttribute(int *value, int which, CUdevice d)
{
	ENTER();
	if (!device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute(device(d), which);
	return CUDA_SUCCESS;
}

API cuDeviceGetPCIBusId(char *id, int len, CUdevice d)
{
	ENTER();
	if (!device(d) || len <= 0)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(id, (size_t)len, "0000:%02X:00.0", (device(d)->minor + 1) << 4 & 0xff);
	return CUDA_SUCCESS;
}

/* ---- contexts ---- */

/* hold gives the process its context's memory on a device, once. */
static CUresult hold(int device)
{
	struct vgpu_node *n = drv.node;
	struct vgpu_share *s = &n->proc[drv.proc].on[device];
	node_lock(n);
	if (!s->held)
		s->mem += n->device[device].context_bytes;
	s->held++;
	int lost = (int)n->device[device].lost;
	node_unlock(n);
	return lost ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

static void let_go(int device)
{
	struct vgpu_node *n = drv.node;
	struct vgpu_share *s = &n->proc[drv.proc].on[device];
	node_lock(n);
	if (s->held && --s->held == 0)
		s->mem -= n->device[device].context_bytes < s->mem ? n->device[device].context_bytes : s->mem;
	node_unlock(n);
}

API cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice d)
{
	ENTER();
	if (!device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *c = &primary[drv.visible[d]];
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&start);
	c->device = drv.visible[d];
	c->primary = 1;
	if (c->users++ == 0)
		r = hold(c->device);
	pthread_mutex_unlock(&start);
	*ctx = c;
	return r;
}

static CUresult release(CUdevice d)
{
	if (!device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *c = &primary[drv.visible[d]];
	pthread_mutex_lock(&start);
	int last = c->users > 0 && --c->users == 0;
	pthread_mutex_unlock(&start);
	if (last)
		let_go(c->device);
	return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
	ENTER();
	return release(d);
}

API cuDevicePrimaryCtxReset_v2(CUdevice d)
{
	ENTER();
	return release(d);
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags)
{
	ENTER();
	if (!device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	primary[drv.visible[d]].flags = flags;
	return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active)
{
	ENTER();
	if (!device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = primary[drv.visible[d]].flags;
	*active = primary[drv.visible[d]].users > 0;
	return CUDA_SUCCESS;
}

API cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice d)
{
	ENTER();
	if (!device(d) || depth == 16)
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->device = drv.visible[d];
	c->flags = flags;
	stack[depth++] = c;
	*ctx = c;
	return hold(c->device);
}

API cuCtxDestroy_v2(CUcontext c)
{
	ENTER();
	if (!c || c->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth && stack[depth - 1] == c)
		depth--;
	let_go(c->device);
	free(c); /* its streams go with the process */
	return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext c)
{
	ENTER();
	if (!c) {
		depth -= depth > 0;
		return CUDA_SUCCESS;
	}
	if (!depth)
		depth = 1;
	stack[depth - 1] = c;
	return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext *c)
{
	ENTER();
	*c = depth ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

API cuCtxPushCurrent_v2(CUcontext c)
{
	ENTER();
	if (!c || depth == 16)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = c;
	return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext *c)
{
	ENTER();
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (c)
		*c = stack[depth];
	return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *d)
{
	ENTER();
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	for (int i = 0; i < drv.devices; i++)
		if (drv.visible[i] == stack[depth - 1]->device)
			*d = i;
	return CUDA_SUCCESS;
}

API cuCtxGetFlags(unsigned *flags)
{
	ENTER();
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	*flags = stack[depth - 1]->flags;
	return CUDA_SUCCESS;
}
