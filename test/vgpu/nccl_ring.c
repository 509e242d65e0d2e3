//go:build ignore

/* The collectives of the virtual libnccl: rings, as NCCL uses over the network,
 * so each link carries a ring's volume. With n ranks and S bytes in the larger
 * buffer, each rank sends
 *
 *     all-reduce 2(n-1)/n S     reduce-scatter, all-gather (n-1)/n S
 *     broadcast, reduce S (the last rank of the chain nothing)
 *
 * Before the bytes an arrival round (dissemination, 32 bytes to log2 n peers)
 * makes every collective end only after the last rank came, also broadcast and
 * reduce, and finds ranks that disagree about what they do.
 */
#include "nccl_int.h"

#include <stdlib.h>
#include <string.h>

enum { chunk_bytes = 512 * 1024 }; /* NCCL's own: a 4 MiB buffer in 8 steps */

#define ARRIVE 0x61727276U
#define MESSAGE 0x6d736721U

struct arrival {
	uint32_t magic, seq, kind, type;
	uint32_t op, root;
	uint64_t bytes;
};

static int at(const struct ncclComm *c, int offset)
{
	return ((c->rank + offset) % c->nranks + c->nranks) % c->nranks;
}

static ncclResult_t move(struct ncclComm *c, struct vgn_xfer *x, int n)
{
	ncclResult_t r = vgn_move(x, n, c->wake, -1, c->spin);
	for (int i = 0; i < n && r == ncclSuccess; i++)
		*(x[i].out ? &c->sent : &c->got) += x[i].bytes;
	return r;
}

/* both sends and receives at once; either side may be empty. */
static ncclResult_t both(struct ncclComm *c, int to, const char *out, size_t nout, int from, char *in, size_t nin)
{
	struct vgn_xfer x[2];
	int n = 0;
	if (nout)
		x[n++] = (struct vgn_xfer){.fd = c->fd[to], .out = 1, .buf = (char *)out, .bytes = nout};
	if (nin)
		x[n++] = (struct vgn_xfer){.fd = c->fd[from], .buf = in, .bytes = nin};
	return n ? move(c, x, n) : ncclSuccess;
}

static ncclResult_t arrive(struct ncclComm *c, const struct vgn_job *j, uint64_t bytes)
{
	struct arrival mine = {ARRIVE, c->seq++, j->kind, j->type, j->op, (uint32_t)j->root, bytes}, theirs;
	for (int d = 1; d < c->nranks; d *= 2) {
		ncclResult_t r = both(c, at(c, d), (char *)&mine, sizeof mine, at(c, -d), (char *)&theirs, sizeof theirs);
		if (r != ncclSuccess)
			return r;
		if (memcmp(&mine, &theirs, sizeof mine) != 0)
			return ncclInvalidUsage;
	}
	return ncclSuccess;
}

/* hop sends one segment to the next rank and receives another from the one
 * before, in chunks. With a scratch buffer what comes is reduced into `in`. */
static ncclResult_t hop(struct ncclComm *c, const struct vgn_job *j, const char *out, size_t nout, char *in, size_t nin,
                        char *scratch)
{
	size_t size = vgn_type_size(j->type), sent = 0, got = 0;
	while (sent < nout || got < nin) {
		size_t s = nout - sent < chunk_bytes ? nout - sent : chunk_bytes;
		size_t g = nin - got < chunk_bytes ? nin - got : chunk_bytes;
		ncclResult_t r = both(c, at(c, 1), out + sent, s, at(c, -1), scratch ? scratch : in + got, g);
		if (r != ncclSuccess)
			return r;
		if (scratch)
			vgn_reduce(in + got, scratch, g / size, j->type, j->op);
		sent += s;
		got += g;
	}
	return ncclSuccess;
}

/* segment i of n, in bytes: equal to within one element. */
static size_t seg_from(const struct vgn_job *j, int i, int n)
{
	return j->count * (size_t)i / (size_t)n * vgn_type_size(j->type);
}

