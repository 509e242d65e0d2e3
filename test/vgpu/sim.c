//go:build ignore

/* The devices' time: queues in, computed ends out. All of it under the node's lock. */
#include "node.h"

#include <string.h>

static const int engine_of[] = {
    [OP_KERNEL] = ENGINE_KERNEL, [OP_COPY_IN] = ENGINE_IN, [OP_COPY_OUT] = ENGINE_OUT, [OP_COPY_ON] = ENGINE_KERNEL,
};

struct vgpu_op *sim_op(struct vgpu_node *n, uint32_t stream, uint64_t seq)
{
	return &n->stream[stream].ring[seq % VGPU_RING];
}

static struct vgpu_op *head(struct vgpu_stream *s) { return &s->ring[s->done % VGPU_RING]; }

static void activate(struct vgpu_node *n, uint32_t stream)
{
	struct vgpu_stream *s = &n->stream[stream];
	if (s->active)
		return;
	n->active[n->nactive++] = stream;
	s->active = n->nactive;
}

static void deactivate(struct vgpu_node *n, struct vgpu_stream *s)
{
	if (!s->active)
		return;
	uint32_t last = n->active[--n->nactive];
	n->active[s->active - 1] = last;
	n->stream[last].active = s->active;
	s->active = 0;
}

int sim_stream_new(struct vgpu_node *n, uint32_t proc, uint32_t device, uint32_t blocking, uint32_t legacy)
{
	for (uint32_t i = 0; i < VGPU_MAX_STREAMS; i++) {
		struct vgpu_stream *s = &n->stream[i];
		if (s->epoch & 1)
			continue;
		s->proc = proc;
		s->device = device;
		s->blocking = blocking;
		s->legacy = legacy;
		s->dying = 0;
		s->tail = s->work_queued = s->work_done = 0;
		atomic_store(&s->done, 0);
		atomic_fetch_add(&s->epoch, 1);
		if (i >= n->high_stream)
			n->high_stream = i + 1;
		return (int)i;
	}
	return -1;
}

static void stream_end(struct vgpu_node *n, struct vgpu_stream *s)
{
	deactivate(n, s);
	atomic_fetch_add(&s->epoch, 1);
}

/* sim_stream_free lets the stream's work end first, as cudaStreamDestroy does. */
void sim_stream_free(struct vgpu_node *n, uint32_t stream)
{
	struct vgpu_stream *s = &n->stream[stream];
	s->dying = 1;
	if (s->tail == s->done)
		stream_end(n, s);
}

int sim_push(struct vgpu_node *n, uint32_t stream, const struct vgpu_op *op, uint64_t *seq)
{
	struct vgpu_stream *s = &n->stream[stream];
	if (s->tail - s->done >= VGPU_RING)
		return -1;
	struct vgpu_op *o = sim_op(n, stream, s->tail);
	*o = *op;
	uint32_t speed = n->device[s->device].speed_pct;
	if (o->kind == OP_KERNEL && speed && speed != 100) { /* another model of device */
		o->left_ns = o->left_ns * 100 / speed;
		o->left_ns = o->left_ns ? o->left_ns : 1;
	}
	o->total_ns = o->left_ns;
	s->work_queued += o->left_ns;
	o->work_end = s->work_queued;
	*seq = s->tail++;
	activate(n, stream);
	return 0;
}

static int passed(struct vgpu_node *n, const struct vgpu_op *o)
{
	struct vgpu_stream *on = &n->stream[o->on_stream];
	return on->epoch != o->on_epoch || on->done > o->on_seq;
}

/* over tells whether the head of a stream takes no more time. */
static int over(struct vgpu_node *n, struct vgpu_op *o)
{
	switch (o->kind) {
	case OP_MARK:
		return 1;
	case OP_WAIT:
		return passed(n, o);
	case OP_OPEN:
		o->flags |= VGPU_OP_STARTED;
		return o->flags & VGPU_OP_FINISHED;
	default:
		return o->left_ns == 0;
	}
}

static void pop(struct vgpu_node *n, struct vgpu_stream *s)
{
	struct vgpu_op *o = head(s);
	if (o->kind == OP_MARK) {
		struct vgpu_event *e = &n->event[o->event];
		atomic_store(&e->end_ns, n->now_ns);
		atomic_store(&e->done_record, o->record);
	}
	s->work_done = o->work_end;
	atomic_store(&s->done, s->done + 1);
}

/* settle ends all that takes no time at this instant. */
static void settle(struct vgpu_node *n)
{
	for (int moved = 1; moved;) {
		moved = 0;
		for (uint32_t i = 0; i < n->nactive;) {
			struct vgpu_stream *s = &n->stream[n->active[i]];
			while (s->done < s->tail && over(n, head(s))) {
				pop(n, s);
				moved = 1;
			}
			if (s->done < s->tail) {
				i++;
				continue;
			}
			deactivate(n, s); /* the last of the list comes to place i */
			if (s->dying)
				stream_end(n, s);
		}
	}
}

static struct vgpu_share *share_of(struct vgpu_node *n, struct vgpu_stream *s)
{
	return &n->proc[s->proc].on[s->device];
}

static int takes_share(const struct vgpu_op *o) { return o->kind <= OP_COPY_ON; }

