//go:build ignore

/* vgpu-node: makes a node, changes it, orders faults, shows what happened. */
#define _GNU_SOURCE
#include "node.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "vgpu-node create [--devices N] [--spec KEY=VALUE,...[/DEVICE:KEY=VALUE,...]]\n"
    "vgpu-node set [--device N] KEY=VALUE...\n"
    "vgpu-node fault [--device N] --kind lost|hang=CALL|unsupported=CALL|exit=CALL\n"
    "vgpu-node fault --clear\n"
    "vgpu-node show\n"
    "The node's file is $TRIMTAB_VGPU_NODE, /run/vgpu/node if it is there, else /dev/shm/trimtab-vgpu.\n"
    "CALL is an exported name of libcuda, libnccl or libnvidia-ml; calls of libcudart go by the driver's that they make.\n"
    "A library that lacks a symbol is another build: make without-libcuda.so.1 SYMBOLS=... INTO=...\nKeys of ";

static int fail(const char *what)
{
	fprintf(stderr, "vgpu-node: %s\n", what);
	return 2;
}

static const char *option(int argc, char **argv, const char *name)
{
	for (int i = 2; i + 1 < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return argv[i + 1];
	return NULL;
}

static int create(int argc, char **argv)
{
	char why[256] = "", spec[4096];
	const char *devices = option(argc, argv, "--devices"), *more = option(argc, argv, "--spec");
	int own = more && strncmp(more, "/", 1) != 0 && *more;
	snprintf(spec, sizeof spec, "devices=%s%s%s", devices ? devices : "2", own ? "," : "", more ? more : "");
	if (node_create(node_path(), spec, 1, why, sizeof why))
		return fail(why);
	printf("%s\n", node_path());
	return 0;
}

static int set(struct vgpu_node *n, int argc, char **argv)
{
	char why[256];
	const char *device = option(argc, argv, "--device");
	int r = 0;
	node_lock(n);
	for (int i = 2; i < argc && r == 0; i++) {
		char *value = strchr(argv[i], '=');
		if (!value)
			continue;
		*value++ = 0;
		r = spec_set(n, device ? atoi(device) : -1, argv[i], value, why, sizeof why);
	}
	node_unlock(n);
	return r ? fail(why) : 0;
}

static void clear_faults(struct vgpu_node *n)
{
	for (uint32_t i = 0; i < VGPU_MAX_FAULTS; i++)
		n->fault[i].kind = FAULT_NONE;
	for (uint32_t i = 0; i < VGPU_MAX_DEVICES; i++)
		n->device[i].lost = 0;
	atomic_store(&n->nfaults, 0);
}

static int add_fault(struct vgpu_node *n, int device, enum vgpu_fault_kind kind, const char *call)
{
	for (uint32_t i = 0; i < VGPU_MAX_FAULTS; i++) {
		struct vgpu_fault *f = &n->fault[i];
		if (f->kind)
			continue;
		snprintf(f->call, sizeof f->call, "%s", call);
		f->device = device;
		atomic_thread_fence(memory_order_seq_cst);
		f->kind = kind;
		atomic_fetch_add(&n->nfaults, 1);
		return 0;
	}
	return fail("no room for another fault: clear them first");
}

static int lose(struct vgpu_node *n, int device)
{
	for (int i = 0; i < VGPU_MAX_DEVICES; i++)
		if (device < 0 || i == device)
			n->device[i].lost = 1;
	return 0;
}

/* exported: one of the libraries beside this program has the call itself, not one that it needs. */
static int exported(const char *call)
{
	static const char *const libraries[] = {"libcuda.so.1", "libnvidia-ml.so.1", "libnccl.so.2"};
	char path[4096];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - 32);
	if (len < 0)
		return 0;
	path[len] = 0;
	char *name = strrchr(path, '/') + 1;
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
		strcpy(name, libraries[i]);
		void *lib = dlopen(path, RTLD_NOW), *f = lib ? dlsym(lib, call) : NULL; /* libcuda first: libnccl needs it, by its soname */
		Dl_info of;
		if (f && dladdr(f, &of) && strcmp(of.dli_fname, path) == 0)
			return 1;
	}
	return 0;
}

