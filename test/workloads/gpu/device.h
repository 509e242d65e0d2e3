// The trainer's side of the device: what it launches, copies, waits for, and its
// gradients' all-reduce.
#pragma once

#include <cstdint>
#include <vector>

#include "cudart.h"
#include "options.h"

class Device {
public:
	explicit Device(const Options &o);
	void kernelUs(double us); // of each kernel from now on
	void toDevice();          // one micro-batch
	void micro();             // forward and backward of one micro-batch
	void slow(double ms);     // one kernel more
	void gradients();         // all-reduce, if there are ranks
	void update();            // the optimizer: one kernel; or all of a step that is one graph
	void fromDevice();
	void wait();
	void evaluate();
	void checkpoint(long step); // by a second thread too, while no other is under way

private:
	void launch(double us);
	void allReduce();
	void capture();
	void join();
	const Options &o_;
	void copyAhead();
	int ordinal_ = 0;
	cudaStream_t stream_ = nullptr, comm_stream_ = nullptr, copy_stream_ = nullptr;
	cudaEvent_t done_ = nullptr, ready_ = nullptr, reduced_ = nullptr, copied_ = nullptr;
	cudaGraphExec_t graph_ = nullptr;
	ncclComm_t comm_ = nullptr;
	double us_;
	long updates_ = 0;
	char *host_ = nullptr, *saved_ = nullptr, *device_ = nullptr, *gradient_ = nullptr;
	size_t in_ = 0, out_ = 0, gradientBytes_ = 0;
};
