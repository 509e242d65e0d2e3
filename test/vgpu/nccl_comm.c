//go:build ignore

/* Communicators of the virtual libnccl, and what it says of itself. */
#define _GNU_SOURCE
#include "nccl_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct init { /* one communicator being made */
	struct init *next;
	ncclComm_t *out;
	int nranks, rank, device;
	ncclUniqueId id;
	ncclResult_t result;
	pthread_t thread;
};

static __thread struct init *inits; /* of the thread's open group */

VGN_API ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

VGN_API const char *ncclGetErrorString(ncclResult_t r)
{
	static const char *const text[ncclNumResults] = {
	    "no error",
	    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
	    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
	    "internal error - please report this issue to the NCCL developers",
	    "invalid argument (run with NCCL_DEBUG=WARN for details)",
	    "invalid usage (run with NCCL_DEBUG=WARN for details)",
	    "remote process exited or there was a network error",
	    "NCCL operation in progress",
	};
	return (unsigned)r < ncclNumResults ? text[r] : "unknown result code";
}

VGN_API const char *ncclGetLastError(ncclComm_t c)
{
	return ncclGetErrorString(c ? (ncclResult_t)atomic_load(&c->async_error) : ncclSuccess);
}

VGN_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	return id ? vgn_new_id(id) : ncclInvalidArgument;
}

static void comm_free(ncclComm_t c)
{
	for (int i = 0; c->fd && i < c->nranks; i++)
		if (c->fd[i] >= 0)
			close(c->fd[i]);
	if (c->wake >= 0)
		close(c->wake);
	free(c->fd);
	free(c);
}

static ncclResult_t make(struct init *in)
{
	const char *proxy = getenv("VGPU_NCCL_PROXY"); /* "spin": the thread never sleeps, as NCCL's own with work in hand */
	ncclComm_t c = calloc(1, sizeof *c);
	if (!c)
		return ncclSystemError;
	c->rank = in->rank;
	c->nranks = in->nranks;
	c->device = in->device;
	c->spin = proxy && strcmp(proxy, "spin") == 0;
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->fd = malloc((size_t)c->nranks * sizeof *c->fd);
	ncclResult_t r = c->fd && c->wake >= 0 ? ncclSuccess : ncclSystemError;
	for (int i = 0; c->fd && i < c->nranks; i++)
		c->fd[i] = -1;
	if (r == ncclSuccess)
		r = vgn_connect_ranks(c, &in->id);
	if (r == ncclSuccess)
		r = vgn_proxy_start(c);
	if (r != ncclSuccess) {
		comm_free(c);
		return r;
	}
	*in->out = c;
	return ncclSuccess;
}

static void *make_main(void *arg)
{
	struct init *in = arg;
	in->result = vgn_set_device(in->device);
	if (in->result == ncclSuccess)
		in->result = make(in);
	return NULL;
}

/* The group's communicators are made side by side: each waits for the others. */
ncclResult_t vgn_make_pending(void)
{
	struct init *list = inits;
	inits = NULL;
	ncclResult_t result = ncclSuccess;
	for (struct init *i = list; i; i = i->next)
		if (pthread_create(&i->thread, NULL, make_main, i)) {
			i->result = ncclSystemError;
			i->thread = 0;
		}
	while (list) {
		struct init *i = list;
		list = i->next;
		if (i->thread)
			pthread_join(i->thread, NULL);
		if (result == ncclSuccess)
			result = i->result;
		free(i);
	}
	return result;
}

VGN_API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	struct init one = {.out = comm, .nranks = nranks, .rank = rank, .id = id};
	if (!comm || nranks < 1 || nranks > VGN_MAX_RANKS || rank < 0 || rank >= nranks)
		return ncclInvalidArgument;
	*comm = NULL;
	ncclResult_t r = vgn_device(&one.device);
	if (r == ncclSuccess && vgn_fault(__func__))
		r = ncclSystemError;
	if (r != ncclSuccess || !vgn_in_group())
		return r != ncclSuccess ? r : make(&one);
	struct init *later = malloc(sizeof *later);
	if (!later)
		return ncclSystemError;
	*later = one;
	later->next = inits;
	inits = later;
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, void *config)
{
	(void)config; /* blocking communicators only */
	return ncclCommInitRank(comm, nranks, id, rank);
}

VGN_API ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
	ncclUniqueId id;
	int before;
	if (!comms || n < 1)
		return ncclInvalidArgument;
	ncclResult_t r = vgn_device(&before);
	if (r == ncclSuccess)
		r = ncclGetUniqueId(&id);
	if (r != ncclSuccess)
		return r;
	ncclGroupStart();
	for (int i = 0; i < n && r == ncclSuccess; i++) {
		r = vgn_set_device(devices ? devices[i] : i);
		if (r == ncclSuccess)
			r = ncclCommInitRank(&comms[i], n, id, i);
	}
	ncclResult_t end = ncclGroupEnd();
	vgn_set_device(before);
	return r != ncclSuccess ? r : end;
}

VGN_API ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	return c ? ncclSuccess : ncclInvalidArgument; /* ncclCommDestroy waits for what is under way */
}

VGN_API ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	if (!c)
		return ncclSuccess;
	if (vgn_fault(__func__))
		return ncclSystemError;
	vgn_proxy_stop(c);
	comm_free(c);
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommAbort(ncclComm_t c)
{
	uint64_t one = 1;
	if (!c)
		return ncclSuccess;
	atomic_store(&c->aborted, 1);
	ssize_t n = write(c->wake, &one, sizeof one);
	(void)n; /* an eventfd that is set already says the same */
	return ncclCommDestroy(c);
}

VGN_API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
	if (!c || !error)
		return ncclInvalidArgument;
	*error = (ncclResult_t)atomic_load(&c->async_error);
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommCount(ncclComm_t c, int *count)
{
	if (!c || !count)
		return ncclInvalidArgument;
	*count = c->nranks;
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommUserRank(ncclComm_t c, int *rank)
{
	if (!c || !rank)
		return ncclInvalidArgument;
	*rank = c->rank;
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommCuDevice(ncclComm_t c, int *device)
{
	if (!c || !device)
		return ncclInvalidArgument;
	*device = c->device;
	return ncclSuccess;
}
