//go:build ignore

/* How the ranks of a communicator find each other.
 *
 * The unique ID holds the address of a listener in the process that made it. A
 * thread there waits until every rank has said where it listens, and tells all
 * of them everything. Then each pair of ranks has one TCP connection: the
 * higher rank connects to the lower. With NCCL_COMM_ID=HOST:PORT in every
 * rank's environment, as in NCCL, the ID need not travel: rank 0 listens there.
 */
#define _GNU_SOURCE
#include "nccl_int.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
	connect_timeout_ms = 60 * 1000, /* for a peer that starts later */
	hello_timeout_ms = 10 * 1000,   /* for one that connected and says nothing */
	collect_timeout_ms = 600 * 1000 /* for the last rank: PyTorch's default is 10 minutes */
};

#define MAGIC 0x766770756e63636cULL /* "vgpunccl" */

struct id { /* what a unique ID holds */
	uint64_t magic, nonce;
	struct sockaddr_in root;
};
_Static_assert(sizeof(struct id) <= NCCL_UNIQUE_ID_BYTES, "the ID must fit");

struct hello {
	uint64_t magic, nonce;
	uint32_t rank, nranks;
	struct sockaddr_in listens;
};

struct root { /* the collecting thread's */
	int listener;
	uint64_t nonce;
};

static ncclResult_t put(int fd, const void *buf, size_t n)
{
	struct vgn_xfer x = {.fd = fd, .out = 1, .buf = (char *)buf, .bytes = n};
	return vgn_move(&x, 1, -1, hello_timeout_ms, 0);
}

static ncclResult_t get(int fd, void *buf, size_t n, int timeout_ms)
{
	struct vgn_xfer x = {.fd = fd, .buf = buf, .bytes = n};
	return vgn_move(&x, 1, -1, timeout_ms, 0);
}

/* next_hello accepts until somebody with our nonce says hello; -1 at the deadline. */
static int next_hello(int listener, uint64_t nonce, struct hello *h, int timeout_ms)
{
	for (;;) {
		int fd = vgn_accept(listener, timeout_ms);
		if (fd < 0)
			return -1;
		if (get(fd, h, sizeof *h, hello_timeout_ms) == ncclSuccess && h->magic == MAGIC && h->nonce == nonce &&
		    h->nranks <= VGN_MAX_RANKS && h->rank < h->nranks)
			return fd;
		close(fd);
	}
}

/* collect returns how many ranks came; fds and table are by rank. */
static uint32_t collect(struct root *r, int *fds, struct sockaddr_in *table)
{
	uint32_t have = 0, want = 1;
	while (have < want) {
		struct hello h;
		int fd = next_hello(r->listener, r->nonce, &h, collect_timeout_ms);
		if (fd < 0)
			return 0;
		want = h.nranks;
		if (fds[h.rank] < 0)
			have++;
		else
			close(fds[h.rank]); /* it came again: the later one counts */
		fds[h.rank] = fd;
		table[h.rank] = h.listens;
	}
	return have;
}

static void *root_main(void *arg)
{
	struct root *r = arg;
	int fds[VGN_MAX_RANKS];
	struct sockaddr_in *table = calloc(VGN_MAX_RANKS, sizeof *table);
	memset(fds, -1, sizeof fds);
	uint32_t n = table ? collect(r, fds, table) : 0;
	for (uint32_t i = 0; i < VGN_MAX_RANKS; i++) {
		if (fds[i] < 0)
			continue;
		if (n > 0)
			put(fds[i], table, n * sizeof *table); /* a rank that left meanwhile fails by itself */
		close(fds[i]);
	}
	close(r->listener);
	free(table);
	free(r);
	return NULL;
}

static ncclResult_t start_root(const struct sockaddr_in *want, uint64_t nonce, struct sockaddr_in *got)
{
	pthread_t t;
	struct root *r = calloc(1, sizeof *r);
	if (!r)
		return ncclSystemError;
	r->nonce = nonce;
	r->listener = vgn_listen(want, got);
	if (r->listener < 0 || pthread_create(&t, NULL, root_main, r)) {
		if (r->listener >= 0)
			close(r->listener);
		free(r);
		return ncclSystemError;
	}
	pthread_setname_np(t, "NCCL Root");
	pthread_detach(t);
	return ncclSuccess;
}

