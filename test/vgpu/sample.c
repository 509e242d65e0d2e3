//go:build ignore

/* What NVML keeps: how busy a device was in each ~167 ms, and what each process used
 * in each second. All of it under the node's lock. */
#include "node.h"

#include <time.h>

static uint64_t wall_us(struct vgpu_node *n)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	uint64_t behind = node_clock_ns() - n->now_ns;
	return (uint64_t)t.tv_sec * 1000000ULL + (uint64_t)t.tv_nsec / 1000 - behind / 1000;
}

static uint32_t random_pct(struct vgpu_node *n)
{
	n->random ^= n->random << 13;
	n->random ^= n->random >> 7;
	n->random ^= n->random << 17;
	return (uint32_t)(n->random % 100);
}

static void take_duty(struct vgpu_node *n)
{
	uint64_t us = wall_us(n);
	for (uint32_t i = 0; i < n->ndevices; i++) {
		struct vgpu_device *d = &n->device[i];
		uint64_t busy = d->busy_ns - d->duty_busy_ns;
		uint32_t percent = (uint32_t)((busy * 100 + VGPU_DUTY_NS / 2) / VGPU_DUTY_NS);
		d->duty_busy_ns = d->busy_ns;
		d->duty[d->duties++ % VGPU_DUTY_RING] = (struct vgpu_duty){.wall_us = us, .percent = percent > 100 ? 100 : percent};
	}
	n->next_duty_ns += VGPU_DUTY_NS;
}

static void take_proc(struct vgpu_node *n, struct vgpu_device *d, uint32_t dev, uint32_t proc, uint64_t us)
{
	struct vgpu_share *s = &n->proc[proc].on[dev];
	uint64_t busy = s->busy_ns - s->second_ns;
	s->second_ns = s->busy_ns;
	if (!s->held || random_pct(n) < d->drop_pct)
		return; /* NVML leaves busy processes out at times */
	uint32_t sm = (uint32_t)(busy * 100 / VGPU_PROC_NS);
	d->proc_sample[d->proc_samples++ % VGPU_PROC_RING] = (struct vgpu_proc_sample){
	    .wall_us = us, .proc = proc, .epoch = n->proc[proc].epoch, .sm = sm > 100 ? 100 : sm, .mem = sm * d->dram_pct / 100};
}

static void take_procs(struct vgpu_node *n)
{
	uint64_t us = wall_us(n);
	for (uint32_t p = 0; p < VGPU_MAX_PROCS; p++)
		for (uint32_t d = 0; (n->proc[p].epoch & 1) && d < n->ndevices; d++)
			take_proc(n, &n->device[d], d, p, us);
	n->next_proc_ns += VGPU_PROC_NS;
}

uint64_t sample_next(struct vgpu_node *n)
{
	return n->next_duty_ns < n->next_proc_ns ? n->next_duty_ns : n->next_proc_ns;
}

void sample_take(struct vgpu_node *n)
{
	if (n->now_ns >= n->next_duty_ns)
		take_duty(n);
	if (n->now_ns >= n->next_proc_ns)
		take_procs(n);
}

/* leap leaves out periods that the rings would not hold anyway. */
static uint64_t leap(uint64_t next, uint64_t period, uint64_t keep, uint64_t now)
{
	return next + keep * period < now ? next + (now - next) / period * period - keep * period : next;
}

void sample_skip(struct vgpu_node *n, uint64_t now)
{
	n->next_duty_ns = leap(n->next_duty_ns, VGPU_DUTY_NS, VGPU_DUTY_RING, now);
	n->next_proc_ns = leap(n->next_proc_ns, VGPU_PROC_NS, 2, now);
	for (uint64_t next = sample_next(n); next <= now; next = sample_next(n)) {
		if (next > n->now_ns)
			n->now_ns = next;
		sample_take(n);
	}
	n->now_ns = now;
}
