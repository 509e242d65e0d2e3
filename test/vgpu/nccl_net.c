//go:build ignore

/* Sockets of the virtual libnccl: which address to offer, connections with a
 * deadline, and one engine that drives any set of transfers together. */
#define _GNU_SOURCE
#include "nccl_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* matches reads NCCL_SOCKET_IFNAME as NCCL does: names by prefix, comma between
 * them, "=" for whole names, "^" for all others. */
static int matches(const char *list, const char *name)
{
	int not = *list == '^', exact = 0, hit = 0;
	list += not;
	exact = *list == '=';
	list += exact;
	while (*list && !hit) {
		size_t n = strcspn(list, ",");
		hit = n > 0 && strncmp(list, name, n) == 0 && (!exact || name[n] == 0);
		list += n + (list[n] == ',');
	}
	return hit != not;
}

/* rank_of an interface: lower is better; -1 is never. Without a wish NCCL takes
 * lo and docker's bridge last. */
static int preference(const struct ifaddrs *i, const char *wish)
{
	if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP))
		return -1;
	if (wish && *wish)
		return matches(wish, i->ifa_name) ? 0 : -1;
	if (i->ifa_flags & IFF_LOOPBACK)
		return 2;
	return strncmp(i->ifa_name, "docker", 6) == 0 ? 1 : 0;
}

int vgn_local_address(struct sockaddr_in *out)
{
	const char *wish = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all;
	int best = -1;
	if (getifaddrs(&all))
		return -1;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		int p = preference(i, wish);
		if (p < 0 || (best >= 0 && p >= best))
			continue;
		best = p;
		memcpy(out, i->ifa_addr, sizeof *out);
		out->sin_port = 0;
	}
	freeifaddrs(all);
	return best < 0 ? -1 : 0;
}

static int prepared(int fd)
{
	int one = 1;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

int vgn_listen(const struct sockaddr_in *want, struct sockaddr_in *got)
{
	socklen_t len = sizeof *got;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (const void *)want, sizeof *want) || listen(fd, VGN_MAX_RANKS) ||
	    getsockname(fd, (void *)got, &len)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int try_connect(const struct sockaddr_in *to, int timeout_ms)
{
	int err = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof err;
	if (fd < 0)
		return -1;
	prepared(fd);
	if (connect(fd, (const void *)to, sizeof *to) == 0)
		return fd;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	if (errno == EINPROGRESS && poll(&p, 1, timeout_ms) == 1 &&
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0)
		return fd;
	close(fd);
	return -1;
}

/* The other side may start later: refusals are tried again until the deadline. */
int vgn_connect(const struct sockaddr_in *to, int timeout_ms)
{
	const struct timespec pause = {.tv_nsec = 20 * 1000000};
	int64_t end = now_ms() + timeout_ms;
	for (;;) {
		int64_t left = end - now_ms();
		int fd = left > 0 ? try_connect(to, (int)left) : -1;
		if (fd >= 0 || left <= 0)
			return fd;
		nanosleep(&pause, NULL);
	}
}

int vgn_accept(int listener, int timeout_ms)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	int n;
	do
		n = poll(&p, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		return -1;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	return fd < 0 ? -1 : prepared(fd);
}

/* step moves what can be moved without blocking: 1 something moved, 0 nothing, -1 the peer is gone. */
static int step(struct vgn_xfer *x)
{
	size_t left = x->bytes - x->done;
	ssize_t n = x->out ? send(x->fd, x->buf + x->done, left, MSG_NOSIGNAL | MSG_DONTWAIT)
	                   : recv(x->fd, x->buf + x->done, left, MSG_DONTWAIT);
	if (n > 0) {
		x->done += (size_t)n;
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	return -1;
}

/* blocked_by_earlier: transfers of one socket and direction keep their order. */
static int blocked_by_earlier(const struct vgn_xfer *x, int i)
{
	for (int k = 0; k < i; k++)
		if (x[k].fd == x[i].fd && x[k].out == x[i].out && x[k].done < x[k].bytes)
			return 1;
	return 0;
}

/* sweep tries all transfers once and lists what to wait for; -1 on a dead peer. */
static int sweep(struct vgn_xfer *x, int n, struct pollfd *p, int *moved)
{
	int waiting = 0;
	for (int i = 0; i < n; i++) {
		while (x[i].done < x[i].bytes && !blocked_by_earlier(x, i)) {
			int r = step(&x[i]);
			if (r < 0)
				return -1;
			if (r == 0) {
				p[waiting++] = (struct pollfd){.fd = x[i].fd, .events = x[i].out ? POLLOUT : POLLIN};
				break;
			}
			*moved = 1;
		}
	}
	return waiting;
}

ncclResult_t vgn_move(struct vgn_xfer *x, int n, int wake, int timeout_ms, int spin)
{
	struct pollfd *p = calloc((size_t)n + 1, sizeof *p);
	ncclResult_t result = ncclSuccess;
	if (!p)
		return ncclSystemError;
	for (;;) {
		int moved = 0, waiting = sweep(x, n, p, &moved);
		if (waiting <= 0) {
			result = waiting < 0 ? ncclRemoteError : ncclSuccess;
			break;
		}
		int count = waiting;
		if (wake >= 0)
			p[count++] = (struct pollfd){.fd = wake, .events = POLLIN};
		int ready = poll(p, (nfds_t)count, spin ? 0 : timeout_ms);
		if (spin && ready == 0)
			sched_yield();
		if ((ready == 0 && !spin) || (wake >= 0 && ready > 0 && p[waiting].revents)) {
			result = ready == 0 ? ncclSystemError : ncclInProgress; /* deadline, or aborted */
			break;
		}
	}
	free(p);
	return result;
}
