//go:build ignore

/* Graphs by capture: what a stream was given between begin and end, as one list. A
 * launch counts once; its kernels, one after another, take their time. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_JOINED = 32 };

struct list {
	struct node_desc *node;
	size_t used, room;
};
struct capture {
	struct list list;
	struct CUstream_st *joined[MAX_JOINED];
	int njoined;
};
struct CUgraph_st {
	struct list list;
};
struct CUgraphExec_st {
	struct list list;
};

CUresult capture_add(struct capture *c, const struct node_desc *d)
{
	struct list *l = &c->list;
	struct node_desc *back = l->used ? &l->node[l->used - 1] : NULL;
	if (back && back->kind == OP_KERNEL && d->kind == OP_KERNEL) { /* a row of kernels is one operation */
		back->ns += d->ns;
		back->kernels += d->kernels;
		return CUDA_SUCCESS;
	}
	if (l->used == l->room) {
		struct node_desc *more = realloc(l->node, (l->room + 64) * sizeof *more);
		if (!more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		l->node = more;
		l->room += 64;
	}
	l->node[l->used++] = *d;
	return CUDA_SUCCESS;
}

void capture_join(struct capture *c, struct CUstream_st *s)
{
	if (s->capture == c || c->njoined == MAX_JOINED)
		return;
	s->capture = c;
	c->joined[c->njoined++] = s;
}

static CUresult begin(CUstream handle, int by_default)
{
	struct CUstream_st *s;
	CUresult r = stream_of(handle, by_default, &s);
	if (r)
		return r;
	if (s->capture || drv.node->stream[s->index].legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct capture *c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture_join(c, s);
	return CUDA_SUCCESS;
}

API cuStreamBeginCapture_v2(CUstream s, int mode)
{
	ENTER();
	(void)mode;
	return begin(s, DEFAULT_LEGACY);
}

API cuStreamBeginCapture_v2_ptsz(CUstream s, int mode)
{
	ENTER();
	(void)mode;
	return begin(s, DEFAULT_PER_THREAD);
}

static CUresult end(CUstream handle, int by_default, CUgraph *out)
{
	struct CUstream_st *s;
	CUresult r = stream_of(handle, by_default, &s);
	if (r)
		return r;
	struct capture *c = s->capture;
	if (!c || c->joined[0] != s)
		return CUDA_ERROR_ILLEGAL_STATE;
	for (int i = 0; i < c->njoined; i++)
		c->joined[i]->capture = NULL;
	CUgraph g = calloc(1, sizeof *g);
	if (g)
		g->list = c->list;
	free(c); /* events of it must not be used again, as with the real one */
	*out = g;
	return g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuStreamEndCapture(CUstream s, CUgraph *out)
{
	ENTER();
	return end(s, DEFAULT_LEGACY, out);
}

API cuStreamEndCapture_ptsz(CUstream s, CUgraph *out)
{
	ENTER();
	return end(s, DEFAULT_PER_THREAD, out);
}

API cuStreamIsCapturing(CUstream handle, int *status)
{
	ENTER();
	struct CUstream_st *s;
	CUresult r = stream_of(handle, DEFAULT_LEGACY, &s);
	*status = r == CUDA_SUCCESS && s->capture;
	return r;
}

API cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
	ENTER();
	(void)flags;
	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphExec x = calloc(1, sizeof *x);
	size_t bytes = g->list.used * sizeof *g->list.node;
	if (!x || (bytes && !(x->list.node = malloc(bytes)))) {
		free(x);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (bytes)
		memcpy(x->list.node, g->list.node, bytes);
	x->list.used = g->list.used;
	*out = x;
	return CUDA_SUCCESS;
}

/* Nodes are told by number; what each is, is not. A row of kernels is one. */
API cuGraphGetNodes(CUgraph g, void **nodes, size_t *n)
{
	ENTER();
	if (!g || !n)
		return CUDA_ERROR_INVALID_VALUE;
	if (nodes)
		return CUDA_ERROR_NOT_SUPPORTED;
	*n = g->list.used;
	return CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph g)
{
	ENTER();
	if (g)
		free(g->list.node);
	free(g);
	return CUDA_SUCCESS;
}

API cuGraphExecDestroy(CUgraphExec x)
{
	ENTER();
	if (x)
		free(x->list.node);
	free(x);
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec x, CUstream handle, int by_default)
{
	struct CUstream_st *s;
	CUresult r = x ? stream_of(handle, by_default, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r)
		return r;
	if (s->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	__atomic_fetch_add(&counts()->graphs, 1, __ATOMIC_RELAXED);
	for (size_t i = 0; i < x->list.used && r == CUDA_SUCCESS; i++) {
		struct node_desc *d = &x->list.node[i];
		if (d->kind == OP_OPEN) {
			r = d->again(d->arg, s);
			continue;
		}
		if (d->kind != OP_KERNEL) {
			r = copy(s, d->to, d->from, d->bytes, d->copy_kind, 0);
			continue;
		}
		r = launch_ns(s, d->ns, NULL);
		__atomic_fetch_add(&counts()->graph_kernels, d->kernels, __ATOMIC_RELAXED);
	}
	return r;
}

API cuGraphLaunch(CUgraphExec x, CUstream s)
{
	ENTER();
	return launch(x, s, DEFAULT_LEGACY);
}

API cuGraphLaunch_ptsz(CUgraphExec x, CUstream s)
{
	ENTER();
	return launch(x, s, DEFAULT_PER_THREAD);
}
