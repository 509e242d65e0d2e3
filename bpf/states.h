/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TRIMTAB_STATES_H
#define TRIMTAB_STATES_H

/* What a thread does with a stretch of its wall time. The numbers are those of
 * probes.State; a Go test parses this header and compares them. */
enum state {
	STATE_RUN = 0,
	STATE_THROTTLED = 1,
	STATE_QUEUED = 2,
	STATE_BLOCKIO = 3,
	STATE_FILE = 4,
	STATE_NETFILE = 5,
	STATE_PIPE = 6,
	STATE_UNIX = 7,
	STATE_INET = 8,
	STATE_FUTEX = 9,
	STATE_TIMER = 10,
	STATE_DEVICE = 11,
	STATE_POLL = 12,
	STATE_CHILD = 13,
	STATE_LOCK = 14,
	STATE_OTHER = 15,
	NUM_STATES = 16,
};

#endif
