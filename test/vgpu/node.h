/* The simulated node: what lies in shared memory, and how the libraries use it.
 *
 * One file (TRIMTAB_VGPU_NODE, else /run/vgpu/node where there is such a file, else
 * /dev/shm/trimtab-vgpu) is mapped by every process that uses a virtual library, in
 * whatever container; one robust mutex guards all of it. Nothing runs by itself:
 * whoever takes the lock first lets the devices catch up with the clock
 * (node_advance), so work ends at computed times and needs no thread.
 *
 * Time. Each stream is a queue in order; the heads of all streams run side by side.
 * A device's engines (kernels, copies in, copies out) are shared equally among the
 * processes that have work at the head of some stream, and within a process among
 * its streams: time-slicing as a fluid. A collective (OP_OPEN) takes no share: its
 * kernel spins on few SMs; the device is busy while it runs.
 *
 * Processes. Each holds a slot, and a POSIX record lock on the node's file at
 * LOCK_BASE + slot. The kernel gives the lock back when the process ends, execs or
 * is killed, and F_GETLK tells the holder's PID as the reader's PID namespace sees
 * it: so the dead are found from inside any container, and libnvidia-ml on the host
 * reports host PIDs, without a scan of /proc. (A fork does not inherit the lock; its
 * CUDA calls fail, as with the real driver.)
 */
#ifndef VGPU_NODE_H
#define VGPU_NODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VGPU_API __attribute__((visibility("default")))

enum {
	VGPU_MAX_DEVICES = 16,
	VGPU_MAX_PROCS = 256,
	VGPU_MAX_STREAMS = 512,
	VGPU_MAX_EVENTS = 16384,
	VGPU_MAX_FAULTS = 16,
	VGPU_LAUNCHES = 1021, /* that a stream holds before a launch waits [measured, H100, driver 580] */
	VGPU_SPARE = 64,      /* places that a push may need for waits before its own operation */
	VGPU_RING = VGPU_LAUNCHES + VGPU_SPARE,
	VGPU_DUTY_RING = 120, /* samples that NVML keeps: 20 s */
	VGPU_PROC_RING = 512,
	VGPU_XIDS = 256,       /* errors of a device that listeners find later */
	VGPU_LAYOUT = 7,
};
#define VGPU_MAGIC 0x7570677674ULL
#define VGPU_LOCK_BASE (1LL << 40)
#define VGPU_DUTY_NS 166666667ULL /* NVML's sampling period */
#define VGPU_PROC_NS 1000000000ULL

enum vgpu_op_kind {
	OP_KERNEL,
	OP_COPY_IN,  /* host to device */
	OP_COPY_OUT, /* device to host */
	OP_COPY_ON,  /* device to device: the kernels' engine, but no kernel */
	OP_OPEN,     /* runs until VGPU_OP_FINISHED is set */
	OP_MARK,     /* an event's record: takes no time */
	OP_WAIT,     /* until another stream got somewhere */
};
enum { ENGINE_KERNEL, ENGINE_IN, ENGINE_OUT, ENGINES };
enum { VGPU_OP_FINISHED = 1, VGPU_OP_STARTED = 2 };

struct vgpu_op {
	uint32_t kind, flags;
	uint64_t left_ns;  /* alone on the device */
	uint64_t work_end; /* the stream's work up to and with this, since the stream began */
	uint64_t bytes, total_ns;
	uint32_t event, record;       /* OP_MARK: which event, which of its records */
	uint32_t on_stream, on_epoch; /* OP_WAIT: until this stream's done passes on_seq */
	uint64_t on_seq;
};

struct vgpu_stream {
	_Atomic uint32_t epoch; /* odd: in use; a handle of another epoch is stale, its work done */
	uint32_t proc, device, blocking, dying, legacy;
	uint32_t active; /* 1 + place in node.active; 0: nothing queued */
	uint64_t tail;         /* sequence number of the next operation */
	_Atomic uint64_t done; /* operations below this have ended */
	uint64_t work_queued, work_done; /* ns alone on the device */
	struct vgpu_op ring[VGPU_RING];
};