static ncclResult_t all_reduce(struct ncclComm *c, struct vgn_job *j, char *scratch)
{
	int n = c->nranks;
	if (j->recv != j->send)
		memcpy(j->recv, j->send, j->count * vgn_type_size(j->type));
	for (int s = 0; s < 2 * (n - 1); s++) {
		int reducing = s < n - 1;
		int o = at(c, reducing ? -s : 1 - (s - (n - 1))), i = at(c, reducing ? -s - 1 : -(s - (n - 1)));
		size_t of = seg_from(j, o, n), ot = seg_from(j, o + 1, n), from = seg_from(j, i, n), to = seg_from(j, i + 1, n);
		ncclResult_t r = hop(c, j, j->recv + of, ot - of, j->recv + from, to - from, reducing ? scratch : NULL);
		if (r != ncclSuccess)
			return r;
	}
	if (j->op == ncclAvg)
		vgn_divide(j->recv, j->count, j->type, n);
	return ncclSuccess;
}

static ncclResult_t reduce_scatter(struct ncclComm *c, struct vgn_job *j, char *scratch)
{
	int n = c->nranks;
	size_t size = j->count * vgn_type_size(j->type);
	char *two = malloc(2 * size + 1), *out = two, *in = two + size;
	ncclResult_t r = two ? ncclSuccess : ncclSystemError;
	if (two)
		memcpy(out, j->send + (size_t)at(c, -1) * size, size);
	for (int s = 0; s < n - 1 && r == ncclSuccess; s++) {
		memcpy(in, j->send + (size_t)at(c, -s - 2) * size, size);
		r = hop(c, j, out, size, in, size, scratch);
		char *t = out;
		out = in;
		in = t;
	}
	if (r == ncclSuccess)
		memcpy(j->recv, out, size);
	if (r == ncclSuccess && j->op == ncclAvg)
		vgn_divide(j->recv, j->count, j->type, n);
	free(two);
	return r;
}

static ncclResult_t all_gather(struct ncclComm *c, struct vgn_job *j)
{
	size_t size = j->count * vgn_type_size(j->type);
	char *own = j->recv + (size_t)c->rank * size;
	if (own != j->send)
		memcpy(own, j->send, size);
	for (int s = 0; s < c->nranks - 1; s++) {
		ncclResult_t r =
		    hop(c, j, j->recv + (size_t)at(c, -s) * size, size, j->recv + (size_t)at(c, -s - 1) * size, size, NULL);
		if (r != ncclSuccess)
			return r;
	}
	return ncclSuccess;
}

/* The chain from the root on: each rank passes on a chunk once it has it. */
static ncclResult_t broadcast(struct ncclComm *c, struct vgn_job *j)
{
	size_t bytes = j->count * vgn_type_size(j->type);
	int place = at(c, -j->root);
	if (place == 0 && j->recv != j->send)
		memcpy(j->recv, j->send, bytes);
	for (size_t done = 0; done < bytes; done += chunk_bytes) {
		size_t n = bytes - done < chunk_bytes ? bytes - done : chunk_bytes;
		ncclResult_t r = ncclSuccess;
		if (place > 0)
			r = both(c, 0, NULL, 0, at(c, -1), j->recv + done, n);
		if (r == ncclSuccess && place < c->nranks - 1)
			r = both(c, at(c, 1), j->recv + done, n, 0, NULL, 0);
		if (r != ncclSuccess)
			return r;
	}
	return ncclSuccess;
}

