/* Takes the node's lock, leaves a stream half written, and dies or stops; see
 * TestLockHeldByTheDead. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "../node.h"

int main(int argc, char **argv)
{
	(void)argv;
	struct vgpu_node *n = node_open();
	int proc = n ? node_attach(n) : -1;
	if (proc < 0)
		return 2;
	node_lock(n);
	int stream = sim_stream_new(n, (uint32_t)proc, 0, 0, 0);
	struct vgpu_op op = {.kind = OP_KERNEL, .left_ns = 60000000000ULL};
	uint64_t seq;
	sim_push(n, (uint32_t)stream, &op, &seq);
	n->active[n->nactive++] = VGPU_MAX_STREAMS - 1; /* not yet told to the stream itself */
	n->proc[proc].on[0].mem = 1 << 30;
	raise(argc > 1 ? SIGSTOP : SIGKILL); /* an argument: it only stops */
	return 1;
}
