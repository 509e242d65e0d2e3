//go:build ignore

/* The virtual libnvidia-ml: start, system, handles. */
#define _GNU_SOURCE
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct nvml nvml;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static nvmlReturn_t begin(const char *call)
{
	struct vgpu_node *n = node_open();
	if (!n)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	if (fault_check(n, -1, call))
		return NVML_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&guard);
	nvml.node = n;
	nvml.users++;
	for (uint32_t i = 0; i < VGPU_MAX_DEVICES; i++) {
		nvml.device[i] = (struct nvml_handle){i, -1};
		for (int s = 0; s < 8; s++)
			nvml.slice[i][s] = (struct nvml_handle){i, s};
	}
	pthread_mutex_unlock(&guard);
	return NVML_SUCCESS;
}

NV nvmlInit(void) { return begin(__func__); }
NV nvmlInit_v2(void) { return begin(__func__); }
NV nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	return begin(__func__);
}

NV nvmlShutdown(void)
{
	ENTER();
	pthread_mutex_lock(&guard);
	nvml.users--;
	pthread_mutex_unlock(&guard);
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_enter(const char *call)
{
	if (nvml.users <= 0)
		return NVML_ERROR_UNINITIALIZED;
	return fault_check(nvml.node, -1, call) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static int is_handle(nvmlDevice_t d)
{
	const char *p = (const char *)d, *from = (const char *)nvml.device, *to = (const char *)(&nvml + 1);
	return p >= from && p < to && d->device < nvml.node->ndevices;
}

nvmlReturn_t nvml_enter_device(nvmlDevice_t d, const char *call, struct vgpu_device **v)
{
	if (nvml.users <= 0)
		return NVML_ERROR_UNINITIALIZED;
	if (!is_handle(d))
		return NVML_ERROR_INVALID_ARGUMENT;
	*v = &nvml.node->device[d->device];
	if (fault_check(nvml.node, (int)d->device, call))
		return NVML_ERROR_NOT_SUPPORTED;
	return (*v)->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

VGPU_API const char *nvmlErrorString(nvmlReturn_t r)
{
	switch (r) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_ERROR_NOT_FOUND:
		return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_GPU_IS_LOST:
		return "GPU is lost";
	default:
		return "Unknown Error";
	}
}

/* ---- system ---- */

static nvmlReturn_t text(char *into, unsigned len, const char *value)
{
	if (!into || len <= strlen(value))
		return into ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_ERROR_INVALID_ARGUMENT;
	strcpy(into, value);
	return NVML_SUCCESS;
}

NV nvmlSystemGetDriverVersion(char *into, unsigned len)
{
	ENTER();
	return text(into, len, nvml.node->driver);
}

NV nvmlSystemGetNVMLVersion(char *into, unsigned len)
{
	ENTER();
	char version[32];
	snprintf(version, sizeof version, "12.%s", nvml.node->driver);
	return text(into, len, version);
}

NV nvmlSystemGetCudaDriverVersion(int *v)
{
	ENTER();
	*v = nvml.node->cuda;
	return NVML_SUCCESS;
}

NV nvmlSystemGetCudaDriverVersion_v2(int *v)
{
	ENTER();
	*v = nvml.node->cuda;
	return NVML_SUCCESS;
}

/* ---- handles ---- */

NV nvmlDeviceGetCount(unsigned *n)
{
	ENTER();
	*n = nvml.node->ndevices;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetCount_v2(unsigned *n)
{
	ENTER();
	*n = nvml.node->ndevices;
	return NVML_SUCCESS;
}

static nvmlReturn_t by_index(unsigned i, nvmlDevice_t *d)
{
	if (i >= nvml.node->ndevices || !d)
		return NVML_ERROR_INVALID_ARGUMENT;
	*d = &nvml.device[i];
	return NVML_SUCCESS;
}

NV nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *d)
{
	ENTER();
	return by_index(i, d);
}

NV nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d)
{
	ENTER();
	return by_index(i, d);
}

NV nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *d)
{
	ENTER();
	char mig[96];
	for (uint32_t i = 0; uuid && i < nvml.node->ndevices; i++) {
		struct vgpu_device *v = &nvml.node->device[i];
		if (strcmp(v->uuid, uuid) == 0)
			return by_index(i, d);
		for (uint32_t s = 0; s < v->mig_slices && s < 8; s++) {
			mig_uuid(v, s, mig, sizeof mig);
			if (strcmp(mig, uuid) == 0) {
				*d = &nvml.slice[i][s];
				return NVML_SUCCESS;
			}
		}
	}
	return uuid ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

static void bus_id(struct vgpu_device *v, char *into, size_t len, int digits)
{
	snprintf(into, len, "%0*X:%02X:00.0", digits, 0, (v->minor + 1) << 4 & 0xff);
}

static nvmlReturn_t by_bus(const char *id, nvmlDevice_t *d)
{
	char long_id[32], legacy[16];
	for (uint32_t i = 0; id && i < nvml.node->ndevices; i++) {
		bus_id(&nvml.node->device[i], long_id, sizeof long_id, 8);
		bus_id(&nvml.node->device[i], legacy, sizeof legacy, 4);
		if (strcasecmp(id, long_id) == 0 || strcasecmp(id, legacy) == 0)
			return by_index(i, d);
	}
	return NVML_ERROR_NOT_FOUND;
}

NV nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *d)
{
	ENTER();
	return by_bus(id, d);
}

NV nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *d)
{
	ENTER();
	return by_bus(id, d);
}

NV nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *i)
{
	DEVICE(d);
	*i = d->slice < 0 ? d->device : (unsigned)d->slice;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetName(nvmlDevice_t d, char *into, unsigned len)
{
	DEVICE(d);
	char slice[128];
	snprintf(slice, sizeof slice, "%s MIG 1g.%llugb", v->name,
	         v->mig_slices ? (unsigned long long)(v->mem_total >> 30) / v->mig_slices : 0);
	return text(into, len, d->slice < 0 ? v->name : slice);
}

NV nvmlDeviceGetUUID(nvmlDevice_t d, char *into, unsigned len)
{
	DEVICE(d);
	char mig[96];
	if (d->slice < 0)
		return text(into, len, v->uuid);
	mig_uuid(v, (uint32_t)d->slice, mig, sizeof mig);
	return text(into, len, mig);
}

NV nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *minor)
{
	DEVICE(d);
	if (d->slice >= 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*minor = v->minor;
	return NVML_SUCCESS;
}

static nvmlReturn_t pci(struct vgpu_device *v, nvmlPciInfo_t *p)
{
	memset(p, 0, sizeof *p);
	bus_id(v, p->busId, sizeof p->busId, 8);
	bus_id(v, p->busIdLegacy, sizeof p->busIdLegacy, 4);
	p->bus = (v->minor + 1) << 4 & 0xff;
	p->pciDeviceId = v->hopper ? 0x233110de : 0x20b510de;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *p)
{
	DEVICE(d);
	return pci(v, p);
}

NV nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p)
{
	DEVICE(d);
	return pci(v, p);
}