static int fault(struct vgpu_node *n, int argc, char **argv)
{
	static const char *const kinds[] = {[FAULT_HANG] = "hang=", [FAULT_UNSUPPORTED] = "unsupported=", [FAULT_EXIT] = "exit="};
	const char *kind = option(argc, argv, "--kind"), *device = option(argc, argv, "--device");
	int r = -1, dev = device ? atoi(device) : -1;
	const char *call = kind ? strchr(kind, '=') : NULL;
	if (call && (!exported(call + 1) || strncmp(call, "=vgpu", 5) == 0))
		return fail("no such call: a fault goes by an exported name of libcuda, libnccl or libnvidia-ml");
	node_lock(n);
	if (argc == 3 && strcmp(argv[2], "--clear") == 0) {
		clear_faults(n);
		r = 0;
	} else if (kind && strcmp(kind, "lost") == 0) {
		r = lose(n, dev);
	}
	for (int i = FAULT_HANG; kind && i <= FAULT_EXIT; i++)
		if (strncmp(kind, kinds[i], strlen(kinds[i])) == 0)
			r = add_fault(n, dev, (enum vgpu_fault_kind)i, kind + strlen(kinds[i]));
	node_unlock(n);
	return r < 0 ? fail(usage) : r;
}

static void print_five(const char *name, const uint64_t *v)
{
	printf(",\"%s\":[%lu,%lu,%lu,%lu,%lu]", name, v[0], v[1], v[2], v[3], v[4]);
}

static void show_proc(struct vgpu_node *n, uint32_t i, const char *sep)
{
	struct vgpu_proc *p = &n->proc[i];
	struct vgpu_counts *c = &p->counts;
	pid_t pid = node_pid(n, i);
	printf("%s{\"pid\":%d,\"nsPid\":%d,\"comm\":\"", sep, pid > 0 ? pid : 0, p->ns_pid);
	for (const char *s = p->comm; *s; s++)
		if (*s >= ' ' && *s < 127 && *s != '"' && *s != '\\')
			putchar(*s);
	printf("\",\"kernels\":%lu,\"graphs\":%lu,\"graphKernels\":%lu,\"collectives\":%lu,\"syncs\":%lu,\"syncNs\":%lu", c->kernels,
	       c->graphs, c->graph_kernels, c->collectives, c->syncs, c->sync_ns);
	print_five("copies", c->copies);
	print_five("copyBytes", c->copy_bytes);
	printf(",\"busyNs\":[");
	for (uint32_t d = 0; d < n->ndevices; d++)
		printf("%s%lu", d ? "," : "", p->on[d].busy_ns);
	printf("],\"mem\":[");
	for (uint32_t d = 0; d < n->ndevices; d++)
		printf("%s%lu", d ? "," : "", p->on[d].mem);
	printf("]}");
}

static int show(struct vgpu_node *n)
{
	int held = node_look(n);
	printf("{\"stuck\":%s,\"devices\":[", held ? "false" : "true");
	for (uint32_t i = 0; i < n->ndevices; i++) {
		struct vgpu_device *d = &n->device[i];
		uint64_t mem = 0;
		for (uint32_t p = 0; p < VGPU_MAX_PROCS; p++)
			mem += n->proc[p].on[i].mem;
		printf("%s{\"busyNs\":%lu,\"kernelNs\":%lu,\"memUsed\":%lu,\"bytesIn\":%lu,\"bytesOut\":%lu,\"lost\":%s}", i ? "," : "",
		       d->busy_ns, d->kernel_ns, mem, d->bytes_in, d->bytes_out, d->lost ? "true" : "false");
	}
	printf("],\"processes\":[");
	const char *sep = "";
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++)
		if (n->proc[i].epoch & 1) {
			show_proc(n, i, sep);
			sep = ",";
		}
	printf("]}\n");
	node_looked(n, held);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	if (strcmp(verb, "help") == 0) {
		printf("%s", usage);
		spec_print_keys();
		return 0;
	}
	if (strcmp(verb, "create") == 0)
		return create(argc, argv);
	int known = strcmp(verb, "set") == 0 ? 1 : strcmp(verb, "fault") == 0 ? 2 : strcmp(verb, "show") == 0 ? 3 : 0;
	if (!known)
		return fail(usage);
	struct vgpu_node *n = node_open();
	if (!n)
		return fail(strerror(errno));
	return known == 1 ? set(n, argc, argv) : known == 2 ? fault(n, argc, argv) : show(n);
}
