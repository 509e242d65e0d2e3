//go:build ignore

#include "options.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace {

struct Option {
	const char *name, *help;
	std::function<bool(const char *)> set; // false: not a value; flags take none
	bool flag = false;
};

std::function<bool(const char *)> into(double &to)
{
	return [&to](const char *v) {
		char *end;
		to = strtod(v, &end);
		return *v && !*end;
	};
}

template <typename Int> std::function<bool(const char *)> whole(Int &to)
{
	return [&to](const char *v) {
		char *end;
		to = static_cast<Int>(strtol(v, &end, 10));
		return *v && !*end;
	};
}

std::function<bool(const char *)> into(std::string &to)
{
	return [&to](const char *v) {
		to = v;
		return *v != 0;
	};
}

std::function<bool(const char *)> on(bool &to)
{
	return [&to](const char *) { return to = true; };
}

std::function<bool(const char *)> one(std::string &to, std::vector<std::string> values)
{
	return [&to, values](const char *v) {
		for (const auto &each : values)
			if (each == v) {
				to = v;
				return true;
			}
		return false;
	};
}

// RANK/WORLD/HOST:PORT
bool placed(Options &o, const char *v)
{
	int n = 0;
	if (sscanf(v, "%d/%d/%n", &o.rank, &o.world, &n) != 2 || n == 0)
		return false;
	o.address = v + n;
	return o.rank >= 0 && o.rank < o.world && o.address.find(':') != std::string::npos;
}

std::vector<Option> options(Options &o)
{
	return {
	    {"every", "steps per printed line", whole(o.every)},
	    {"steps", "end after so many (0: never)", whole(o.steps)},
	    {"seconds", "end after so many (0: never)", into(o.seconds)},
	    {"device", "ordinal (default: rank modulo devices)", whole(o.device)},
	    {"kernels", "launches per step", whole(o.kernels)},
	    {"kernel-us", "device time of each", into(o.kernelUs)},
	    {"launch-us", "the trainer's CPU for each launch", into(o.launchUs)},
	    {"graph", "the kernels are one graph, one launch a step", on(o.graph), true},
	    {"whole-graph", "the step is one graph and one launch, its all-reduce and update within; every 30th reduces the loss too", on(o.wholeGraph), true},
	    {"tiny", "--kernels 2000 --kernel-us 5 --launch-us 10",
	     [&o](const char *) {
		     o.kernels = 2000, o.kernelUs = 5, o.launchUs = 10;
		     return true;
	     },
	     true},
	    {"sync", "stream, device, event, blocking, spin, item, poll",
	     one(o.sync, {"stream", "device", "event", "blocking", "spin", "item", "poll"})},
	    {"wait-every", "steps between waits for the device (0: never waits)", whole(o.waitEvery)},
	    {"h2d-mib", "copied to the device per micro-batch", into(o.h2dMib)},
	    {"d2h-mib", "copied back per step", into(o.d2hMib)},
	    {"pageable", "the copy to the device blocks (no pinned memory)", on(o.pageable), true},
	    {"staged", "the copy to the device is asynchronous, from memory that is not pinned", on(o.staged), true},
	    {"ahead", "a second stream copies the next micro-batch while the device computes", on(o.ahead), true},
	    {"accumulate", "micro-batches per step", whole(o.accumulate)},
	    {"host-ms", "the trainer's own CPU per micro-batch", into(o.hostMs)},
	    {"loader-threads", "0: no loaders", whole(o.loaderThreads)},
	    {"loader-ms", "CPU per batch", into(o.loaderMs)},
	    {"queue", "batches ready at most", whole(o.queue)},
	    {"loader-file", "read --loader-read-mib of it per batch, never from the cache", into(o.loaderFile)},
	    {"loader-read-mib", "", into(o.loaderReadMib)},
	    {"phase-change-at", "seconds after which the values of --kernel-us2 and so on hold", into(o.phaseChangeAt)},
	    {"kernel-us2", "", into(o.kernelUs2)},
	    {"loader-ms2", "", into(o.loaderMs2)},
	    {"host-ms2", "", into(o.hostMs2)},
	    {"eval-every", "steps between evaluations (0: none)", whole(o.evalEvery)},
	    {"eval-batches", "", whole(o.evalBatches)},
	    {"eval-kernels", "per batch (default: a third of --kernels)", whole(o.evalKernels)},
	    {"checkpoint-every", "steps between checkpoints (0: none)", whole(o.checkpointEvery)},
	    {"checkpoint-mib", "", into(o.checkpointMib)},
	    {"saver", "a second thread copies out and writes checkpoints; one that is due meanwhile is left out", on(o.saver), true},
	    {"checkpoint-dir", "", into(o.checkpointDir)},
	    {"pause-at", "seconds after which the trainer sleeps, its memory held", into(o.pauseAt)},
	    {"pause-seconds", "0: for ever", into(o.pauseSeconds)},
	    {"nccl", "RANK/WORLD/HOST:PORT of rank 0", [&o](const char *v) { return placed(o, v); }},
	    {"ranks", "that many ranks as processes of this one, each on its device", whole(o.ranks)},
	    {"allreduce-mib", "gradients per step", into(o.allreduceMib)},
	    {"buckets", "all-reduces that they are cut into", whole(o.buckets)},
	    {"slow-rank", "", whole(o.slowRank)},
	    {"slow-ms", "what it needs beyond the others, per step", into(o.slowMs)},
	    {"slow-on", "host (CPU), device, sleep", one(o.slowOn, {"host", "device", "sleep"})},
	    {"log", "each rank writes its step lines to LOG.RANK", into(o.log)},
	};
}

[[noreturn]] void usage(const std::vector<Option> &all, const char *wrong)
{
	fprintf(stderr, "trainer: %s is not an option, or its value cannot be read; the options are\n", wrong);
	for (const auto &each : all)
		fprintf(stderr, "  --%s%s  %s\n", each.name, each.flag ? "" : " V", each.help);
	exit(2);
}

} // namespace

Options parse(int argc, char **argv)
{
	Options o;
	const auto all = options(o);
	for (int i = 1; i < argc; i++) {
		const Option *hit = nullptr;
		for (const auto &each : all)
			if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, each.name) == 0)
				hit = &each;
		if (!hit || (!hit->flag && i + 1 == argc))
			usage(all, argv[i]);
		const char *name = argv[i];
		if (!hit->set(hit->flag ? "" : argv[++i]))
			usage(all, name);
	}
	if (o.ahead && o.pageable)
		usage(all, "--ahead with --pageable");
	if (o.every < 1 || o.accumulate < 1 || o.queue < 1 || o.kernels < 0 || o.buckets < 1)
		usage(all, "a count below 1");
	return o;
}
