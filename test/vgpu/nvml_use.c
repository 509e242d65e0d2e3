//go:build ignore

/* The virtual libnvidia-ml: memory, utilisation, processes. */
#include "nvml.h"

#include <string.h>

uint32_t duty_percent(struct vgpu_device *v)
{
	return v->duties ? v->duty[(v->duties - 1) % VGPU_DUTY_RING].percent : 0;
}

/* ---- memory ---- */

static int on_slice(nvmlDevice_t d, struct vgpu_proc *p) { return d->slice < 0 || p->mig_slice == (uint32_t)d->slice; }

static void memory(nvmlDevice_t d, struct vgpu_device *v, nvmlMemory_t *m)
{
	struct vgpu_node *n = nvml.node;
	memset(m, 0, sizeof *m);
	int held = node_look(n);
	for (uint32_t p = 0; p < VGPU_MAX_PROCS; p++)
		if ((n->proc[p].epoch & 1) && on_slice(d, &n->proc[p]))
			m->used += n->proc[p].on[d->device].mem;
	node_looked(n, held);
	m->total = d->slice < 0 || !v->mig_slices ? v->mem_total : v->mem_total / v->mig_slices;
	m->free = m->used < m->total ? m->total - m->used : 0;
}

NV nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)
{
	DEVICE(d);
	memory(d, v, m);
	return NVML_SUCCESS;
}

NV nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m)
{
	DEVICE(d);
	nvmlMemory_t one;
	if (m->version != (sizeof *m | 2 << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory(d, v, &one);
	m->total = one.total;
	m->free = one.free;
	m->used = one.used;
	m->reserved = 0;
	return NVML_SUCCESS;
}

/* ---- utilisation ---- */

NV nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u)
{
	DEVICE(d);
	WHOLE(d);
	int held = node_look(nvml.node);
	u->gpu = duty_percent(v);
	u->memory = u->gpu * v->dram_pct / 100;
	node_looked(nvml.node, held);
	return NVML_SUCCESS;
}

/* The samples newer than last, oldest first, *n at the most. */
static nvmlReturn_t samples(struct vgpu_device *v, uint64_t last, unsigned percent, unsigned *n, nvmlSample_t *out)
{
	unsigned k = 0;
	int held = node_look(nvml.node);
	uint64_t i = v->duties > VGPU_DUTY_RING ? v->duties - VGPU_DUTY_RING : 0;
	for (; i < v->duties && k < *n; i++) {
		struct vgpu_duty *s = &v->duty[i % VGPU_DUTY_RING];
		if (s->wall_us <= last)
			continue;
		out[k].timeStamp = s->wall_us;
		out[k++].sampleValue.ullVal = s->percent * percent / 100;
	}
	node_looked(nvml.node, held);
	*n = k;
	return k ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

enum { SAMPLE_GPU = 1, SAMPLE_MEMORY = 2, VALUE_UINT = 1, VALUE_U64 = 3 };

NV nvmlDeviceGetSamples(nvmlDevice_t d, unsigned type, unsigned long long last, unsigned *value_type, unsigned *n, nvmlSample_t *out)
{
	DEVICE(d);
	WHOLE(d);
	if (type != SAMPLE_GPU && type != SAMPLE_MEMORY)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!n || !value_type)
		return NVML_ERROR_INVALID_ARGUMENT;
	*value_type = VALUE_UINT;
	if (!out) {
		*n = VGPU_DUTY_RING;
		return NVML_SUCCESS;
	}
	return samples(v, last, type == SAMPLE_GPU ? 100 : v->dram_pct, n, out);
}

/* ---- processes ---- */

enum list { COMPUTE, GRAPHICS, MPS };

static int listed(nvmlDevice_t d, struct vgpu_device *v, struct vgpu_proc *p, enum list which)
{
	enum list is = p->graphics ? GRAPHICS : v->mps ? MPS : COMPUTE;
	return (p->epoch & 1) && p->on[d->device].held && is == which && on_slice(d, p);
}

static nvmlReturn_t processes(nvmlDevice_t d, struct vgpu_device *v, enum list which, unsigned *n, nvmlProcessInfo_t *out)
{
	struct vgpu_node *node = nvml.node;
	unsigned room = *n, k = 0;
	int held = node_look(node);
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		struct vgpu_proc *p = &node->proc[i];
		pid_t pid = listed(d, v, p, which) ? node_pid(node, i) : 0;
		if (pid <= 0) /* in a container NVML does not see its neighbours */
			continue;
		uint32_t slice = v->mig_slices ? p->mig_slice : 0xffffffff;
		if (k < room && out)
			out[k] = (nvmlProcessInfo_t){(unsigned)pid, p->on[d->device].mem, slice, v->mig_slices ? 0 : 0xffffffff};
		k++;
	}
	node_looked(node, held);
	*n = k;
	return k > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t processes_v1(nvmlDevice_t d, struct vgpu_device *v, enum list which, unsigned *n, nvmlProcessInfo_v1_t *out)
{
	nvmlProcessInfo_t all[VGPU_MAX_PROCS];
	unsigned room = *n;
	*n = VGPU_MAX_PROCS;
	processes(d, v, which, n, all);
	for (unsigned i = 0; i < *n && i < room && out; i++)
		out[i] = (nvmlProcessInfo_v1_t){all[i].pid, all[i].usedGpuMemory};
	return *n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESSES(name, which)                                            \
	NV name(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_v1_t *out)         \
	{                                                                       \
		DEVICE(d);                                                            \
		return processes_v1(d, v, which, n, out);                             \
	}                                                                       \
	NV name##_v2(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *out)       \
	{                                                                       \
		DEVICE(d);                                                            \
		return processes(d, v, which, n, out);                                \
	}                                                                       \
	NV name##_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *out)       \
	{                                                                       \
		DEVICE(d);                                                            \
		return processes(d, v, which, n, out);                                \
	}

PROCESSES(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

/* newest finds the last sample of a process: -1 if it is older than last, or there is none. */
static int newest(struct vgpu_device *v, uint32_t proc, uint32_t epoch, uint64_t last)
{
	uint64_t from = v->proc_samples > VGPU_PROC_RING ? v->proc_samples - VGPU_PROC_RING : 0;
	for (uint64_t i = v->proc_samples; i-- > from;) {
		struct vgpu_proc_sample *s = &v->proc_sample[i % VGPU_PROC_RING];
		if (s->proc == proc && s->epoch == epoch)
			return s->wall_us > last && s->sm > 0 ? (int)(i % VGPU_PROC_RING) : -1;
	}
	return -1;
}

NV nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *out, unsigned *n, unsigned long long last)
{
	DEVICE(d);
	WHOLE(d);
	struct vgpu_node *node = nvml.node;
	unsigned room = out ? *n : 0, k = 0;
	int held = node_look(node);
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		int at = node->proc[i].epoch & 1 ? newest(v, i, node->proc[i].epoch, last) : -1;
		pid_t pid = at < 0 ? 0 : node_pid(node, i);
		if (pid <= 0)
			continue;
		struct vgpu_proc_sample *s = &v->proc_sample[at];
		if (k < room)
			out[k] = (nvmlProcessUtilizationSample_t){(unsigned)pid, s->wall_us, s->sm, s->mem, 0, 0};
		k++;
	}
	node_looked(node, held);
	*n = k;
	return k == 0 ? NVML_ERROR_NOT_FOUND : k > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
