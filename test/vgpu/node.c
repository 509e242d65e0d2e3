//go:build ignore

/* The node's file, its lock, and the processes that hold slots. */
#define _GNU_SOURCE
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 100000000 };

static pthread_mutex_t here = PTHREAD_MUTEX_INITIALIZER; /* guards the three below, for this process */
static struct vgpu_node *mapped;
static int node_fd = -1;
static int my_slot = -1; /* -2: a fork of a process that had one */

uint64_t node_clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

const char *node_path(void)
{
	const char *path = getenv("TRIMTAB_VGPU_NODE");
	if (path && *path)
		return path;
	return access("/run/vgpu/node", F_OK) == 0 ? "/run/vgpu/node" : "/dev/shm/trimtab-vgpu";
}

static void lock_init(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
}

static void node_init(struct vgpu_node *n)
{
	lock_init(&n->lock);
	n->layout = VGPU_LAYOUT;
	n->size = sizeof *n;
	n->now_ns = node_clock_ns();
	n->next_duty_ns = n->now_ns + VGPU_DUTY_NS;
	n->next_proc_ns = n->now_ns + VGPU_PROC_NS;
	n->random = n->now_ns | 1;
	spec_defaults(n, 2);
}

static struct vgpu_node *map(int fd)
{
	void *p = mmap(NULL, sizeof(struct vgpu_node), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* put gives the file its place; without replace, whoever came first has it. */
static int put(const char *part, const char *path, int replace)
{
	if (replace)
		return rename(part, path);
	int r = link(part, path);
	return r && errno == EEXIST ? unlink(part) : r ? r : unlink(part);
}

/* node_create makes the file whole beside its place and then moves it there, so that
 * nobody ever maps half a node; processes on an older node stay on that one. */
int node_create(const char *path, const char *spec, int replace, char *why, size_t whylen)
{
	char part[4096];
	snprintf(part, sizeof part, "%s.%d.part", path, (int)getpid());
	int fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	struct vgpu_node *n = NULL;
	if (fd < 0 || fchmod(fd, 0666) || ftruncate(fd, sizeof *n) || !(n = map(fd))) {
		snprintf(why, whylen, "%s: %s", part, strerror(errno));
		if (fd >= 0)
			close(fd);
		unlink(part);
		return -1;
	}
	node_init(n);
	int r = spec_apply(n, spec ? spec : "", why, whylen);
	atomic_store(&n->magic, VGPU_MAGIC);
	munmap(n, sizeof *n);
	close(fd);
	if (r == 0 && put(part, path, replace)) {
		snprintf(why, whylen, "%s: %s", path, strerror(errno));
		r = -1;
	}
	if (r)
		unlink(part);
	return r;
}

static int open_file(void)
{
	char why[256];
	const char *path = node_path();
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (node_create(path, getenv("TRIMTAB_VGPU_SPEC"), 0, why, sizeof why)) {
		fprintf(stderr, "virtual GPU: %s\n", why);
		errno = ENOENT;
		return -1;
	}
	return open(path, O_RDWR | O_CLOEXEC);
}

static void forked(void)
{
	if (my_slot >= 0)
		my_slot = -2;
	pthread_mutex_init(&here, NULL);
}

struct vgpu_node *node_open(void)
{
	struct stat st;
	pthread_mutex_lock(&here);
	if (!mapped) {
		int fd = open_file();
		struct vgpu_node *n = fd < 0 || fstat(fd, &st) || st.st_size != sizeof *n ? NULL : map(fd);
		if (n && (atomic_load(&n->magic) != VGPU_MAGIC || n->layout != VGPU_LAYOUT)) {
			munmap(n, sizeof *n);
			n = NULL;
		}
		if (n) {
			node_fd = fd; /* never closed: that would give the record locks away */
			mapped = n;
			pthread_atfork(NULL, NULL, forked);
		} else if (fd >= 0) {
			fprintf(stderr, "virtual GPU: %s is no node of this version: make another with vgpu-node create\n", node_path());
			close(fd);
			errno = EINVAL;
		}
	}
	pthread_mutex_unlock(&here);
	return mapped;
}

/* A process that died while it held the lock may have left a stream half written: its
 * own ones are dropped with it, and the list of active streams is made anew. */
static void recover(struct vgpu_node *n)
{
	n->nactive = 0;
	for (uint32_t i = 0; i < VGPU_MAX_STREAMS; i++) {
		struct vgpu_stream *s = &n->stream[i];
		s->active = 0;
		if (!(s->epoch & 1) || s->tail == s->done)
			continue;
		n->active[n->nactive++] = i;
		s->active = n->nactive;
	}
	node_reap(n);
}

static void locked(struct vgpu_node *n, int r)
{
	if (r == EOWNERDEAD) {
		pthread_mutex_consistent(&n->lock);
		recover(n);
	}
	uint64_t now = node_clock_ns();
	if (now >= n->next_reap_ns) {
		n->next_reap_ns = now + 20000000;
		node_reap(n);
	}
	node_advance(n, now);
}

void node_lock(struct vgpu_node *n) { locked(n, pthread_mutex_lock(&n->lock)); }

int node_look(struct vgpu_node *n)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += LOOK_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	int r = pthread_mutex_clocklock(&n->lock, CLOCK_MONOTONIC, &until);
	if (r && r != EOWNERDEAD)
		return 0;
	n->next_reap_ns = 0;
	locked(n, r);
	return 1;
}

void node_looked(struct vgpu_node *n, int held)
{
	if (held)
		pthread_mutex_unlock(&n->lock);
}

void node_unlock(struct vgpu_node *n) { pthread_mutex_unlock(&n->lock); }

static struct flock slot_lock(uint32_t proc)
{
	return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = VGPU_LOCK_BASE + proc, .l_len = 1};
}

