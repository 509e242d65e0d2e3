// A training loop for NVIDIA's compiler and runtime: a step copies a batch to the device,
// launches five kernels and waits. It does what it is told, one line a command.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

static const int len = 1 << 16, kernels = 5;

__global__ void update(float *weights, const float *batch, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		weights[i] += 0.1f * batch[i];
}

static void must(const char *what, cudaError_t r)
{
	if (r) {
		printf("%s: %s (%d)\n", what, cudaGetErrorString(r), r);
		exit(1);
	}
}

struct model {
	float *weights, *batch, *host;
	cudaStream_t stream;
	cudaEvent_t event;
};

static void launches(const model &m)
{
	for (int k = 0; k < kernels; k++)
		update<<<len / 256, 256, 0, m.stream>>>(m.weights, m.batch, len);
	must("launch", cudaGetLastError());
}

static void steps(const model &m, int n)
{
	for (int i = 0; i < n; i++) {
		must("copy", cudaMemcpyAsync(m.batch, m.host, len * sizeof(float), cudaMemcpyHostToDevice, m.stream));
		launches(m);
		must("event", cudaEventRecord(m.event, m.stream));
		must("wait", cudaStreamSynchronize(m.stream));
		must("event's query", cudaEventQuery(m.event));
	}
}

static void graphs(const model &m, int n)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	must("capture", cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeGlobal));
	launches(m);
	must("end of capture", cudaStreamEndCapture(m.stream, &graph));
	must("instantiate", cudaGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < n; i++)
		must("graph launch", cudaGraphLaunch(exec, m.stream));
	must("wait", cudaStreamSynchronize(m.stream));
	must("graph's end", cudaGraphExecDestroy(exec));
	must("graph's end", cudaGraphDestroy(graph));
}

int main()
{
	char line[64];
	int n;
	model m;
	setvbuf(stdout, NULL, _IOLBF, 0);
	must("device", cudaSetDevice(0));
	must("memory", cudaMalloc(&m.weights, len * sizeof(float)));
	must("memory", cudaMalloc(&m.batch, len * sizeof(float)));
	must("pinned memory", cudaMallocHost(&m.host, len * sizeof(float)));
	must("stream", cudaStreamCreate(&m.stream));
	must("event", cudaEventCreate(&m.event));
	must("zeros", cudaMemset(m.weights, 0, len * sizeof(float)));
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "steps %d", &n) == 1)
			steps(m, n);
		else if (sscanf(line, "graphs %d", &n) == 1)
			graphs(m, n);
		puts("done");
	}
	must("end", cudaFree(m.weights));
	return 0;
}
