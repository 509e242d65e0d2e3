//go:build ignore

/* What a node is like: defaults, and "key=value" on top of them. The defaults are
 * those of an A100 80 GB PCIe as far as it matters; hopper=1 adds what an H100 tells. */
#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void spec_defaults(struct vgpu_node *n, int devices)
{
	n->ndevices = (uint32_t)devices;
	n->cuda = 12040;
	snprintf(n->driver, sizeof n->driver, "550.54.15");
	for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
		struct vgpu_device *d = &n->device[i];
		snprintf(d->name, sizeof d->name, "Virtual GPU %d (trimtab)", i);
		snprintf(d->uuid, sizeof d->uuid, "GPU-76677075-7472-696d-7461-%012x", (unsigned)(n->random >> 8 & 0xffffff) << 8 | (unsigned)i);
		d->minor = (uint32_t)i;
		d->numa = -1;
		d->mem_total = 81920ULL << 20;
		d->context_bytes = 420ULL << 20;
		d->pcie_bps = 12000000000ULL;
		d->pcie_gen = 4;
		d->pcie_width = 16;
		d->power_idle_mw = 55000;
		d->power_max_mw = 300000;
		d->clock_max_mhz = 1410;
		d->mem_clock_mhz = 1512;
		d->sm_pct = 85;
		d->tensor_pct = 35;
		d->dram_pct = 40;
		d->drop_pct = 10;
		d->speed_pct = 100;
	}
}

enum width { TEXT, U32, S32, U64, XID };
struct key {
	const char *name;
	size_t offset, size;
	enum width width;
	uint64_t scale;
};
#define KEY(name, field, width, scale) {name, offsetof(struct vgpu_device, field), sizeof(((struct vgpu_device *)0)->field), width, scale}

static const struct key keys[] = {
    KEY("name", name, TEXT, 0),
    KEY("uuid", uuid, TEXT, 0),
    KEY("cpus", cpus, TEXT, 0), /* "0,2-3": those near the device; empty: not told */
    KEY("numa", numa, S32, 1),
    KEY("minor", minor, U32, 1),
    KEY("mem-mib", mem_total, U64, 1 << 20),
    KEY("context-mib", context_bytes, U64, 1 << 20),
    KEY("pcie-mbps", pcie_bps, U64, 1000000), /* megabytes a second, each way */
    KEY("pcie-gen", pcie_gen, U32, 1),
    KEY("pcie-width", pcie_width, U32, 1),
    KEY("hopper", hopper, U32, 1),
    KEY("mig", mig_slices, U32, 1),
    KEY("mps", mps, U32, 1),
    KEY("nvlinks", nvlinks, U32, 1),
    KEY("compute-mode", compute_mode, U32, 1),
    KEY("power-idle-mw", power_idle_mw, U32, 1),
    KEY("power-max-mw", power_max_mw, U32, 1),
    KEY("clock-max-mhz", clock_max_mhz, U32, 1),
    KEY("sm-pct", sm_pct, U32, 1),
    KEY("tensor-pct", tensor_pct, U32, 1),
    KEY("dram-pct", dram_pct, U32, 1),
    KEY("drop-pct", drop_pct, U32, 1),
    KEY("speed-pct", speed_pct, U32, 1), /* kernels take 100/N of their time: another model of device */
    KEY("lost", lost, U32, 1),
    KEY("clock-mhz", clock_mhz, U32, 1),
    KEY("slowdown", slowdown, U64, 1), /* NVML's mask: 4 power, 0x20 software thermal, 0x40 hardware thermal, 8 hardware */
    KEY("power-mw", power_mw, U32, 1),
    KEY("temp-c", temp_c, U32, 1),
    KEY("ecc", ecc, U64, 1), /* uncorrected memory errors */
    KEY("ecc-corrected", ecc_corrected, U64, 1),
    KEY("rows-remapped", rows_remapped, U32, 1),
    KEY("row-pending", row_pending, U32, 1),
    KEY("row-failed", row_failed, U32, 1),
    KEY("xid", xid, XID, 1), /* each time: the driver reports an error of this number */
};

