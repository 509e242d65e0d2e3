/* The part of NVML's interface that the virtual GPU gives, with NVML's own numbers and
 * layouts, and what the files of the virtual libnvidia-ml share. */
#ifndef VGPU_NVML_H
#define VGPU_NVML_H

#include "node.h"

typedef enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

struct nvml_handle {
	uint32_t device;
	int32_t slice; /* -1: the whole device */
};
typedef const struct nvml_handle *nvmlDevice_t;

typedef struct {
	char busIdLegacy[16];
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;
typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
	unsigned gpu, memory;
} nvmlUtilization_t;
typedef union {
	double dVal;
	unsigned uiVal;
	unsigned long long ullVal;
} nvmlValue_t;
typedef struct {
	unsigned long long timeStamp;
	nvmlValue_t sampleValue;
} nvmlSample_t;
typedef struct {
	unsigned pid;
	unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;
typedef struct {
	unsigned pid;
	unsigned long long usedGpuMemory;
	unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef struct {
	unsigned pid;
	unsigned long long timeStamp;
	unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
typedef struct {
	unsigned fieldId, scopeId;
	long long timestamp, latencyUsec;
	unsigned valueType;
	nvmlReturn_t nvmlReturn;
	nvmlValue_t value;
} nvmlFieldValue_t;
typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType, eventData;
} nvmlEventData_v1_t;
typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType, eventData;
	unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
typedef struct {
	unsigned version, sensorType;
	int temperature;
} nvmlTemperature_t;

#define NV VGPU_API nvmlReturn_t

#pragma GCC visibility push(hidden)
struct nvml {
	struct vgpu_node *node;
	int users;
	struct nvml_handle device[VGPU_MAX_DEVICES], slice[VGPU_MAX_DEVICES][8];
};
extern struct nvml nvml;

/* nvml_enter and nvml_enter_device give the error with which the call is to end, if any. */
nvmlReturn_t nvml_enter(const char *call);
nvmlReturn_t nvml_enter_device(nvmlDevice_t d, const char *call, struct vgpu_device **v);
/* duty_percent is the last sample of how busy the device was. Under the lock. */
uint32_t duty_percent(struct vgpu_device *v);
#pragma GCC visibility pop

#define ENTER()                                 \
	do {                                          \
		nvmlReturn_t e_ = nvml_enter(__func__);     \
		if (e_)                                     \
			return e_;                                \
	} while (0)

/* DEVICE begins a call on a device: v is the node's. */
#define DEVICE(d)                                                \
	struct vgpu_device *v;                                         \
	do {                                                           \
		nvmlReturn_t e_ = nvml_enter_device((d), __func__, &v);      \
		if (e_)                                                      \
			return e_;                                                 \
	} while (0)

#define WHOLE(d) /* what slices do not tell, nor devices that are sliced */ \
	do {                                                                      \
		if ((d)->slice >= 0 || v->mig_slices)                                   \
			return NVML_ERROR_NOT_SUPPORTED;                                      \
	} while (0)

#endif
