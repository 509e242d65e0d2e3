//go:build ignore

// A training job in C++ on CUDA's runtime: one loop whose parts are all options,
// so that a job with any bottleneck is a line of options and not a program. It
// knows nothing of the virtual GPU and links against the ordinary names.
//
// A step: take a batch from the loaders; for each micro-batch the trainer's own
// CPU, the copy to the device, the kernels; all-reduce; update; wait. With C CPU
// seconds, K = accumulate * kernels * kernel-us, and L launches a step
//
//     step = max( loader-ms / loader-threads,
//                 host-ms*accumulate + L*(launch-us + the call itself) + what of K does not overlap with it + copies )
//
// Truth by construction, on a device of its own and CPUs enough for the threads
// unless said; "balanced" is where neither waits 5 % of the step.
//
//     options                                                                  truth
//     --kernels 20 --kernel-us 2000 [--sync any]                               compute/device
//     the same with --graph, --sync spin|blocking|event|item|poll              compute/device
//     the same with --wait-every 0 or 50: the launch queue fills, and          compute/device
//         the trainer spins in a launch
//     the same, two containers on one device                                   compute/shared, both
//     --kernels 4 --kernel-us 2000 --loader-threads 2 --loader-ms 60           input/workers (cores free, no quota)
//     the same in a quota of half of what the loaders need                     input/throttled
//     the same beside busier neighbours, weight low                            input/contended
//     --loader-threads 2 --loader-ms 2 --loader-file F --loader-read-mib 24    input/storage (F on a slow disk)
//     --kernels 4 --kernel-us 1000 --h2d-mib 512 --pageable                    input, cause not told apart: blocking
//                                                                              copies of 512 MiB (PCIe-bound)
//     --kernels 4 --kernel-us 2000 --h2d-mib 64 --staged                       compute: copies from pageable memory that
//                                                                              block, though they are asynchronous
//     --tiny                                                                   compute/host: launch-bound, the
//                                                                              device idles half of the time
//     --kernels 50 --kernel-us 100 --host-ms 60                                compute/host
//     --loader-threads 4 --loader-ms 20 --kernels 10 --kernel-us 2000          balanced to compute/device: loaders ahead
//     --loader-threads 2 --loader-ms 100 --kernels 4 --kernel-us 2000
//         --phase-change-at 30 --loader-ms2 2 --kernel-us2 10000               input/workers, after 30 s compute/device
//     --kernels 20 --kernel-us 2000 --eval-every 100 --eval-batches 60         compute/device; evaluation is no evidence
//     --kernels 20 --kernel-us 2000 --checkpoint-every 100                     compute/device; checkpoints are no evidence
//     the same with --saver, or with --h2d-mib 32 --ahead                      compute/device
//     --kernels 20 --kernel-us 2000 --pause-at 20                              idle, memory held, after 20 s
//     without --pause-at and --phase-change-at: SIGUSR1 pauses, SIGUSR2        the same, from then on
//         changes the phase (of one rank)
//     --accumulate 4 ...                                                       as without: four micro-batches a step
//     --nccl R/W/A --kernels 10 --kernel-us 1000 --allreduce-mib 24,
//         link of 200 Mbit/s                                                   communication/network, every rank
//     --nccl R/W/A --allreduce-mib 1 --slow-rank 1 --slow-ms 80 [--slow-on X]  communication/straggler, all but rank 1;
//                                                                              rank 1: compute/host (X host),
//                                                                              compute/device (device), unknown (sleep)
//     the same with --whole-graph: collectives are called every 30 steps               the same
//     --ranks 8 ... the same in one container                                  communication/straggler, which names the rank
//     --nccl R/W/A --kernels 20 --kernel-us 2000 --allreduce-mib 1, loopback   compute/device
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "device.h"
#include "host.h"
#include "options.h"

namespace {

// A signal may come before any step that waits for it. It stays pending: a handler would cut calls short.
const int pauseSignal = SIGUSR1, phaseSignal = SIGUSR2;

void hold() // before any thread is there
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, pauseSignal);
	sigaddset(&s, phaseSignal);
	sigprocmask(SIG_BLOCK, &s, nullptr);
}

bool told(int signal)
{
	sigset_t s;
	return sigpending(&s) == 0 && sigismember(&s, signal) == 1;
}