struct vgpu_event {
	_Atomic uint32_t used; /* 1 + proc */
	uint32_t records;
	_Atomic uint32_t done_record;
	_Atomic uint64_t end_ns;
};

/* What a process did, for the truth beside what probes count. */
struct vgpu_counts {
	uint64_t kernels, graphs, graph_kernels, collectives, syncs, sync_ns;
	uint64_t copies[5], copy_bytes[5]; /* by cudaMemcpyKind */
};

struct vgpu_share { /* a process on a device */
	uint32_t held; /* it has a context there */
	uint32_t streams[ENGINES]; /* streams with such work at their head, while advancing */
	uint64_t mem, busy_ns, second_ns; /* busy_ns at the last per-process sample */
};

struct vgpu_proc {
	_Atomic uint32_t epoch; /* odd: in use */
	int32_t ns_pid;         /* as in its own PID namespace, */
	uint64_t pid_ns, start; /* which is this inode; and when it started, in ticks */
	uint32_t graphics;
	uint32_t mig_slice;
	char comm[16];
	struct vgpu_counts counts;
	struct vgpu_share on[VGPU_MAX_DEVICES];
};

struct vgpu_duty {
	uint64_t wall_us;
	uint32_t percent, pad;
};
struct vgpu_proc_sample {
	uint64_t wall_us;
	uint32_t proc, epoch, sm, mem;
};

struct vgpu_device {
	/* as created, see node_spec.c */
	char name[96], uuid[80], cpus[128];
	uint32_t minor, hopper, mig_slices, mps, nvlinks, compute_mode;
	int32_t numa;
	uint64_t mem_total, context_bytes, pcie_bps;
	uint32_t pcie_gen, pcie_width, power_idle_mw, power_max_mw, clock_max_mhz, mem_clock_mhz;
	uint32_t sm_pct, tensor_pct, dram_pct; /* of a kernel's time, for GPM */
	uint32_t speed_pct;                    /* kernels take 100 / speed_pct of their time */
	uint32_t drop_pct;                     /* per-process samples that are missing */
	/* set while it runs */
	uint32_t lost, clock_mhz; /* 0: as busy as it is */
	uint64_t slowdown;        /* NVML's clocks event reasons */
	uint32_t power_mw, temp_c; /* 0: computed */
	uint64_t ecc, ecc_corrected; /* memory errors since the driver was loaded */
	uint32_t rows_remapped, row_pending, row_failed;
	_Atomic uint64_t xids; /* ever reported; place is modulo */
	uint32_t xid[VGPU_XIDS];
	/* what it did */
	uint64_t busy_ns, kernel_ns, open_ns, bytes_in, bytes_out;
	uint64_t link_in, link_out; /* over NVLink, where there are links */
	uint64_t duty_busy_ns; /* busy_ns at the last duty sample */
	uint64_t duties, proc_samples; /* ever taken; place is modulo */
	uint32_t procs[ENGINES];       /* processes with such work, while advancing */
	struct vgpu_duty duty[VGPU_DUTY_RING];
	struct vgpu_proc_sample proc_sample[VGPU_PROC_RING];
};

enum vgpu_fault_kind { FAULT_NONE, FAULT_HANG, FAULT_UNSUPPORTED, FAULT_EXIT };
struct vgpu_fault {
	uint32_t kind;
	int32_t device; /* -1: all, and calls without a device */
	char call[80];
};

struct vgpu_node {
	_Atomic uint64_t magic;
	uint64_t layout, size;
	pthread_mutex_t lock;
	uint64_t now_ns; /* CLOCK_MONOTONIC up to which devices were simulated */
	uint64_t next_duty_ns, next_proc_ns, next_reap_ns;
	uint32_t ndevices, nactive, high_stream;
	_Atomic uint32_t nfaults;
	uint64_t random;
	char driver[16];
	int32_t cuda; /* 12040 */
	uint32_t active[VGPU_MAX_STREAMS];
	struct vgpu_fault fault[VGPU_MAX_FAULTS];
	struct vgpu_device device[VGPU_MAX_DEVICES];
	struct vgpu_proc proc[VGPU_MAX_PROCS];
	struct vgpu_event event[VGPU_MAX_EVENTS];
	struct vgpu_stream stream[VGPU_MAX_STREAMS];
};

