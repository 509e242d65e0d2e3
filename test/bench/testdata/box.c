/* What stands for a container without a shim: one process, or two, in control groups of
 * its own and in a network namespace of its own.
 *
 *     box EVERY_US BURN_US PROCS_FILE...
 *
 * joins the groups, says so by one byte on standard output, and ends when standard
 * input does. With EVERY_US a child wakes so often and works for BURN_US. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static void join(const char *procs)
{
	int fd = open(procs, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0\n", 2) != 2) {
		perror(procs);
		exit(1);
	}
	close(fd);
}

static long long cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void work(long every_us, long burn_us)
{
	struct timespec pause = {every_us / 1000000, every_us % 1000000 * 1000};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		nanosleep(&pause, NULL);
		for (long long end = cpu_ns() + burn_us * 1000; cpu_ns() < end;)
			;
	}
}

int main(int argc, char **argv)
{
	char c;
	long every_us, burn_us;

	if (argc < 3)
		return 2;
	every_us = atol(argv[1]);
	burn_us = atol(argv[2]);
	for (int i = 3; i < argc; i++)
		join(argv[i]);
	if (unshare(CLONE_NEWNET)) {
		perror("box: a network namespace");
		return 1;
	}
	if (every_us > 0 && fork() == 0)
		work(every_us, burn_us);
	if (write(1, "x", 1) != 1)
		return 1;
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
