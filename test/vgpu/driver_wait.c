//go:build ignore

/* Waiting for the device, as the real library does: spinning or yielding on the CPU, or
 * asleep in poll() on a character device. */
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_LOOK_NS = 2000, SPIN_BLIND_NS = 20000, LONGEST_SLEEP_NS = 50000000, SHORTEST_SLEEP_NS = 10000 };

int reached(const struct place *at)
{
	struct vgpu_stream *s = &drv.node->stream[at->stream];
	return s->epoch != at->epoch || s->done > at->seq;
}

/* ---- sleepers: woken by the end of a collective in this process ---- */

struct sleeper {
	struct sleeper *next;
	int fd;
};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct sleeper *sleepers;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int device_fd = -1;
static __thread struct sleeper me = {.fd = -1};

static void thread_ends(void *arg) { close(((struct sleeper *)arg)->fd); }

static void prepare(void)
{
	pthread_key_create(&key, thread_ends);
	/* Nothing urgent ever comes from there, so poll() for it sleeps; to those who look at
	 * the process it waits for a character device, as with /dev/nvidiactl. */
	device_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void wake_all(void)
{
	uint64_t one = 1;
	pthread_mutex_lock(&guard);
	for (struct sleeper *s = sleepers; s; s = s->next)
		if (write(s->fd, &one, sizeof one) < 0)
			break; /* full: it is awake */
	pthread_mutex_unlock(&guard);
}

static void enlist(void)
{
	pthread_once(&once, prepare);
	if (me.fd < 0) {
		me.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		pthread_setspecific(key, &me);
	}
	pthread_mutex_lock(&guard);
	me.next = sleepers;
	sleepers = &me;
	pthread_mutex_unlock(&guard);
}

static void delist(void)
{
	pthread_mutex_lock(&guard);
	for (struct sleeper **s = &sleepers; *s; s = &(*s)->next)
		if (*s == &me) {
			*s = me.next;
			break;
		}
	pthread_mutex_unlock(&guard);
}

static void sleep_ns(uint64_t ns)
{
	struct pollfd p[2] = {{.fd = device_fd, .events = POLLPRI}, {.fd = me.fd, .events = POLLIN}};
	struct timespec t = {.tv_sec = 0, .tv_nsec = (long)ns};
	uint64_t n;
	if (ppoll(p, 2, &t, NULL) > 0 && (p[1].revents & POLLIN) && read(me.fd, &n, sizeof n) < 0)
		return;
}

/* ---- waiting ---- */

/* look lets the devices catch up and tells how long it takes at the least. */
static uint64_t look(const struct place *at)
{
	struct vgpu_node *n = drv.node;
	node_lock(n);
	uint64_t ns = reached(at) ? 0 : sim_least_ns(n, at->stream, at->seq);
	node_unlock(n);
	return ns;
}

static CUresult wait_asleep(struct CUctx_st *ctx, const struct place *at)
{
	CUresult r = CUDA_SUCCESS;
	enlist();
	while (!reached(at)) {
		uint64_t ns = look(at);
		if (reached(at))
			break;
		if (device_of(ctx)->lost) {
			r = CUDA_ERROR_LAUNCH_FAILED;
			break;
		}
		/* No bound: behind a collective, whose end wakes this thread, or behind another process. */
		ns = ns == 0 ? 2000000 : ns < SHORTEST_SLEEP_NS ? SHORTEST_SLEEP_NS : ns;
		sleep_ns(ns < LONGEST_SLEEP_NS ? ns : LONGEST_SLEEP_NS);
	}
	delist();
	return r;
}

static void busy_until(uint64_t end, int yield, const struct place *at)
{
	while (node_clock_ns() < end && !reached(at)) {
		if (yield)
			sched_yield();
		else
			for (int i = 0; i < 20; i++)
				__asm__ volatile("" ::: "memory");
	}
}

static CUresult wait_busy(struct CUctx_st *ctx, const struct place *at, int yield)
{
	while (!reached(at)) {
		uint64_t ns = look(at);
		if (reached(at))
			break;
		if (device_of(ctx)->lost)
			return CUDA_ERROR_LAUNCH_FAILED;
		/* No bound: what it waits for ends by a call in this process, which is seen at once. */
		ns = ns == 0 ? SPIN_BLIND_NS : ns < SPIN_LOOK_NS ? SPIN_LOOK_NS : ns < LONGEST_SLEEP_NS ? ns : LONGEST_SLEEP_NS;
		busy_until(node_clock_ns() + ns, yield, at);
	}
	return CUDA_SUCCESS;
}

/* wait_for: blocking asks to sleep whatever the context's flags say. Without flags the
 * context spins, as a process with no more contexts than CPUs does. */
CUresult wait_for(struct CUctx_st *ctx, const struct place *at, int blocking)
{
	unsigned how = ctx->flags & CU_CTX_SCHED_MASK;
	if (!at->valid || reached(at))
		return CUDA_SUCCESS;
	if (blocking || how == CU_CTX_SCHED_BLOCKING_SYNC)
		return wait_asleep(ctx, at);
	return wait_busy(ctx, at, how == CU_CTX_SCHED_YIELD);
}

static void count_sync(uint64_t before)
{
	struct vgpu_counts *c = counts();
	__atomic_fetch_add(&c->syncs, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&c->sync_ns, node_clock_ns() - before, __ATOMIC_RELAXED);
}

CUresult wait_counted(struct CUctx_st *ctx, const struct place *at, int blocking)
{
	uint64_t before = node_clock_ns();
	CUresult r = wait_for(ctx, at, blocking);
	late_copies();
	count_sync(before);
	return r ? r : device_of(ctx)->lost ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

struct place last_place(struct CUstream_st *s)
{
	struct vgpu_stream *v = &drv.node->stream[s->index];
	uint64_t tail = __atomic_load_n(&v->tail, __ATOMIC_ACQUIRE);
	return (struct place){s->index, s->epoch, tail - 1, tail > 0 && v->epoch == s->epoch};
}

static CUresult sync_stream(CUstream handle, int by_default)
{
	struct CUstream_st *s;
	CUresult r = stream_of(handle, by_default, &s);
	if (r)
		return r;
	if (s->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct place at = last_place(s);
	return wait_counted(s->ctx, &at, 0);
}

API cuStreamSynchronize(CUstream s)
{
	ENTER();
	return sync_stream(s, DEFAULT_LEGACY);
}

API cuStreamSynchronize_ptsz(CUstream s)
{
	ENTER();
	return sync_stream(s, DEFAULT_PER_THREAD);
}

API cuEventSynchronize(CUevent e)
{
	ENTER();
	return e ? wait_counted(e->ctx, &e->at, e->flags & CU_EVENT_BLOCKING_SYNC) : CUDA_ERROR_INVALID_HANDLE;
}

/* context_sync waits for all of the process's work on the current device. */
CUresult context_sync(int count)
{
	struct vgpu_node *n = drv.node;
	struct CUctx_st *ctx;
	struct place all[VGPU_MAX_STREAMS];
	uint32_t k = 0;
	CUresult r = current(&ctx);
	if (r)
		return r;
	node_lock(n);
	for (uint32_t i = 0; i < n->nactive; i++) {
		struct vgpu_stream *s = &n->stream[n->active[i]];
		if (s->proc == drv.proc && s->device == (uint32_t)ctx->device)
			all[k++] = (struct place){n->active[i], s->epoch, s->tail - 1, 1};
	}
	node_unlock(n);
	uint64_t before = node_clock_ns();
	for (uint32_t i = 0; i < k && r == CUDA_SUCCESS; i++)
		r = wait_for(ctx, &all[i], 0);
	late_copies();
	if (count)
		count_sync(before);
	return r ? r : device_of(ctx)->lost ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

API cuCtxSynchronize(void)
{
	ENTER();
	return context_sync(1);
}