/* The chain towards the root, which is its last rank. Only the root's recv is written. */
static ncclResult_t reduce(struct ncclComm *c, struct vgn_job *j, char *scratch)
{
	size_t size = vgn_type_size(j->type), bytes = j->count * size;
	int place = at(c, -j->root - 1), last = place == c->nranks - 1;
	char *mine = malloc(chunk_bytes);
	ncclResult_t r = mine ? ncclSuccess : ncclSystemError;
	for (size_t done = 0; done < bytes && r == ncclSuccess; done += chunk_bytes) {
		size_t n = bytes - done < chunk_bytes ? bytes - done : chunk_bytes;
		memcpy(mine, j->send + done, n);
		if (place > 0)
			r = both(c, 0, NULL, 0, at(c, -1), scratch, n);
		if (r != ncclSuccess)
			break;
		if (place > 0)
			vgn_reduce(mine, scratch, n / size, j->type, j->op);
		if (!last)
			r = both(c, at(c, 1), mine, n, 0, NULL, 0);
		else
			memcpy(j->recv + done, mine, n);
	}
	if (r == ncclSuccess && last && j->op == ncclAvg)
		vgn_divide(j->recv, j->count, j->type, c->nranks);
	free(mine);
	return r;
}

struct message { /* goes before each send */
	uint32_t magic, pad;
	uint64_t bytes;
};

/* to_self pairs the group's sends to its own rank with its receives, in order. */
static void to_self(struct ncclComm *c, struct vgn_job *j)
{
	int r = 0;
	for (int s = 0; s < j->np2p; s++) {
		if (!j->p2p[s].out || j->p2p[s].peer != c->rank)
			continue;
		while (r < j->np2p && (j->p2p[r].out || j->p2p[r].peer != c->rank))
			r++;
		if (r == j->np2p)
			return;
		memmove(j->p2p[r].buf, j->p2p[s].buf, j->p2p[s].bytes < j->p2p[r].bytes ? j->p2p[s].bytes : j->p2p[r].bytes);
		r++;
	}
}

static ncclResult_t point_to_point(struct ncclComm *c, struct vgn_job *j)
{
	struct vgn_xfer *x = calloc(2 * (size_t)j->np2p, sizeof *x);
	struct message *m = calloc((size_t)j->np2p, sizeof *m);
	int n = 0;
	ncclResult_t r = x && m ? ncclSuccess : ncclSystemError;
	to_self(c, j);
	for (int i = 0; i < j->np2p && r == ncclSuccess; i++) {
		struct vgn_p2p *p = &j->p2p[i];
		if (p->peer == c->rank)
			continue;
		if (p->out)
			m[i] = (struct message){MESSAGE, 0, p->bytes};
		x[n++] = (struct vgn_xfer){.fd = c->fd[p->peer], .out = p->out, .buf = (char *)&m[i], .bytes = sizeof m[i]};
		x[n++] = (struct vgn_xfer){.fd = c->fd[p->peer], .out = p->out, .buf = p->buf, .bytes = p->bytes};
	}
	if (r == ncclSuccess && n)
		r = move(c, x, n);
	for (int i = 0; i < j->np2p && r == ncclSuccess; i++)
		if (!j->p2p[i].out && j->p2p[i].peer != c->rank && (m[i].magic != MESSAGE || m[i].bytes != j->p2p[i].bytes))
			r = ncclInvalidUsage; /* the ranks disagree about a message's size */
	free(m);
	free(x);
	return r;
}

static ncclResult_t collective(struct ncclComm *c, struct vgn_job *j, char *scratch)
{
	switch (j->kind) {
	case VGN_ALLREDUCE: return all_reduce(c, j, scratch);
	case VGN_REDUCESCATTER: return reduce_scatter(c, j, scratch);
	case VGN_ALLGATHER: return all_gather(c, j);
	case VGN_BROADCAST: return broadcast(c, j);
	case VGN_REDUCE: return reduce(c, j, scratch);
	default: return ncclInternalError;
	}
}

ncclResult_t vgn_run(struct ncclComm *c, struct vgn_job *j)
{
	if (j->kind == VGN_P2P)
		return point_to_point(c, j);
	ncclResult_t r = arrive(c, j, j->count * vgn_type_size(j->type));
	char *scratch = malloc(chunk_bytes);
	if (!scratch)
		r = ncclSystemError;
	if (r == ncclSuccess)
		r = collective(c, j, scratch);
	free(scratch);
	return r;
}