#pragma GCC visibility push(hidden)

/* ---- node.c: the file, the lock, processes ---- */

/* node_path is the node's file by environment and default. */
const char *node_path(void);
/* node_open maps the node once for the process and never unmaps it (closing the
 * file would give the record lock away); a missing one is made with the defaults
 * and $TRIMTAB_VGPU_SPEC. NULL: errno says why. */
struct vgpu_node *node_open(void);
/* node_create makes a node; one that is there already is replaced or kept. */
int node_create(const char *path, const char *spec, int replace, char *why, size_t whylen);
/* node_lock also lets the devices catch up with the clock. */
void node_lock(struct vgpu_node *n);
void node_unlock(struct vgpu_node *n);
/* node_look is for those who only read: it also clears the dead away, and goes without
 * the lock (0) where a process that is stopped or throttled has had it for 100 ms; the
 * figures are as old as that. node_looked ends it. */
int node_look(struct vgpu_node *n);
void node_looked(struct vgpu_node *n, int held);
/* node_attach gives the process its slot; -1: none is free. Call without the lock. */
int node_attach(struct vgpu_node *n);
/* node_pid is the PID of a slot's process in the reader's PID namespace: 0 if it is
 * outside of it, -1 if it is dead. */
pid_t node_pid(struct vgpu_node *n, uint32_t proc);
/* node_reap, under the lock, gives back what dead processes held; node_lock does it 50
 * times a second. */
void node_reap(struct vgpu_node *n);
uint64_t node_clock_ns(void);

/* ---- node_spec.c ---- */

/* A spec is "devices=4,mem-mib=81920,hopper=1": defaults of all devices, then
 * "/1:numa=1,cpus=4-7" for single ones. spec_set sets one key of one device, or
 * of all (-1); 0, or -1 with the reason in why. */
int spec_apply(struct vgpu_node *n, const char *spec, char *why, size_t whylen);
int spec_set(struct vgpu_node *n, int device, const char *key, const char *value, char *why, size_t whylen);
void spec_defaults(struct vgpu_node *n, int devices);
void spec_print_keys(void);
/* mig_uuid writes the UUID of a device's slice. */
void mig_uuid(const struct vgpu_device *d, uint32_t slice, char *into, size_t len);

/* ---- sim.c: under the lock ---- */

void node_advance(struct vgpu_node *n, uint64_t now);
/* sim_stream_new returns a stream's index, -1 if there is none. */
int sim_stream_new(struct vgpu_node *n, uint32_t proc, uint32_t device, uint32_t blocking, uint32_t legacy);
void sim_stream_free(struct vgpu_node *n, uint32_t stream);
/* sim_push queues op, without its work_end; its sequence number is left in *seq.
 * -1: the ring is full. */
int sim_push(struct vgpu_node *n, uint32_t stream, const struct vgpu_op *op, uint64_t *seq);
/* sim_least_ns is a bound from below on the time until operation seq of the stream ends. */
uint64_t sim_least_ns(struct vgpu_node *n, uint32_t stream, uint64_t seq);
void sim_proc_end(struct vgpu_node *n, uint32_t proc);
struct vgpu_op *sim_op(struct vgpu_node *n, uint32_t stream, uint64_t seq);

/* ---- sample.c: under the lock ---- */

void sample_take(struct vgpu_node *n);       /* the periods that end at n->now_ns */
uint64_t sample_next(struct vgpu_node *n);   /* when the next one ends */
void sample_skip(struct vgpu_node *n, uint64_t now); /* nothing runs until now */

/* ---- fault.c: without the lock ---- */

/* fault_check hangs or ends the process if such a fault was ordered for the call;
 * 1: the call is to say that it is not supported. */
int fault_check(struct vgpu_node *n, int device, const char *call);

#pragma GCC visibility pop
#endif
