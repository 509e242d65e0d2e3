// The options of trainer.cpp. The table of what they make true is in trainer.cpp.
#pragma once

#include <string>
#include <vector>

struct Options {
	// how long
	long every = 1, steps = 0;
	double seconds = 0;
	// device
	int device = -1; // rank modulo the devices there are
	int kernels = 20;
	double kernelUs = 1000;
	double launchUs = 0; // the trainer's own CPU for each launch, as a framework's dispatch
	bool graph = false, wholeGraph = false;
	std::string sync = "stream"; // stream, device, event, blocking, spin, item, poll
	long waitEvery = 1;          // steps; 0: never
	double h2dMib = 0, d2hMib = 0;
	bool pageable = false, staged = false, ahead = false;
	int accumulate = 1;
	// host
	double hostMs = 0;
	int loaderThreads = 0;
	double loaderMs = 0;
	int queue = 4;
	std::string loaderFile;
	double loaderReadMib = 0;
	// phases
	double phaseChangeAt = 0;
	double kernelUs2 = -1, loaderMs2 = -1, hostMs2 = -1;
	int evalEvery = 0, evalBatches = 10, evalKernels = -1;
	int checkpointEvery = 0;
	bool saver = false;
	double checkpointMib = 64;
	std::string checkpointDir = "/tmp";
	double pauseAt = 0, pauseSeconds = 0;
	// ranks
	int rank = 0, world = 1, ranks = 0;
	std::string address;
	double allreduceMib = 16;
	int buckets = 1;
	int slowRank = -1;
	double slowMs = 0;
	std::string slowOn = "host"; // host, device, sleep
	std::string log;
};

// parse ends the process with the list of options on any mistake.
Options parse(int argc, char **argv);
