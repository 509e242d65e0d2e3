//go:build ignore

#include "device.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "host.h"

namespace {

void check(int error, const char *what)
{
	if (error == 0)
		return;
	note("failed %s: %s", what, cudaGetErrorString(error));
	exit(1);
}
#define CUDA(call) check((call), #call)

void checkNccl(int error, const char *what)
{
	if (error == 0)
		return;
	note("failed %s: %s", what, ncclGetErrorString(error));
	exit(1);
}
#define NCCL(call) checkNccl((call), #call)

constexpr long logEvery = 30; // steps

size_t bytes(double mib) { return static_cast<size_t>(mib * 1048576); }

// What the device runs. Without NVIDIA's compiler there is no code for it: the
// virtual device takes the first argument as the kernel's time in nanoseconds.
void busy(uint64_t) {}

// watchdog ends the process when a rank is gone, as PyTorch's does: NCCL's
// kernel would spin for ever.
void watchdog(ncclComm_t comm)
{
	for (;;) {
		std::this_thread::sleep_for(std::chrono::milliseconds(500));
		int error = 0;
		if (ncclCommGetAsyncError(comm, &error) != 0 || error == 0)
			continue;
		note("nccl: %s", ncclGetErrorString(error));
		ncclCommAbort(comm);
		_exit(1);
	}
}

} // namespace

Device::Device(const Options &o) : o_(o), us_(o.kernelUs), in_(bytes(o.h2dMib)), out_(bytes(o.d2hMib))
{
	int count = 0;
	CUDA(cudaGetDeviceCount(&count));
	ordinal_ = o.device >= 0 ? o.device : o.rank % std::max(count, 1);
	CUDA(cudaSetDevice(ordinal_));
	if (o.sync == "spin" || o.sync == "blocking")
		CUDA(cudaSetDeviceFlags(o.sync == "spin" ? cudaDeviceScheduleSpin : cudaDeviceScheduleBlockingSync));
	CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
	CUDA(cudaEventCreateWithFlags(&done_, cudaEventBlockingSync | cudaEventDisableTiming));
	const size_t most = std::max({in_, out_, bytes(o.checkpointEvery > 0 ? o.checkpointMib : 0), size_t{4}});
	CUDA(cudaMalloc(reinterpret_cast<void **>(&device_), most));
	if (o.pageable || o.staged)
		host_ = static_cast<char *>(calloc(1, most));
	else
		CUDA(cudaHostAlloc(reinterpret_cast<void **>(&host_), most, 0));
	saved_ = host_;
	if (o.saver)
		CUDA(cudaHostAlloc(reinterpret_cast<void **>(&saved_), bytes(o.checkpointMib), 0));
	if (o.ahead) {
		CUDA(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking));
		CUDA(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
		copyAhead();
	}
	join();
	if (o.graph || o.wholeGraph)
		capture();
}