/* A container that starts later has no name before: names are looked up until the deadline. */
static int resolve(const char *host, const char *port, struct sockaddr_in *to)
{
	const struct timespec pause = {.tv_nsec = 200 * 1000000};
	for (int left = connect_timeout_ms; left > 0; left -= 200) {
		struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
		if (getaddrinfo(host, port, &hints, &found) == 0 && found) {
			memcpy(to, found->ai_addr, sizeof *to);
			freeaddrinfo(found);
			return 1;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* from_environment reads NCCL_COMM_ID; 0: not set, 1: set, -1: cannot be read. */
static int from_environment(struct sockaddr_in *to)
{
	const char *text = getenv("NCCL_COMM_ID");
	char host[256];
	if (!text || !*text)
		return 0;
	const char *colon = strrchr(text, ':');
	if (!colon || (size_t)(colon - text) >= sizeof host)
		return -1;
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = 0;
	return resolve(host, colon + 1, to) ? 1 : -1;
}

ncclResult_t vgn_new_id(ncclUniqueId *out)
{
	struct id id = {.magic = MAGIC};
	struct sockaddr_in want;
	memset(out, 0, sizeof *out);
	int env = from_environment(&id.root);
	if (env < 0)
		return ncclInvalidArgument;
	if (env == 0) {
		if (getrandom(&id.nonce, sizeof id.nonce, 0) != sizeof id.nonce || vgn_local_address(&want))
			return ncclSystemError;
		ncclResult_t r = start_root(&want, id.nonce, &id.root);
		if (r != ncclSuccess)
			return r;
	}
	memcpy(out, &id, sizeof id);
	return ncclSuccess;
}

static ncclResult_t ask_root(struct ncclComm *c, const struct id *id, const struct sockaddr_in *mine,
                             struct sockaddr_in *table)
{
	struct hello h = {MAGIC, id->nonce, (uint32_t)c->rank, (uint32_t)c->nranks, *mine};
	int fd = vgn_connect(&id->root, connect_timeout_ms);
	if (fd < 0)
		return ncclSystemError;
	ncclResult_t r = put(fd, &h, sizeof h);
	if (r == ncclSuccess)
		r = get(fd, table, (size_t)c->nranks * sizeof *table, collect_timeout_ms);
	close(fd);
	return r;
}

static ncclResult_t mesh(struct ncclComm *c, int listener, const struct sockaddr_in *table)
{
	struct hello h = {.magic = MAGIC, .nonce = c->nonce, .rank = (uint32_t)c->rank, .nranks = (uint32_t)c->nranks};
	for (int i = 0; i < c->rank; i++) {
		c->fd[i] = vgn_connect(&table[i], connect_timeout_ms);
		if (c->fd[i] < 0)
			return ncclRemoteError;
		ncclResult_t r = put(c->fd[i], &h, sizeof h);
		if (r != ncclSuccess)
			return r;
	}
	for (int left = c->nranks - 1 - c->rank; left > 0; left--) {
		int fd = next_hello(listener, c->nonce, &h, connect_timeout_ms);
		if (fd < 0)
			return ncclRemoteError;
		if ((int)h.rank <= c->rank || (int)h.nranks != c->nranks || c->fd[h.rank] >= 0) {
			close(fd);
			return ncclInvalidUsage;
		}
		c->fd[h.rank] = fd;
	}
	return ncclSuccess;
}

ncclResult_t vgn_connect_ranks(struct ncclComm *c, const ncclUniqueId *unique)
{
	struct id id;
	struct sockaddr_in want, mine;
	memcpy(&id, unique, sizeof id);
	if (id.magic != MAGIC)
		return ncclInvalidArgument;
	c->nonce = id.nonce;
	const char *fixed = getenv("NCCL_COMM_ID");
	if (fixed && *fixed && c->rank == 0) {
		struct sockaddr_in got;
		ncclResult_t r = start_root(&id.root, id.nonce, &got);
		if (r != ncclSuccess)
			return r;
	}
	if (vgn_local_address(&want))
		return ncclSystemError;
	int listener = vgn_listen(&want, &mine);
	struct sockaddr_in *table = calloc((size_t)c->nranks, sizeof *table);
	ncclResult_t r = ncclSystemError;
	if (listener >= 0 && table)
		r = ask_root(c, &id, &mine, table);
	if (r == ncclSuccess)
		r = mesh(c, listener, table);
	if (listener >= 0)
		close(listener);
	free(table);
	return r;
}
