//go:build ignore

#include "host.h"

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

double clockSeconds(clockid_t id)
{
	timespec t;
	clock_gettime(id, &t);
	return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

double roundsPerSecond = 1e9; // of work(); set once, before any thread starts

uint64_t work(uint64_t rounds)
{
	uint64_t x = rounds | 1;
	for (uint64_t i = 0; i < rounds; i++)
		asm volatile("" : "+r"(x = x * 6364136223846793005ULL + i));
	return x;
}

} // namespace

double now() { return clockSeconds(CLOCK_MONOTONIC); }

void burn(double seconds)
{
	const double end = clockSeconds(CLOCK_THREAD_CPUTIME_ID) + seconds;
	while (clockSeconds(CLOCK_THREAD_CPUTIME_ID) < end)
		work(20000);
}

void calibrate()
{
	const uint64_t rounds = 20'000'000;
	const double start = clockSeconds(CLOCK_THREAD_CPUTIME_ID);
	work(rounds);
	roundsPerSecond = static_cast<double>(rounds) / (clockSeconds(CLOCK_THREAD_CPUTIME_ID) - start);
}

void burnShort(double seconds)
{
	if (seconds > 0)
		work(static_cast<uint64_t>(seconds * roundsPerSecond));
}

void note(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("note ", stdout);
	vprintf(format, args);
	putchar('\n');
	fflush(stdout);
	va_end(args);
}

StepLog::StepLog(const Options &o, bool print)
    : every_(o.every), steps_(o.steps), print_(print), start_(now()), last_(start_),
      end_(o.seconds > 0 ? start_ + o.seconds : 1e18)
{
	if (o.log.empty())
		return;
	const std::string path = o.log + "." + std::to_string(o.rank);
	file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (file_ < 0) {
		perror(path.c_str());
		exit(1);
	}
}

StepLog::~StepLog()
{
	if (file_ >= 0)
		close(file_);
}

void StepLog::line(double t)
{
	char text[96];
	const int n = snprintf(text, sizeof text, "step=%ld t=%.6f dt=%.6f\n", step_, t, (t - last_) / static_cast<double>(every_));
	const auto bytes = static_cast<size_t>(n);
	if (print_ && write(STDOUT_FILENO, text, bytes) != n)
		exit(1); // nobody reads us any more
	if (file_ >= 0 && write(file_, text, bytes) != n)
		perror("trainer: step log");
}

bool StepLog::done()
{
	step_++;
	const double t = now();
	if (step_ % every_ == 0) {
		line(t);
		last_ = t;
	}
	return (steps_ > 0 && step_ >= steps_) || t >= end_;
}

Loaders::Loaders(const Options &o) : o_(o), ms_(o.loaderMs)
{
	for (int i = 0; i < o.loaderThreads; i++)
		threads_.emplace_back([this, i] { run(static_cast<unsigned>(i) + 1); });
	for (auto &t : threads_)
		t.detach(); // they live as long as the process
}

void Loaders::read(int fd, unsigned &seed, std::vector<char> &buffer)
{
	struct stat s;
	const off_t size = static_cast<off_t>(buffer.size());
	if (fstat(fd, &s) != 0 || s.st_size <= size)
		return;
	const off_t pages = (s.st_size - size) / 4096, at = (rand_r(&seed) % pages) * 4096;
	if (pread(fd, buffer.data(), buffer.size(), at) < 0)
		perror("trainer: loader file");
	posix_fadvise(fd, at, size, POSIX_FADV_DONTNEED); // each read is a first touch
}

void Loaders::run(unsigned seed)
{
	const int fd = o_.loaderFile.empty() ? -1 : open(o_.loaderFile.c_str(), O_RDONLY | O_CLOEXEC);
	std::vector<char> buffer(static_cast<size_t>(o_.loaderReadMib * 1048576));
	for (;;) {
		if (fd >= 0)
			read(fd, seed, buffer);
		burn(ms_ / 1000);
		std::unique_lock<std::mutex> held(lock_);
		room_.wait(held, [this] { return batches_ < o_.queue; });
		batches_++;
		ready_.notify_one();
	}
}

void Loaders::take()
{
	if (threads_.empty())
		return;
	std::unique_lock<std::mutex> held(lock_);
	ready_.wait(held, [this] { return batches_ > 0; });
	batches_--;
	room_.notify_one();
}
