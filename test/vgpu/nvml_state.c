//go:build ignore

/* The virtual libnvidia-ml: power, clocks, temperature, links, affinity. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_CLOCK_MHZ = 210, REASON_IDLE = 1, PCIE_WINDOW_NS = 20000000, NVLINK_TX = 138, NVLINK_RX = 139 };

static uint32_t busy_now(struct vgpu_device *v)
{
	int held = node_look(nvml.node);
	uint32_t percent = duty_percent(v);
	node_looked(nvml.node, held);
	return percent;
}

/* ---- power, temperature ---- */

NV nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw)
{
	DEVICE(d);
	if (d->slice >= 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*mw = v->power_mw ? v->power_mw : v->power_idle_mw + (v->power_max_mw - v->power_idle_mw) / 100 * busy_now(v) * 9 / 10;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw)
{
	DEVICE(d);
	*mw = v->power_max_mw;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetPowerManagementLimit(nvmlDevice_t d, unsigned *mw)
{
	DEVICE(d);
	*mw = v->power_max_mw;
	return NVML_SUCCESS;
}

static unsigned degrees(struct vgpu_device *v) { return v->temp_c ? v->temp_c : 34 + busy_now(v) / 3; }

NV nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *c)
{
	DEVICE(d);
	if (sensor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*c = degrees(v);
	return NVML_SUCCESS;
}

NV nvmlDeviceGetTemperatureV(nvmlDevice_t d, nvmlTemperature_t *t)
{
	DEVICE(d);
	if (t->version != (sizeof *t | 1 << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	t->temperature = (int)degrees(v);
	return NVML_SUCCESS;
}

/* ---- clocks: 0 graphics, 1 SM, 2 memory, 3 video ---- */

static nvmlReturn_t max_clock(struct vgpu_device *v, unsigned type, unsigned *mhz)
{
	if (type > 3)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mhz = type == 2 ? v->mem_clock_mhz : v->clock_max_mhz;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz)
{
	DEVICE(d);
	return max_clock(v, type, mhz);
}

NV nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz)
{
	DEVICE(d);
	nvmlReturn_t r = max_clock(v, type, mhz);
	if (r == NVML_SUCCESS && type != 2)
		*mhz = v->clock_mhz ? v->clock_mhz : busy_now(v) ? v->clock_max_mhz : IDLE_CLOCK_MHZ;
	return r;
}

static unsigned long long reasons(struct vgpu_device *v)
{
	return v->slowdown | (busy_now(v) ? 0 : REASON_IDLE);
}

NV nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *mask)
{
	DEVICE(d);
	*mask = reasons(v);
	return NVML_SUCCESS;
}

NV nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *mask)
{
	DEVICE(d);
	*mask = reasons(v);
	return NVML_SUCCESS;
}

/* ---- links ---- */

/* As the real call it watches the link for 20 ms. counter: 0 from the device, 1 to it. */
NV nvmlDeviceGetPcieThroughput(nvmlDevice_t d, unsigned counter, unsigned *kbps)
{
	DEVICE(d);
	struct timespec t = {.tv_nsec = PCIE_WINDOW_NS};
	if (d->slice >= 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (counter > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	uint64_t *bytes = counter ? &v->bytes_in : &v->bytes_out;
	int held = node_look(nvml.node);
	uint64_t from = *bytes, from_ns = nvml.node->now_ns;
	node_looked(nvml.node, held);
	nanosleep(&t, NULL);
	held = node_look(nvml.node);
	double s = (double)(nvml.node->now_ns - from_ns) / 1e9;
	*kbps = s > 0 ? (unsigned)((double)(*bytes - from) / 1000 / s) : 0;
	node_looked(nvml.node, held);
	return NVML_SUCCESS;
}

#define FACT(name, field)                     \
	NV name(nvmlDevice_t d, unsigned *value)    \
	{                                           \
		DEVICE(d);                                \
		*value = v->field;                        \
		return NVML_SUCCESS;                      \
	}
FACT(nvmlDeviceGetMaxPcieLinkGeneration, pcie_gen)
FACT(nvmlDeviceGetCurrPcieLinkGeneration, pcie_gen)
FACT(nvmlDeviceGetMaxPcieLinkWidth, pcie_width)
FACT(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
FACT(nvmlDeviceGetComputeMode, compute_mode)

NV nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor)
{
	DEVICE(d);
	*major = v->hopper ? 9 : 8;
	*minor = 0;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned link, unsigned *active)
{
	DEVICE(d);
	if (link >= v->nvlinks)
		return v->nvlinks ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
	*active = 1;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetNvLinkCapability(nvmlDevice_t d, unsigned link, int which, unsigned *has)
{
	DEVICE(d);
	if (link >= v->nvlinks)
		return v->nvlinks ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
	*has = which == 0; /* the other end's memory is reached */
	return NVML_SUCCESS;
}

/* What is at a link's other end is not simulated. */
NV nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned link, nvmlPciInfo_t *p)
{
	DEVICE(d);
	(void)link, (void)p;
	return NVML_ERROR_NOT_SUPPORTED;
}

NV nvmlDeviceGetP2PStatus(nvmlDevice_t d, nvmlDevice_t peer, int which, int *status)
{
	enum { READ, WRITE, OK = 0, NOT_SUPPORTED = 5 };
	DEVICE(d);
	(void)peer;
	*status = which == READ || which == WRITE ? OK : NOT_SUPPORTED;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *values)
{
	DEVICE(d);
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	for (int i = 0; i < n; i++) {
		nvmlFieldValue_t *f = &values[i];
		int known = v->nvlinks && (f->fieldId == NVLINK_TX || f->fieldId == NVLINK_RX);
		f->timestamp = (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
		f->latencyUsec = 0;
		f->valueType = 3; /* unsigned long long */
		f->value.ullVal = known ? (f->fieldId == NVLINK_TX ? v->link_out : v->link_in) / 1024 : 0;
		f->nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
	}
	return NVML_SUCCESS;
}

/* ---- affinity ---- */

static void set_bit(unsigned long *set, unsigned words, long bit)
{
	if (bit >= 0 && bit < (long)words * 64)
		set[bit / 64] |= 1ul << bit % 64;
}

/* The CPUs of the spec; without one every CPU is as near as any other. */
NV nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned words, unsigned long *set)
{
	DEVICE(d);
	char *p = v->cpus;
	memset(set, 0, words * sizeof *set);
	if (!*p)
		for (long i = 0; i < sysconf(_SC_NPROCESSORS_CONF); i++)
			set_bit(set, words, i);
	while (*p) {
		char *end;
		long from = strtol(p, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
		if (end == p)
			break;
		for (long i = from; i <= to; i++)
			set_bit(set, words, i);
		p = *end ? end + 1 : end;
	}
	return NVML_SUCCESS;
}

NV nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned words, unsigned long *set, unsigned scope)
{
	DEVICE(d);
	(void)scope;
	if (v->numa < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(set, 0, words * sizeof *set);
	set_bit(set, words, v->numa);
	return NVML_SUCCESS;
}

NV nvmlDeviceGetNumaNodeId(nvmlDevice_t d, unsigned *node)
{
	DEVICE(d);
	if (v->numa < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*node = (unsigned)v->numa;
	return NVML_SUCCESS;
}