/* Who this process is, in words that no other process uses at the same time. */
static void identity(uint64_t *pid_ns, uint64_t *start)
{
	static _Atomic uint64_t known_ns, known_start, known_pid; /* a fork's is another */
	char text[1024], *p;
	struct stat st;
	if (known_pid != (uint64_t)getpid()) {
		FILE *f = fopen("/proc/self/stat", "re");
		size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
		if (f)
			fclose(f);
		text[n] = 0;
		p = strrchr(text, ')');
		for (int field = 2; p && field < 22; field++)
			p = strchr(p + 1, ' ');
		known_start = p ? strtoull(p + 1, NULL, 10) : 0;
		known_ns = stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
		known_pid = (uint64_t)getpid();
	}
	*pid_ns = known_ns;
	*start = known_start;
}

/* mine: F_GETLK does not tell of the caller's own locks, and another of the virtual
 * libraries may have taken this one. */
static int mine(struct vgpu_node *n, uint32_t proc)
{
	struct vgpu_proc *p = &n->proc[proc];
	uint64_t pid_ns, start;
	if (p->ns_pid != getpid())
		return 0;
	identity(&pid_ns, &start);
	return p->pid_ns == pid_ns && p->start == start;
}

pid_t node_pid(struct vgpu_node *n, uint32_t proc)
{
	struct flock l = slot_lock(proc);
	if (mine(n, proc))
		return getpid();
	if (fcntl(node_fd, F_GETLK, &l))
		return 0;
	return l.l_type == F_UNLCK ? -1 : l.l_pid > 0 ? l.l_pid : 0;
}

/* node_reap gives back what dead processes held. */
void node_reap(struct vgpu_node *n)
{
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++)
		if ((n->proc[i].epoch & 1) && node_pid(n, i) < 0)
			sim_proc_end(n, i);
}

static int take_slot(struct vgpu_node *n)
{
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		struct vgpu_proc *p = &n->proc[i];
		struct flock l = slot_lock(i);
		if ((p->epoch & 1) && mine(n, i))
			sim_proc_end(n, i); /* of the program that this process was before an exec */
		if ((p->epoch & 1) || fcntl(node_fd, F_SETLK, &l))
			continue;
		uint32_t epoch = p->epoch;
		memset(p, 0, sizeof *p);
		p->ns_pid = getpid();
		identity(&p->pid_ns, &p->start);
		const char *slice = getenv("TRIMTAB_VGPU_MIG_SLICE");
		p->mig_slice = slice ? (uint32_t)atoi(slice) : 0;
		p->graphics = getenv("TRIMTAB_VGPU_GRAPHICS") != NULL;
		FILE *f = fopen("/proc/self/comm", "re");
		if (f && fgets(p->comm, sizeof p->comm, f))
			p->comm[strcspn(p->comm, "\n")] = 0;
		if (f)
			fclose(f);
		atomic_store(&p->epoch, epoch + 1);
		return (int)i;
	}
	return -1;
}

int node_attach(struct vgpu_node *n)
{
	pthread_mutex_lock(&here);
	if (my_slot == -1) {
		node_lock(n);
		my_slot = take_slot(n);
		node_unlock(n);
	}
	int slot = my_slot;
	pthread_mutex_unlock(&here);
	return slot;
}