// Changing is the job's second half, whose bottleneck is another one.
class Changing {
public:
	Changing(const Options &o, Device &device, Loaders &loaders) : o_(o), device_(device), loaders_(loaders), hostMs_(o.hostMs) {}
	double hostMs() const { return hostMs_; }
	void look(double elapsed)
	{
		if (changed_ || !((o_.phaseChangeAt > 0 && elapsed >= o_.phaseChangeAt) || told(phaseSignal)))
			return;
		changed_ = true;
		if (o_.kernelUs2 >= 0)
			device_.kernelUs(o_.kernelUs2);
		if (o_.loaderMs2 >= 0)
			loaders_.cost(o_.loaderMs2);
		if (o_.hostMs2 >= 0)
			hostMs_ = o_.hostMs2;
		note("phase 2 at t=%.6f", now());
	}

private:
	const Options &o_;
	Device &device_;
	Loaders &loaders_;
	double hostMs_;
	bool changed_ = false;
};

void beSlow(const Options &o, Device &device)
{
	if (o.rank != o.slowRank || o.slowMs <= 0)
		return;
	if (o.slowOn == "device")
		device.slow(o.slowMs);
	else if (o.slowOn == "sleep")
		usleep(static_cast<useconds_t>(o.slowMs * 1000));
	else
		burn(o.slowMs / 1000);
}

void pause(const Options &o, double elapsed)
{
	static bool paused;
	if (paused || !((o.pauseAt > 0 && elapsed >= o.pauseAt) || told(pauseSignal)))
		return;
	paused = true;
	note("pause at t=%.6f", now());
	do
		sleep(o.pauseSeconds > 0 ? static_cast<unsigned>(o.pauseSeconds) : 3600);
	while (o.pauseSeconds <= 0);
}

// Saver writes checkpoints in a thread of its own.
class Saver {
public:
	void save(Device &device, long step)
	{
		if (!busy_.exchange(true))
			std::thread([this, &device, step] {
				device.checkpoint(step);
				busy_ = false;
			}).detach();
	}

private:
	std::atomic<bool> busy_ = false;
};

void between(const Options &o, Device &device, long step)
{
	if (o.evalEvery > 0 && step % o.evalEvery == 0)
		device.evaluate();
	static Saver saver;
	if (o.checkpointEvery == 0 || step % o.checkpointEvery != 0 || o.rank != 0)
		return;
	if (o.saver)
		saver.save(device, step);
	else
		device.checkpoint(step);
}

int train(const Options &o)
{
	calibrate();
	Device device(o);
	Loaders loaders(o);
	Changing now(o, device, loaders);
	note("trainer rank=%d world=%d kernels=%d kernel_us=%g graph=%d sync=%s loaders=%d", o.rank, o.world, o.kernels,
	     o.kernelUs, o.graph, o.sync.c_str(), o.loaderThreads);
	StepLog log(o, o.rank == 0);
	for (long n = 1;; n++) {
		for (int m = 0; m < o.accumulate; m++) {
			loaders.take();
			if (now.hostMs() > 0)
				burn(now.hostMs() / 1000);
			device.toDevice();
			device.micro();
		}
		beSlow(o, device);
		device.gradients();
		device.update();
		device.fromDevice();
		if (o.waitEvery > 0 && n % o.waitEvery == 0)
			device.wait();
		if (log.done())
			return 0;
		between(o, device, log.step());
		now.look(log.elapsed());
		pause(o, log.elapsed());
	}
}

int freePort()
{
	sockaddr_in a = {};
	socklen_t length = sizeof a;
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_family = AF_INET;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, reinterpret_cast<sockaddr *>(&a), sizeof a) || getsockname(fd, reinterpret_cast<sockaddr *>(&a), &length)) {
		perror("trainer: a port for the ranks");
		exit(1);
	}
	close(fd);
	return ntohs(a.sin_port);
}

// Forks before CUDA is touched; a rank that ends ends all, as torchrun does.
int trainRanks(Options o)
{
	o.world = o.ranks;
	o.address = "127.0.0.1:" + std::to_string(freePort());
	std::vector<pid_t> ranks;
	for (o.rank = 0; o.rank < o.world; o.rank++) {
		const pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(train(o));
		}
		ranks.push_back(pid);
	}
	int status = 0;
	const pid_t first = wait(&status);
	if (first > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		sleep(1); // the others are in the same step, and log it
	for (const pid_t pid : ranks)
		if (pid > 0 && pid != first)
			kill(pid, SIGTERM);
	while (wait(nullptr) > 0) {
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

} // namespace

int main(int argc, char **argv)
{
	const Options o = parse(argc, argv);
	setvbuf(stdout, nullptr, _IOLBF, 0);
	hold();
	return o.ranks > 1 ? trainRanks(o) : train(o);
}
