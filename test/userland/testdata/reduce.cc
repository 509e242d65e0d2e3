// Ranks that reduce gradients with NVIDIA's NCCL: all of them, one a device, or with a place and
// a file for the communicator's name one of them. It does what it is told, one line a command.
// Declared here is what NCCL's and CUDA's documentation says.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>

typedef void *comm, *stream;
struct name {
	char bytes[128];
};
enum { FLOAT = 7, SUM = 0, LEN = 1 << 16, MOST = 8 };
extern "C" {
int ncclGetUniqueId(name *);
int ncclCommInitAll(comm *, int, const int *);
int ncclCommInitRank(comm *, int, name, int);
int ncclAllReduce(const void *, void *, size_t, int, int, comm, stream);
int ncclGroupStart();
int ncclGroupEnd();
int ncclCommDestroy(comm);
int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaStreamCreate(stream *);
int cudaStreamSynchronize(stream);
}

static comm comms[MOST];
static stream streams[MOST];
static void *gradients[MOST];

static void must(const char *what, int error)
{
	if (error) {
		printf("%s: %d\n", what, error);
		exit(1);
	}
}

static void exchange(name *of, int rank, const char *path)
{
	char part[4096];
	snprintf(part, sizeof part, "%s.part", path);
	FILE *f;
	if (rank == 0) {
		must("name", ncclGetUniqueId(of));
		if (!(f = fopen(part, "w")) || fwrite(of, sizeof *of, 1, f) != 1 || fclose(f) || rename(part, path))
			must("the name's file", 1);
		return;
	}
	while (!(f = fopen(path, "r")))
		usleep(10000);
	if (fread(of, sizeof *of, 1, f) != 1 || fclose(f))
		must("the name's file", 1);
}

static void join(int ranks, int rank, const char *path)
{
	name of;
	if (!path) {
		must("communicators", ncclCommInitAll(comms, ranks, NULL));
		return;
	}
	must("device", cudaSetDevice(rank));
	exchange(&of, rank, path);
	must("communicator", ncclCommInitRank(comms, ranks, of, rank));
}

static void reduce(int mine)
{
	must("group", ncclGroupStart());
	for (int i = 0; i < mine; i++)
		must("all-reduce", ncclAllReduce(gradients[i], gradients[i], LEN, FLOAT, SUM, comms[i], streams[i]));
	must("group's end", ncclGroupEnd());
	for (int i = 0; i < mine; i++)
		must("wait", cudaStreamSynchronize(streams[i]));
}

int main(int argc, char **argv)
{
	int ranks = atoi(argv[1]), rank = argc > 2 ? atoi(argv[2]) : 0, mine = argc > 2 ? 1 : ranks, n;
	const char *path = argc > 3 ? argv[3] : NULL;
	std::thread joining;
	char line[64];
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < mine; i++) {
		must("device", cudaSetDevice(rank + i));
		must("memory", cudaMalloc(&gradients[i], LEN * sizeof(float)));
		must("stream", cudaStreamCreate(&streams[i]));
	}
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		if (line[0] == 'j') // answered before the others have come
			joining = std::thread(join, ranks, rank, path);
		if (joining.joinable() && line[0] != 'j')
			joining.join();
		if (sscanf(line, "reduce %d", &n) == 1)
			while (n-- > 0)
				reduce(mine);
		puts("done");
	}
	for (int i = 0; i < mine; i++)
		must("end", ncclCommDestroy(comms[i]));
	return 0;
}
