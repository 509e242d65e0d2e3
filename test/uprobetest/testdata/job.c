// A process that makes the calls it is told to, one line a command, and answers each with a line.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef STATIC
// The runtime is inside this program; its names are in the full symbol table alone.
int cudaLaunchKernel(void *, long, int);
int cudaStreamSynchronize(void *);
static void *find(const char *name)
{
	return !strcmp(name, "cudaLaunchKernel") ? (void *)cudaLaunchKernel : !strcmp(name, "cudaStreamSynchronize") ? (void *)cudaStreamSynchronize : NULL;
}
#else
static void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }
#endif

typedef struct { char internal[128]; } id_t128;
typedef int (*any)();
static any fn(const char *name)
{
	any f = (any)find(name);
	if (!f) { printf("no %s\n", name); exit(3); }
	return f;
}

// Each call is made from its own depth, so that stale frames lie about.
static int __attribute__((noinline)) call(const char *name, long a, long b)
{
	char frame[512];
	any f = fn(name);
	memset(frame, 1, a % 7 ? 16 : 400);
	__asm__ volatile("" : : "r"(frame) : "memory");
	if (!strncmp(name, "cudaMemcpy2D", 12)) return f(frame, 1L, frame, 1L, a, a, (int)b);
	if (!strncmp(name, "cudaMemcpy", 10)) return f(frame, frame, a, (int)b, NULL);
	if (!strncmp(name, "cuMemcpy", 8)) return f(frame, frame, a, NULL);
	if (!strcmp(name, "ncclCommInitRank") || !strcmp(name, "ncclCommInitRankConfig")) {
		id_t128 id = {{0}};
		return ((int (*)(void **, int, id_t128, int, void *))f)(NULL, a, id, b, NULL);
	}
	if (!strcmp(name, "ncclCommInitRankScalable")) return f(NULL, (int)a, (int)b, 1, NULL, NULL);
	if (!strcmp(name, "ncclCommInitAll")) return f(NULL, (int)a, NULL);
	if (!strcmp(name, "ncclSend") || !strcmp(name, "ncclRecv")) return f(NULL, a, (int)b, 0, NULL, NULL);
	if (!strncmp(name, "nccl", 4)) return f(NULL, NULL, a, (int)b, 0, NULL, NULL);
	// One call site for both levels would look like a tail call from the one to the other.
	if (strncmp(name, "cuda", 4)) return f((void *)frame, a + 1, (int)b);
	return f((void *)frame, a, (int)b);
}

struct work { char name[256]; long n, a, b; };
static void *run(void *p)
{
	struct work *w = p;
	for (long i = 0; i < w->n; i++) call(w->name, w->a, w->b);
	return NULL;
}

int main(int argc, char **argv)
{
	char line[512];
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		char verb[32] = "", name[256] = "";
		long n = 1, a = 0, b = 0;
		sscanf(line, "%31s %255s %ld %ld %ld", verb, name, &n, &a, &b);
		struct work w = {.n = n, .a = a, .b = b};
		strncpy(w.name, name, sizeof w.name - 1);
		if (!strcmp(verb, "load")) {
			if (!dlopen(name, RTLD_NOW | RTLD_GLOBAL)) { printf("dlopen: %s\n", dlerror()); continue; }
		} else if (!strcmp(verb, "call")) {
			run(&w);
		} else if (!strcmp(verb, "null")) { // n calls, all of whose arguments are 0
			any f = fn(name);
			for (long i = 0; i < n; i++) f(NULL, NULL, NULL, NULL, NULL, NULL);
		} else if (!strcmp(verb, "threads")) { // n threads, one after another, one call each
			w.n = 1;
			for (long i = 0; i < n; i++) {
				pthread_t t;
				if (pthread_create(&t, NULL, run, &w)) exit(4);
				pthread_join(t, NULL);
			}
		} else if (!strcmp(verb, "fork")) {
			pid_t child = fork();
			if (!child) { run(&w); _exit(0); }
			waitpid(child, NULL, 0);
		} else if (!strcmp(verb, "worker")) { // a child that lives on, and does nothing
			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, 9);
				for (;;) pause();
			}
		} else if (!strcmp(verb, "background")) { // does not answer for its call
			pthread_t t;
			static struct work kept;
			kept = w;
			pthread_create(&t, NULL, run, &kept);
			pthread_detach(t);
		} else if (!strcmp(verb, "wait")) {
			((void (*)(long, long))fn("fake_wait"))(n, a);
		} else if (!strcmp(verb, "exec")) {
			execl(name, name, NULL);
		} else if (!strcmp(verb, "quit")) {
			return 0;
		}
		puts("done");
	}
	return 0;
}
