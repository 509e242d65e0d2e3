/* An NVML whose every answer is a sentinel, or out of its range: what real drivers
 * give under MIG, passthrough and old firmware. The virtual GPU has no such habits. */
#include <math.h>
#include <string.h>
#include <time.h>

typedef unsigned int u32;
typedef unsigned long long u64;
enum { OK, NOT_SUPPORTED = 3, TOO_SMALL = 7 };

static u64 now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (u64)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int nvmlInit_v2(void) { return OK; }
int nvmlSystemGetDriverVersion(char *s, u32 n) { memset(s, '\377', n); return OK; } /* no end, no UTF-8 */
int nvmlDeviceGetCount_v2(u32 *n) { *n = 4000000000u; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **h) { *h = (void *)(long)(i + 1); return i < 1 ? OK : 15; }
int nvmlDeviceGetUUID(void *d, char *s, u32 n) { strcpy(s, "GPU-odd"); return OK; }

#define SENTINEL(name) int name(void *d, u32 *v) { *v = ~0u; return OK; }
#define SENTINEL_OF(name) int name(void *d, u32 k, u32 *v) { *v = ~0u; return OK; }
SENTINEL(nvmlDeviceGetMinorNumber)
SENTINEL(nvmlDeviceGetPowerUsage)
SENTINEL(nvmlDeviceGetEnforcedPowerLimit)
SENTINEL(nvmlDeviceGetCurrPcieLinkGeneration)
SENTINEL(nvmlDeviceGetCurrPcieLinkWidth)
SENTINEL_OF(nvmlDeviceGetClockInfo)
SENTINEL_OF(nvmlDeviceGetMaxClockInfo)
SENTINEL_OF(nvmlDeviceGetTemperature)
SENTINEL_OF(nvmlDeviceGetPcieThroughput)

int nvmlDeviceGetMemoryInfo_v2(void *d, u64 *m) { m[1] = m[2] = m[3] = m[4] = ~0ull; return OK; }
int nvmlDeviceGetCpuAffinity(void *d, u32 n, unsigned long *set) { memset(set, 0, n * sizeof *set); return OK; }
int nvmlDeviceGetMemoryAffinity(void *d, u32 n, unsigned long *set, u32 scope) { memset(set, 0, n * sizeof *set); set[0] = 3; return OK; }
int nvmlDeviceGetMigMode(void *d, u32 *now, u32 *then) { return NOT_SUPPORTED; }

struct field { u32 id, scope; long long at, latency; u32 type, ret; u64 value; };
int nvmlDeviceGetFieldValues(void *d, int n, struct field *f)
{
	f[0].ret = NOT_SUPPORTED;
	f[0].value = 5;
	f[1].ret = OK;
	f[1].type = 3;
	f[1].value = ~0ull;
	return OK;
}

struct sample { u64 at; u32 value, pad; };
int nvmlDeviceGetSamples(void *d, u32 kind, u64 since, u32 *type, u32 *n, struct sample *s)
{
	*type = 1;
	if (!s) {
		*n = 5;
		return OK;
	}
	u64 now = now_us();
	s[0] = (struct sample){now, 101};              /* no percentage */
	s[1] = (struct sample){now + 3600000000u, 50}; /* of the next hour */
	s[2] = (struct sample){1, 50};                 /* of 1970 */
	s[3] = (struct sample){now, ~0u};
	s[4] = (struct sample){now - 1000, 25};        /* the one good one, out of order */
	return OK;
}

struct process { u32 pid, pad; u64 mem; u32 gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, u32 *n, struct process *p)
{
	if (*n < 3) {
		*n = 3;
		return TOO_SMALL;
	}
	p[0] = (struct process){~0u, 0, 1, ~0u, ~0u};
	p[1] = (struct process){4242, 0, ~0ull, ~0u, ~0u};
	p[2] = (struct process){0, 0, 1, ~0u, ~0u};
	*n = 3;
	return OK;
}

struct use { u32 pid, pad; u64 at; u32 sm, mem, enc, dec; };
int nvmlDeviceGetProcessUtilization(void *d, struct use *u, u32 *n, u64 since)
{
	if (!u) {
		*n = 1;
		return TOO_SMALL;
	}
	u[0] = (struct use){4242, 0, now_us(), 42};
	*n = 4000000000u; /* more than there was room for */
	return OK;
}

struct gpm { u32 version, n; void *a, *b; struct { u32 id, ret; double value; void *info[3]; } m[210]; };
int nvmlGpmQueryDeviceSupport(void *d, u32 *s) { s[1] = 1; return OK; }
int nvmlGpmSampleAlloc(void **s) { static char room[8]; static int n; *s = &room[n++]; return OK; }
int nvmlGpmSampleGet(void *d, void *s) { return OK; }
int nvmlGpmMetricsGet(struct gpm *g)
{
	g->m[0].value = NAN;
	g->m[1].value = -1;
	g->m[2].ret = NOT_SUPPORTED;
	g->m[2].value = 50;
	return OK;
}