static void count_heads(struct vgpu_node *n)
{
	for (uint32_t i = 0; i < n->nactive; i++) {
		struct vgpu_stream *s = &n->stream[n->active[i]];
		struct vgpu_device *d = &n->device[s->device];
		memset(d->procs, 0, sizeof d->procs);
		memset(share_of(n, s)->streams, 0, sizeof share_of(n, s)->streams);
	}
	for (uint32_t i = 0; i < n->nactive; i++) {
		struct vgpu_stream *s = &n->stream[n->active[i]];
		if (!takes_share(head(s)))
			continue;
		int e = engine_of[head(s)->kind];
		if (share_of(n, s)->streams[e]++ == 0)
			n->device[s->device].procs[e]++;
	}
}

static uint64_t divisor(struct vgpu_node *n, struct vgpu_stream *s)
{
	int e = engine_of[head(s)->kind];
	return (uint64_t)n->device[s->device].procs[e] * share_of(n, s)->streams[e];
}

/* step_ns is how long nothing changes, at most limit. */
static uint64_t step_ns(struct vgpu_node *n, uint64_t limit)
{
	for (uint32_t i = 0; i < n->nactive; i++) {
		struct vgpu_stream *s = &n->stream[n->active[i]];
		if (!takes_share(head(s)))
			continue;
		uint64_t end = head(s)->left_ns * divisor(n, s);
		if (end < limit)
			limit = end;
	}
	return limit;
}

static void move_bytes(struct vgpu_device *d, struct vgpu_op *o, uint64_t done)
{
	uint64_t bytes = o->left_ns ? (uint64_t)((double)o->bytes * (double)done / (double)(o->left_ns + done)) : o->bytes;
	o->bytes -= bytes;
	if (o->kind == OP_COPY_IN)
		d->bytes_in += bytes;
	else if (o->kind == OP_COPY_OUT)
		d->bytes_out += bytes;
}

static void run(struct vgpu_node *n, struct vgpu_stream *s, uint64_t ns)
{
	struct vgpu_op *o = head(s);
	struct vgpu_device *d = &n->device[s->device];
	if (!takes_share(o))
		return;
	uint64_t by = divisor(n, s), done = ns / by;
	if (done > o->left_ns)
		done = o->left_ns;
	o->left_ns -= done;
	s->work_done += done;
	if (o->kind == OP_KERNEL) /* the process's part of the device's time, not of the work's speed */
		share_of(n, s)->busy_ns += done;
	else
		move_bytes(d, o, done);
}

/* account adds ns to the devices on which a kernel runs, once each. */
static void account(struct vgpu_node *n, uint64_t ns)
{
	uint32_t kernels = 0, opens = 0;
	for (uint32_t i = 0; i < n->nactive; i++) {
		struct vgpu_stream *s = &n->stream[n->active[i]];
		uint32_t bit = 1u << s->device;
		if (head(s)->kind == OP_KERNEL)
			kernels |= bit;
		if (head(s)->kind == OP_OPEN && !(opens & bit)) {
			opens |= bit;
			if (!(kernels & bit))
				share_of(n, s)->busy_ns += ns;
		}
	}
	for (uint32_t d = 0; d < n->ndevices; d++) {
		uint32_t bit = 1u << d;
		if (kernels & bit)
			n->device[d].kernel_ns += ns;
		if (opens & bit)
			n->device[d].open_ns += ns;
		if ((kernels | opens) & bit)
			n->device[d].busy_ns += ns;
	}
}

static void step(struct vgpu_node *n, uint64_t ns)
{
	account(n, ns);
	for (uint32_t i = 0; i < n->nactive; i++)
		run(n, &n->stream[n->active[i]], ns);
	n->now_ns += ns;
}

void node_advance(struct vgpu_node *n, uint64_t now)
{
	settle(n);
	while (n->now_ns < now) {
		if (!n->nactive) {
			sample_skip(n, now);
			return;
		}
		count_heads(n);
		uint64_t until = sample_next(n);
		if (until > now)
			until = now;
		uint64_t ns = until > n->now_ns ? step_ns(n, until - n->now_ns) : 0;
		step(n, ns);
		sample_take(n);
		settle(n);
	}
}

static uint64_t least(struct vgpu_node *n, uint32_t stream, uint64_t seq, int depth)
{
	struct vgpu_stream *s = &n->stream[stream];
	if (seq < s->done || seq >= s->tail)
		return 0;
	uint64_t ns = sim_op(n, stream, seq)->work_end - s->work_done;
	struct vgpu_op *o = head(s);
	if (o->kind == OP_WAIT && depth < 4 && !passed(n, o))
		ns += least(n, o->on_stream, o->on_seq, depth + 1);
	return ns;
}

uint64_t sim_least_ns(struct vgpu_node *n, uint32_t stream, uint64_t seq) { return least(n, stream, seq, 0); }

void sim_proc_end(struct vgpu_node *n, uint32_t proc)
{
	struct vgpu_proc *p = &n->proc[proc];
	for (uint32_t i = 0; i < n->high_stream; i++)
		if ((n->stream[i].epoch & 1) && n->stream[i].proc == proc)
			stream_end(n, &n->stream[i]);
	for (uint32_t i = 0; i < VGPU_MAX_EVENTS; i++)
		if (n->event[i].used == proc + 1)
			atomic_store(&n->event[i].used, 0);
	memset(p->on, 0, sizeof p->on);
	atomic_store(&p->epoch, p->epoch + 1);
}
