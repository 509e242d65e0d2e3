//go:build ignore

/* The virtual libnvidia-ml: memory errors, and the driver's reports of errors (XIDs) as events. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENT_XID = 8, CORRECTED = 0, UNCORRECTED = 1, VOLATILE = 0, AGGREGATE = 1, LOOK_NS = 1000000 };

/* ---- memory ---- */

NV nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, unsigned type, unsigned counter, unsigned long long *n)
{
	DEVICE(d);
	if (d->slice >= 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (type > UNCORRECTED || counter > AGGREGATE)
		return NVML_ERROR_INVALID_ARGUMENT;
	*n = type == CORRECTED ? v->ecc_corrected : v->ecc;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	DEVICE(d);
	if (d->slice >= 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*corrected = 0;
	*uncorrected = v->rows_remapped;
	*pending = v->row_pending;
	*failed = v->row_failed;
	return NVML_SUCCESS;
}

/* ---- events ---- */

/* A listener: what was reported before it asked for a device's events it never hears of. */
struct nvml_events {
	uint32_t wants[VGPU_MAX_DEVICES];
	uint64_t next[VGPU_MAX_DEVICES];
};
typedef struct nvml_events *nvmlEventSet_t;

NV nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types)
{
	DEVICE(d);
	*types = d->slice < 0 ? EVENT_XID : 0;
	return NVML_SUCCESS;
}

NV nvmlEventSetCreate(nvmlEventSet_t *set)
{
	ENTER();
	*set = calloc(1, sizeof **set);
	return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

NV nvmlEventSetFree(nvmlEventSet_t set)
{
	ENTER();
	free(set);
	return NVML_SUCCESS;
}

NV nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set)
{
	DEVICE(d);
	if (!set || types & ~(unsigned long long)EVENT_XID)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (d->slice >= 0)
		return NVML_ERROR_NOT_SUPPORTED;
	set->wants[d->device] = types != 0;
	set->next[d->device] = atomic_load(&v->xids);
	return NVML_SUCCESS;
}

static int reported(nvmlEventSet_t set, nvmlEventData_v1_t *e, int only_lost)
{
	for (uint32_t i = 0; i < nvml.node->ndevices; i++) {
		struct vgpu_device *v = &nvml.node->device[i];
		uint64_t ever = atomic_load(&v->xids);
		if (!set->wants[i] || set->next[i] >= ever || (only_lost && !v->lost))
			continue;
		if (ever - set->next[i] > VGPU_XIDS)
			set->next[i] = ever - VGPU_XIDS;
		*e = (nvmlEventData_v1_t){&nvml.device[i], EVENT_XID, v->xid[set->next[i]++ % VGPU_XIDS]};
		return 1;
	}
	return 0;
}

/* One that fell off the bus fails the wait for all, once its own errors are told. */
static int unreachable(nvmlEventSet_t set)
{
	for (uint32_t i = 0; i < nvml.node->ndevices; i++)
		if (set->wants[i] && nvml.node->device[i].lost)
			return 1;
	return 0;
}

static nvmlReturn_t wait_for(nvmlEventSet_t set, nvmlEventData_v1_t *e, unsigned ms)
{
	struct timespec t = {.tv_nsec = LOOK_NS};
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (;;) {
		int failing = unreachable(set);
		if (reported(set, e, failing))
			return NVML_SUCCESS;
		if (failing)
			return NVML_ERROR_GPU_IS_LOST;
		if (ms-- == 0)
			return NVML_ERROR_TIMEOUT;
		nanosleep(&t, NULL);
	}
}

NV nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *e, unsigned ms)
{
	ENTER();
	return wait_for(set, e, ms);
}

NV nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *e, unsigned ms)
{
	ENTER();
	nvmlEventData_v1_t old = {0};
	nvmlReturn_t r = wait_for(set, &old, ms);
	*e = (nvmlEventData_t){old.device, old.eventType, old.eventData, ~0u, ~0u};
	return r;
}
