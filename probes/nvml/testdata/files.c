// A library that was taken over: nvmlInit_v2 tries files that it must not reach, and those that a
// library needs. It answers 9, "the driver is not loaded", where all is as it should be, and else
// 1000 and the number of the first line that is not. STATE is a folder with a file "secret", which
// its user ID may read and write.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define KEPT(call, why) do { errno = 0; if ((long)(call) != -1 || errno != (why)) return 1000 + __LINE__; } while (0)
#define WORKS(what) do { if (!(what)) return 1000 + __LINE__; } while (0)

static int tries(void) {
	char path[128];
	KEPT(open(STATE "/secret", O_RDONLY), EACCES);
	KEPT(open(STATE "/secret", O_WRONLY), EACCES);
	KEPT(open(STATE, O_RDONLY | O_DIRECTORY), EACCES);
	KEPT(open(STATE "/made", O_WRONLY | O_CREAT, 0600), EACCES);
	KEPT(open("/etc/passwd", O_RDONLY), EACCES);
	KEPT(open("/", O_RDONLY | O_DIRECTORY), EACCES);
	KEPT(open("/dev", O_RDONLY | O_DIRECTORY), EACCES);
	KEPT(open("/dev/tty", O_RDWR), EACCES); // as a disk
	KEPT(open("/run", O_RDONLY | O_DIRECTORY), EACCES);
	KEPT(mkdir(STATE "/made", 0700), EACCES);
	KEPT(unlink(STATE "/secret"), EACCES);
	KEPT(rename(STATE "/secret", STATE "/moved"), EACCES);
	KEPT(symlink("/", STATE "/made"), EACCES);
	KEPT(mkfifo(STATE "/made", 0600), EACCES);
	// What no rule of the kernel's is for the filter of system calls to refuse.
	KEPT(chmod(STATE "/secret", 0666), EPERM);
	KEPT(fchmodat(AT_FDCWD, STATE "/secret", 0666, 0), EPERM);
	KEPT(chown(STATE "/secret", 1, 1), EPERM);
	KEPT(truncate(STATE "/secret", 0), EPERM);
	KEPT(utimensat(AT_FDCWD, STATE "/secret", NULL, 0), EPERM);
	KEPT(setxattr(STATE "/secret", "user.a", "", 0, 0), EPERM);
	// The way round by the parent, which has the whole host before it.
	sprintf(path, "/proc/%d/root" STATE "/secret", getppid());
	KEPT(open(path, O_RDONLY), EACCES);
	sprintf(path, "/proc/%d/environ", getppid());
	KEPT(open(path, O_RDONLY), EACCES);
	KEPT(open("/proc/self/root" STATE "/secret", O_RDONLY), EACCES);
	// Folders that may be read are not to be written.
	KEPT(open(OWN, O_RDWR), EACCES);
	KEPT(open("/proc/self/comm", O_WRONLY), EACCES);
	KEPT(open("/proc/self/oom_score_adj", O_WRONLY), EACCES);

	int f = open(OWN, O_RDONLY);
	WORKS(f >= 0);
	WORKS(open("/dev/null", O_RDWR) >= 0 && open("/dev/urandom", O_RDONLY) >= 0);
	WORKS(open("/proc/self/status", O_RDONLY) >= 0 && open("/proc/meminfo", O_RDONLY) >= 0);
	WORKS(opendir("/sys/bus/pci/devices") || errno == ENOENT); // a host without PCI
	WORKS(dlopen("libm.so.6", RTLD_NOW) != NULL);
	return 9;
}

static void *other(void *said) {
	*(int *)said = tries();
	return NULL;
}

int nvmlInit_v2(void) {
	int with_parent = 0; // started anew, it still dies with the daemon: the kernel keeps that by thread
	WORKS(prctl(PR_GET_PDEATHSIG, &with_parent) == 0 && with_parent == SIGKILL);
	pthread_t t;
	int said = tries(), its = 0;
	if (said == 9 && pthread_create(&t, NULL, other, &its) == 0 && pthread_join(t, NULL) == 0)
		return its;
	return said;
}