static const struct key *find(const char *name)
{
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

static int put(struct vgpu_device *d, const struct key *k, const char *value)
{
	char *at = (char *)d + k->offset, *end;
	if (k->width == TEXT) {
		if (strlen(value) >= k->size)
			return -1;
		memset(at, 0, k->size);
		memcpy(at, value, strlen(value));
		return 0;
	}
	long long v = strtoll(value, &end, 0);
	if (*end || end == value || (k->width != S32 && v < 0))
		return -1;
	if (k->width == XID) {
		uint64_t place = atomic_load(&d->xids);
		d->xid[place % VGPU_XIDS] = (uint32_t)v;
		atomic_store(&d->xids, place + 1);
	} else if (k->width == U64)
		*(uint64_t *)at = (uint64_t)v * k->scale;
	else if (k->width == U32)
		*(uint32_t *)at = (uint32_t)v;
	else
		*(int32_t *)at = (int32_t)v;
	return 0;
}

int spec_set(struct vgpu_node *n, int device, const char *key, const char *value, char *why, size_t whylen)
{
	const struct key *k = find(key);
	if (!k) {
		snprintf(why, whylen, "no such key: %s (vgpu-node help lists them)", key);
		return -1;
	}
	for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
		if (device >= 0 && i != device)
			continue;
		if (put(&n->device[i], k, value)) {
			snprintf(why, whylen, "%s: bad value %s", key, value);
			return -1;
		}
	}
	return 0;
}

static int set_node(struct vgpu_node *n, const char *key, const char *value, char *why, size_t whylen)
{
	int v = atoi(value);
	if (strcmp(key, "driver") == 0) {
		snprintf(n->driver, sizeof n->driver, "%s", value);
		return 0;
	}
	if (strcmp(key, "cuda") == 0) {
		n->cuda = v;
		return 0;
	}
	if (strcmp(key, "devices"))
		return 1;
	if (v < 0 || v > VGPU_MAX_DEVICES) {
		snprintf(why, whylen, "devices: %s is not 0..%d", value, VGPU_MAX_DEVICES);
		return -1;
	}
	n->ndevices = (uint32_t)v;
	return 0;
}

/* A part of a list of CPUs ("4-7") has no "=": it belongs to the key before it. */
static char *next_pair(char **rest)
{
	char *start = *rest, *p = start;
	if (!start || !*start)
		return NULL;
	for (;;) {
		char *comma = strchr(p, ','), *equals = comma ? strchr(comma, '=') : NULL;
		char *after = comma ? strchr(comma + 1, ',') : NULL;
		if (!comma) {
			*rest = NULL;
			return start;
		}
		if (equals && (!after || equals < after)) {
			*comma = 0;
			*rest = comma + 1;
			return start;
		}
		p = comma + 1;
	}
}

static int apply_part(struct vgpu_node *n, int device, char *part, char *why, size_t whylen)
{
	for (char *pair; (pair = next_pair(&part));) {
		char *value = strchr(pair, '=');
		if (!value) {
			snprintf(why, whylen, "%s: not key=value", pair);
			return -1;
		}
		*value++ = 0;
		int r = device < 0 ? set_node(n, pair, value, why, whylen) : 1;
		if (r > 0)
			r = spec_set(n, device, pair, value, why, whylen);
		if (r)
			return -1;
	}
	return 0;
}

int spec_apply(struct vgpu_node *n, const char *spec, char *why, size_t whylen)
{
	char *copy = strdup(spec), *rest = copy;
	int r = copy ? 0 : -1;
	for (char *part; r == 0 && (part = strsep(&rest, "/"));) {
		char *colon = strchr(part, ':');
		int device = colon && colon != part ? atoi(part) : -1;
		if (device >= VGPU_MAX_DEVICES) {
			snprintf(why, whylen, "%s: no such device", part);
			r = -1;
		} else {
			r = apply_part(n, device, device >= 0 ? colon + 1 : part, why, whylen);
		}
	}
	free(copy);
	return r;
}

void spec_print_keys(void)
{
	printf("node: devices cuda driver\ndevice:");
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		printf(" %s", keys[i].name);
	printf("\n");
}

void mig_uuid(const struct vgpu_device *d, uint32_t slice, char *into, size_t len)
{
	const char *body = strncmp(d->uuid, "GPU-", 4) == 0 ? d->uuid + 4 : d->uuid;
	int n = (int)strlen(body);
	snprintf(into, len, "MIG-%.*s%x", n > 0 ? n - 1 : 0, body, (slice + 8) & 15);
}
