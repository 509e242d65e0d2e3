// A job without any library, for engines that hold no training image: a step is
// some milliseconds of CPU, then a wait that it asks for itself.
//
//	stepper CPU_MS WAIT_MS
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double cpu = argc > 1 ? atof(argv[1]) / 1e3 : 0.02;
	long wait_ns = argc > 2 ? (long)(atof(argv[2]) * 1e6) : 20000000;
	struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};

	for (long step = 1;; step++) {
		double until = seconds(CLOCK_THREAD_CPUTIME_ID) + cpu;

		while (seconds(CLOCK_THREAD_CPUTIME_ID) < until)
			;
		nanosleep(&wait, NULL);
		printf("step=%ld\n", step);
		fflush(stdout);
	}
}
