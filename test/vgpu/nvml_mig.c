//go:build ignore

/* The virtual libnvidia-ml: MIG slices, and GPM. Slices have a shape (handles, memory,
 * processes); their work shares the device's time all the same. */
#include "nvml.h"

#include <stdlib.h>
#include <string.h>

NV nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *now, unsigned *pending)
{
	DEVICE(d);
	if (d->slice >= 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	*now = *pending = v->mig_slices > 0;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *n)
{
	DEVICE(d);
	*n = 7;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned i, nvmlDevice_t *slice)
{
	DEVICE(d);
	if (i >= v->mig_slices || i >= 8)
		return NVML_ERROR_NOT_FOUND;
	*slice = &nvml.slice[d->device][i];
	return NVML_SUCCESS;
}

NV nvmlDeviceIsMigDeviceHandle(nvmlDevice_t d, unsigned *is)
{
	DEVICE(d);
	(void)v;
	*is = d->slice >= 0;
	return NVML_SUCCESS;
}

NV nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t d, nvmlDevice_t *whole)
{
	DEVICE(d);
	(void)v;
	*whole = &nvml.device[d->device];
	return d->slice < 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

NV nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned *id)
{
	DEVICE(d);
	(void)v;
	*id = d->slice < 0 ? 0 : (unsigned)d->slice;
	return d->slice < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

NV nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned *id)
{
	DEVICE(d);
	(void)v;
	*id = 0;
	return d->slice < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* ---- GPM ---- */

struct gpm {
	uint32_t device, taken;
	uint64_t at_ns, busy_ns, kernel_ns, in, out;
};
typedef struct {
	unsigned metricId;
	nvmlReturn_t nvmlReturn;
	double value;
	char *shortName, *longName, *unit;
} nvmlGpmMetric_t;
typedef struct {
	unsigned version, numMetrics;
	struct gpm *sample1, *sample2;
	nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;
typedef struct {
	unsigned version, isSupportedDevice;
} nvmlGpmSupport_t;

enum { GPM_GRAPHICS = 1, GPM_SM = 2, GPM_OCCUPANCY = 3, GPM_TENSOR = 5, GPM_DRAM = 10, GPM_PCIE_TX = 20, GPM_PCIE_RX = 21 };
enum { COLLECTIVE_SM_PCT = 5 }; /* NCCL's kernels hold few SMs */

NV nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *s)
{
	DEVICE(d);
	s->isSupportedDevice = v->hopper != 0;
	return NVML_SUCCESS;
}

NV nvmlGpmSampleAlloc(struct gpm **s)
{
	ENTER();
	*s = calloc(1, sizeof **s);
	return *s ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

NV nvmlGpmSampleFree(struct gpm *s)
{
	ENTER();
	free(s);
	return NVML_SUCCESS;
}

static nvmlReturn_t take(nvmlDevice_t d, struct vgpu_device *v, struct gpm *s)
{
	if (!v->hopper)
		return NVML_ERROR_NOT_SUPPORTED;
	int held = node_look(nvml.node);
	*s = (struct gpm){d->device, 1, nvml.node->now_ns, v->busy_ns, v->kernel_ns, v->bytes_in, v->bytes_out};
	node_looked(nvml.node, held);
	return NVML_SUCCESS;
}

NV nvmlGpmSampleGet(nvmlDevice_t d, struct gpm *s)
{
	DEVICE(d);
	return take(d, v, s);
}

NV nvmlGpmMigSampleGet(nvmlDevice_t d, unsigned instance, struct gpm *s)
{
	DEVICE(d);
	return instance < v->mig_slices ? take(d, v, s) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t metric(const struct gpm *a, const struct gpm *b, unsigned id, double *value)
{
	struct vgpu_device *v = &nvml.node->device[b->device];
	double ns = (double)(b->at_ns - a->at_ns), kernel = (double)(b->kernel_ns - a->kernel_ns) / ns;
	double busy = (double)(b->busy_ns - a->busy_ns) / ns, mib = 1e9 / ns / 1048576;
	switch (id) {
	case GPM_GRAPHICS:
		*value = 100 * busy;
		return NVML_SUCCESS;
	case GPM_SM:
		*value = kernel * v->sm_pct + (busy - kernel) * COLLECTIVE_SM_PCT;
		return NVML_SUCCESS;
	case GPM_OCCUPANCY:
		*value = kernel * v->sm_pct / 2;
		return NVML_SUCCESS;
	case GPM_TENSOR:
		*value = kernel * v->tensor_pct;
		return NVML_SUCCESS;
	case GPM_DRAM:
		*value = kernel * v->dram_pct;
		return NVML_SUCCESS;
	case GPM_PCIE_TX:
		*value = (double)(b->out - a->out) * mib;
		return NVML_SUCCESS;
	case GPM_PCIE_RX:
		*value = (double)(b->in - a->in) * mib;
		return NVML_SUCCESS;
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}

NV nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *q)
{
	ENTER();
	const struct gpm *a = q->sample1, *b = q->sample2;
	if (q->version != 1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!a || !b || !a->taken || !b->taken || a->device != b->device || b->at_ns <= a->at_ns)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < q->numMetrics; i++) {
		nvmlGpmMetric_t *m = &q->metrics[i];
		m->shortName = m->longName = m->unit = NULL;
		m->nvmlReturn = metric(a, b, m->metricId, &m->value);
	}
	return NVML_SUCCESS;
}
