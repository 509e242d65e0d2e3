/* An NVML whose devices take their samples at instants of their own: device i at
 * every multiple of 20 ms and i * 7 ms, kept for two seconds; the sample's value
 * says which one it is. Device 1's power can be made to hang, by a file. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
struct sample { u64 at; u32 value, pad; };

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(u32 *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **h) { *h = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, u32 n) { s[0] = 'A' + (long)d - 1; s[1] = 0; return 0; }

int nvmlDeviceGetPowerUsage(void *d, u32 *v)
{
	const char *file = getenv("TRIMTAB_TEST_HANG");
	while (d == (void *)2 && file && access(file, F_OK) == 0)
		usleep(10000);
	*v = 1000;
	return 0;
}

int nvmlDeviceGetSamples(void *d, u32 kind, u64 since, u32 *type, u32 *n, struct sample *s)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	u64 now = (u64)t.tv_sec * 1000000 + t.tv_nsec / 1000, shift = ((long)d - 1) * 7000;
	u64 first = now - 2000000 > since ? now - 2000000 : since;
	u32 found = 0;
	*type = 1;
	for (u64 at = (first - shift) / 20000 * 20000 + 20000 + shift; at <= now; at += 20000) {
		if (s && found >= *n)
			return 7;
		if (s)
			s[found] = (struct sample){at, (u32)(at / 20000 % 100)};
		found++;
	}
	*n = found;
	return found ? 0 : 6;
}
