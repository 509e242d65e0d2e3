// What a trainer does on the CPU: the step log, CPU time that is really used, loaders.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "options.h"

double now();                   // CLOCK_MONOTONIC, seconds
void burn(double seconds);      // uses that much CPU time of the calling thread, however long it takes
void burnShort(double seconds); // the same for microseconds, without reading a clock; calibrate first
void calibrate();               // of burnShort, by the thread's CPU time

// note prints a fact, once: "note ...".
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

// StepLog prints what test/workloads/steplog.py does.
class StepLog {
public:
	StepLog(const Options &o, bool print);
	~StepLog();
	bool done(); // call after each step; true if the job has done what was asked
	long step() const { return step_; }
	double elapsed() const { return now() - start_; }

private:
	void line(double t);
	const long every_, steps_;
	const bool print_;
	double start_, last_, end_;
	long step_ = 0;
	int file_ = -1; // this rank's own log
};

// Loaders prepare batches in threads and hand them over through a bounded queue.
class Loaders {
public:
	explicit Loaders(const Options &o);
	void take(); // blocks until a batch is ready; at once without loaders
	void cost(double ms) { ms_ = ms; }

private:
	void run(unsigned seed);
	void read(int fd, unsigned &seed, std::vector<char> &buffer);
	const Options &o_;
	std::atomic<double> ms_;
	std::mutex lock_;
	std::condition_variable room_, ready_;
	int batches_ = 0;
	std::vector<std::thread> threads_;
};
