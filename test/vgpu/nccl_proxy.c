//go:build ignore

/* The thread of each communicator that carries out its jobs, one after another,
 * in the order of the calls.
 *
 * When a peer is gone it does as NCCL does: the error shows in
 * ncclCommGetAsyncError, and the kernel stays on the device, spinning, until the
 * program calls ncclCommAbort (PyTorch's watchdog does) or ends.
 */
#define _GNU_SOURCE
#include "nccl_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { look_ms = 100 }; /* how often a wait for the stream looks whether it is aborted */

void vgn_job_free(struct vgn_job *j)
{
	free(j->p2p);
	free(j->open);
	free(j);
}

/* started waits until each stream has reached the job's kernel. */
static int started(struct ncclComm *c, struct vgn_job *j)
{
	for (int i = 0; i < j->nopen; i++) {
		int r = 0;
		while (r == 0) {
			if (atomic_load(&c->aborted))
				return 0;
			r = vgn_open_wait(j->open[i], look_ms);
		}
		if (r < 0)
			return 0;
	}
	return 1;
}

static void wait_for_abort(struct ncclComm *c)
{
	pthread_mutex_lock(&c->lock);
	while (!c->closing && !atomic_load(&c->aborted))
		pthread_cond_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

static void carry_out(struct ncclComm *c, struct vgn_job *j)
{
	ncclResult_t r = atomic_load(&c->async_error);
	if (started(c, j) && r == ncclSuccess)
		r = vgn_run(c, j);
	if (j->nopen)
		vgn_open_moved(j->open[0], c->sent, c->got);
	c->sent = c->got = 0;
	if (r != ncclSuccess && !atomic_load(&c->aborted)) {
		atomic_store(&c->async_error, r);
		wait_for_abort(c);
	}
	for (int i = 0; i < j->nopen; i++)
		vgn_open_finish(j->open[i]);
	vgn_job_free(j);
}

static void *proxy_main(void *arg)
{
	struct ncclComm *c = arg;
	pthread_mutex_lock(&c->lock);
	while (c->head || !c->closing) {
		struct vgn_job *j = c->head;
		if (!j) {
			pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		c->head = j->next;
		if (!c->head)
			c->tail = &c->head;
		pthread_mutex_unlock(&c->lock);
		carry_out(c, j);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

ncclResult_t vgn_proxy_start(struct ncclComm *c)
{
	char name[16];
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	c->tail = &c->head;
	if (pthread_create(&c->proxy, NULL, proxy_main, c))
		return ncclSystemError;
	snprintf(name, sizeof name, "NCCL Progress%d", c->device % 10); /* NCCL's own name for it */
	pthread_setname_np(c->proxy, name);
	return ncclSuccess;
}

void vgn_proxy_submit(struct vgn_job *j)
{
	struct ncclComm *c = j->comm;
	j->next = NULL;
	pthread_mutex_lock(&c->lock);
	*c->tail = j;
	c->tail = &j->next;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

/* After it no job is left: all done, or ended because the communicator was aborted or broken. */
void vgn_proxy_stop(struct ncclComm *c)
{
	pthread_mutex_lock(&c->lock);
	c->closing = 1;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->proxy, NULL);
}
