// A library that was taken over: nvmlInit_v2 tries what it must not be able to, and what a library
// needs. It answers 9, "the driver is not loaded", where all is as it should be, and else 1000 and
// the number of the first line that is not.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define REFUSED(call) do { errno = 0; if ((long)(call) != -1 || errno != EPERM) return 1000 + __LINE__; } while (0)
#define WORKS(what) do { if (!(what)) return 1000 + __LINE__; } while (0)

static void *thread(void *seen) { *(int *)seen = 1; return NULL; }

static sigjmp_buf before;
static void back(int signal) { siglongjmp(before, signal); }

// connects by the 32-bit calls, which have numbers of their own. A kernel without them sends SIGSEGV.
static int other(void) {
#ifdef __x86_64__
	struct sigaction to = {.sa_handler = back}, was;
	long r = -1;
	if (sigaction(SIGSEGV, &to, &was) != 0) return 0;
	if (sigsetjmp(before, 1) == 0) {
		__asm__ volatile("int $0x80" : "=a"(r) : "a"(359), "b"(AF_UNIX), "c"(SOCK_STREAM), "d"(0) : "memory", "r8", "r9", "r10", "r11");
		if (r >= 0) return 0;
	}
	sigaction(SIGSEGV, &was, NULL);
	return syscall(0x40000000 | SYS_socket, AF_UNIX, SOCK_STREAM, 0) == -1;
#else
	return 1;
#endif
}

int nvmlInit_v2(void) {
	struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = SOCKET};
	int ends[2], seen = 0, s = socket(AF_UNIX, SOCK_STREAM, 0);
	if (s >= 0 && connect(s, (struct sockaddr *)&at, sizeof at) == 0) return 1000; // a root's engine answers
	REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
	REFUSED(socket(AF_INET, SOCK_STREAM, 0));
	REFUSED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	REFUSED(connect(0, (struct sockaddr *)&at, sizeof at));
	REFUSED(sendto(0, "", 1, 0, (struct sockaddr *)&at, sizeof at));
	REFUSED(syscall(SYS_io_uring_setup, 1, NULL));
	WORKS(other());

	pid_t parent = getppid();
	REFUSED(kill(parent, 0));
	REFUSED(syscall(SYS_tgkill, parent, parent, 0));
	REFUSED(syscall(SYS_pidfd_open, parent, 0));
	REFUSED(ptrace(PTRACE_SEIZE, parent, 0, 0));
	REFUSED(syscall(SYS_process_vm_readv, parent, NULL, 0, NULL, 0, 0));
	REFUSED(fcntl(0, F_SETOWN, parent));
	struct rlimit files;
	REFUSED(prlimit(parent, RLIMIT_NOFILE, NULL, &files));
	cpu_set_t cpus;
	WORKS(sched_getaffinity(parent, sizeof cpus, &cpus) == 0);
	REFUSED(sched_setaffinity(parent, sizeof cpus, &cpus));
	REFUSED(setpriority(PRIO_PROCESS, parent, 0));

	REFUSED(unshare(CLONE_NEWUSER));
	REFUSED(fork());
	REFUSED(vfork());
	errno = 0;
	WORKS(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS); // the C library takes clone
	REFUSED(execl("/bin/true", "true", NULL));
	WORKS(system("true") != 0); // as nvidia-modprobe is started

	pthread_t t;
	WORKS(pthread_create(&t, NULL, thread, &seen) == 0 && pthread_join(t, NULL) == 0 && seen);
	WORKS(kill(getpid(), 0) == 0 && raise(SIGCHLD) == 0);
	WORKS(prlimit(0, RLIMIT_NOFILE, NULL, &files) == 0 && sched_setaffinity(0, sizeof cpus, &cpus) == 0);
	WORKS(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	int f = open("/dev/zero", O_RDWR | O_CLOEXEC);
	char buffer[64];
	WORKS(f >= 0 && fcntl(f, F_GETFL) >= 0 && read(f, buffer, sizeof buffer) == sizeof buffer);
	errno = 0;
	WORKS(ioctl(f, 0x46d2, buffer) == -1 && errno == ENOTTY); // the device's word, no filter's
	FILE *status = fopen("/proc/self/status", "r");
	WORKS(status && fgets(buffer, sizeof buffer, status) && fclose(status) == 0);
	return 9;
}