void Device::join()
{
	if (o_.world < 2)
		return;
	setenv("NCCL_COMM_ID", o_.address.c_str(), 1); // rank 0 listens there; the ID need not travel
	ncclUniqueId id;
	NCCL(ncclGetUniqueId(&id));
	NCCL(ncclCommInitRank(&comm_, o_.world, id, o_.rank));
	CUDA(cudaStreamCreateWithFlags(&comm_stream_, cudaStreamNonBlocking));
	CUDA(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
	CUDA(cudaEventCreateWithFlags(&reduced_, cudaEventDisableTiming));
	gradientBytes_ = std::max(bytes(o_.allreduceMib) / static_cast<size_t>(o_.buckets), size_t{4});
	CUDA(cudaMalloc(reinterpret_cast<void **>(&gradient_), gradientBytes_));
	std::thread(watchdog, comm_).detach();
}

void Device::launch(double us)
{
	uint64_t ns = static_cast<uint64_t>(us * 1000);
	void *args[] = {&ns};
	dim3 grid, block;
	grid.x = 1024;
	block.x = 256;
	burnShort(o_.launchUs / 1e6);
	CUDA(cudaLaunchKernel(reinterpret_cast<const void *>(&busy), grid, block, args, 0, stream_));
}

void Device::capture()
{
	cudaGraph_t graph;
	CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
	for (int i = 0; i < (o_.wholeGraph ? o_.accumulate : 1) * o_.kernels; i++)
		launch(us_);
	if (o_.wholeGraph) {
		allReduce();
		launch(std::min(us_, 100.0));
	}
	CUDA(cudaStreamEndCapture(stream_, &graph));
	CUDA(cudaGraphInstantiate(&graph_, graph, 0));
}

void Device::kernelUs(double us)
{
	us_ = us;
	if (graph_)
		capture();
}

void Device::toDevice()
{
	if (in_ == 0)
		return;
	if (o_.ahead) { // what was copied meanwhile, and then the next
		CUDA(cudaStreamWaitEvent(stream_, copied_, 0));
		copyAhead();
	} else if (o_.pageable)
		CUDA(cudaMemcpy(device_, host_, in_, cudaMemcpyHostToDevice));
	else
		CUDA(cudaMemcpyAsync(device_, host_, in_, cudaMemcpyHostToDevice, stream_));
}

void Device::copyAhead()
{
	CUDA(cudaMemcpyAsync(device_, host_, in_, cudaMemcpyHostToDevice, copy_stream_));
	CUDA(cudaEventRecord(copied_, copy_stream_));
}

void Device::micro()
{
	if (o_.wholeGraph)
		return;
	if (graph_) {
		CUDA(cudaGraphLaunch(graph_, stream_));
		return;
	}
	for (int i = 0; i < o_.kernels; i++)
		launch(us_);
}

void Device::slow(double ms) { launch(ms * 1000); }

void Device::gradients()
{
	if (!o_.wholeGraph)
		allReduce();
}

void Device::allReduce()
{
	if (!comm_)
		return;
	CUDA(cudaEventRecord(ready_, stream_));
	CUDA(cudaStreamWaitEvent(comm_stream_, ready_, 0));
	for (int i = 0; i < o_.buckets; i++)
		NCCL(ncclAllReduce(gradient_, gradient_, gradientBytes_ / 4, ncclFloat32, ncclSum, comm_, comm_stream_));
	CUDA(cudaEventRecord(reduced_, comm_stream_));
	CUDA(cudaStreamWaitEvent(stream_, reduced_, 0));
}

void Device::update()
{
	if (!o_.wholeGraph) {
		launch(std::min(us_, 100.0));
		return;
	}
	CUDA(cudaGraphLaunch(graph_, stream_));
	if (++updates_ % logEvery == 0) // the loss of all ranks, for the log
		allReduce();
}

void Device::fromDevice()
{
	if (out_ > 0)
		CUDA(cudaMemcpyAsync(host_, device_, out_, cudaMemcpyDeviceToHost, stream_));
}

void Device::wait()
{
	if (o_.sync == "device") {
		CUDA(cudaDeviceSynchronize());
	} else if (o_.sync == "event") {
		CUDA(cudaEventRecord(done_, stream_));
		CUDA(cudaEventSynchronize(done_));
	} else if (o_.sync == "poll") {
		CUDA(cudaEventRecord(done_, stream_));
		while (cudaEventQuery(done_) != 0)
			;
	} else if (o_.sync == "item") { // loss.item(): a blocking copy of four bytes in stream order
		CUDA(cudaMemcpyAsync(host_, device_, 4, cudaMemcpyDeviceToHost, stream_));
		CUDA(cudaStreamSynchronize(stream_));
	} else {
		CUDA(cudaStreamSynchronize(stream_));
	}
}

void Device::evaluate()
{
	const int kernels = o_.evalKernels >= 0 ? o_.evalKernels : std::max(1, o_.kernels / 3);
	for (int b = 0; b < o_.evalBatches; b++) {
		toDevice();
		for (int i = 0; i < kernels; i++)
			launch(us_);
		CUDA(cudaMemcpyAsync(host_, device_, 4, cudaMemcpyDeviceToHost, stream_));
		wait();
	}
}

void Device::checkpoint(long step)
{
	const size_t size = bytes(o_.checkpointMib);
	const std::string path = o_.checkpointDir + "/checkpoint." + std::to_string(o_.rank), part = path + ".part";
	CUDA(cudaSetDevice(ordinal_)); // of this thread
	CUDA(cudaMemcpy(saved_, device_, size, cudaMemcpyDeviceToHost));
	const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	size_t done = 0;
	while (fd >= 0 && done < size) {
		const ssize_t n = write(fd, saved_ + done, std::min(size - done, size_t{1} << 20));
		if (n <= 0)
			break;
		done += static_cast<size_t>(n);
	}
	if (fd < 0 || done < size || fsync(fd) != 0 || close(fd) != 0 || rename(part.c_str(), path.c_str()) != 0) {
		note("failed checkpoint %s at step %ld: %s", path.c_str(), step, strerror(errno));
		exit(1);
	}
}
