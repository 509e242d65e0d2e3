package cuda

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/userland"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
)

// callLike are names of calls that launch, copy or wait.
var callLike = regexp.MustCompile(`^_*cu(da)?(Launch|GraphLaunch|Memcpy|StreamSynchronize|CtxSynchronize|DeviceSynchronize|ThreadSynchronize|EventSynchronize|(Stream|Ctx|GreenCtx)Wait|StreamBatchMemOp|WaitExternal)`)

// unprobed are those of them that are not counted, each with why.
var unprobed = []struct{ names, why string }{
	{`^cuLaunch$|^cuLaunchGrid(Async)?$`, "CUDA before 4.0"},
	{`^cuMemcpy.*(HtoD|DtoH|DtoD|2D|3D|2DUnaligned)(Async)?$`, "the driver's 32-bit addresses, of before CUDA 3.2"},
	{`^cuMemcpy(AtoA|AtoD|AtoH|DtoA|HtoA)(Async)?(_v2)?$|^cudaMemcpy(2D)?(ArrayToArray|FromArray|ToArray)(Async)?$`, "copies of textures, which no training is known to do in each step"},
	{`^cuMemcpy[23]D(Unaligned|Peer)?(Async)?(_v2)?$|^cudaMemcpy3D(Peer)?(Async)?$`, "their sizes stand in memory of the caller's, which a hostile one may change"},
	{`^cudaMemcpy(From|To)Symbol(Async)?$`, "copies of a program's constants"},
	{`^cuMemcpyPeer(Async)?$`, "the runtime's are counted"},
	{`^cu(da)?Memcpy(3D)?BatchAsync(_v2)?$`, "CUDA 12.8 and later; no framework is known to call it"},
	{`^cuStreamBatchMemOp(_v2)?$`, "waits and writes of the stream's own"},
	{`^cu(da)?LaunchHostFunc$`, "runs on the host"},
	{`^cu(da)?LaunchCooperativeKernelMultiDevice$`, "gone since CUDA 13"},
	{`^__cudaLaunchKernel$`, "cudaLaunchKernel goes on to it, or to the driver, where it is counted"},
	{`^cu(da)?(Stream|Ctx|GreenCtx)Wait(Event|Value32|Value64)(_v2)?$|^cu(da)?WaitExternalSemaphoresAsync(_v2)?$`, "the stream waits, and not the caller"},
}

// younger are functions that not all generations have.
var younger = map[string]string{
	"cuCtxSynchronize_v2": "CUDA 13", "cudaThreadSynchronize": "gone since CUDA 13",
	"cuLaunchKernelEx": "CUDA 11.8", "cudaLaunchKernelExC": "CUDA 11.8",
}

func stem(name string) string {
	for _, suffix := range []string{"_ptsz", "_ptds"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// names are those of all functions.
func names() (list []string) {
	for hook := range hookDriverLaunch + 1 {
		list = slices.AppendSeq(list, maps.Keys(functionsOf(hook)))
	}
	return list
}

// coverage holds a library's exported names against the table: each of ours is there, and what
// launches, copies or waits is ours or decided on.
func coverage(t *testing.T, exported []string, ours func(name string) bool) {
	t.Helper()
	known := names()
	for _, name := range known {
		if ours(name) && !slices.Contains(exported, name) && younger[stem(name)] == "" {
			t.Errorf("%s is not exported", name)
		}
	}
	for _, name := range exported {
		decided := slices.ContainsFunc(unprobed, func(u struct{ names, why string }) bool { return regexp.MustCompile(u.names).MatchString(stem(name)) })
		if callLike.MatchString(name) && !slices.Contains(known, name) && !decided {
			t.Errorf("%s is neither probed nor decided on", name)
		}
	}
}

func ofDriver(name string) bool {
	return strings.HasPrefix(name, "cu") && !strings.HasPrefix(name, "cuda")
}
func ofRuntime(name string) bool { return strings.HasPrefix(name, "cuda") }

// TestNamesOfTheDriverThatWasSeen needs no library.
func TestNamesOfTheDriverThatWasSeen(t *testing.T) {
	driver, runtime := userland.Seen(t, "libcuda"), userland.Seen(t, "libcudart")
	coverage(t, driver, ofDriver)
	coverage(t, runtime, ofRuntime)
	for _, name := range names() { // an excuse is no licence for a name that nobody has
		if stem(name) != "cudaThreadSynchronize" && !slices.Contains(driver, name) && !slices.Contains(runtime, name) && name != virtualSymbol {
			t.Errorf("%s was exported by neither", name)
		}
	}
}

// TestRealLibraries: NVIDIA's own export what is probed, and it is found in them.
func TestRealLibraries(t *testing.T) {
	for _, g := range userland.Generations(t) {
		for library, ours := range map[string]func(string) bool{"libcuda.so": ofDriver, "libcudart.so": ofRuntime} {
			t.Run(g.Name+" "+library, func(t *testing.T) {
				path := g.Library(library)
				exported := userland.Functions(t, path)
				coverage(t, exported, ours)
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				found, err := symbols.Find(f, symbols.Want{Names: names()}, time.Now().Add(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				var got, want []string
				for _, s := range found {
					got = append(got, s.Name)
				}
				for _, name := range names() {
					if slices.Contains(exported, name) {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("found %v, want %v", got, want)
				}
				t.Logf("%d of %d functions", len(got), len(names()))
			})
		}
	}
}

// TestRealCalls: calls into NVIDIA's own libraries are counted exactly. Without a device each of
// them fails, and is a call all the same.
func TestRealCalls(t *testing.T) {
	for _, g := range userland.Generations(t) {
		t.Run(g.Name, func(t *testing.T) {
			r := newRig(t)
			target := uprobetest.Cgroup(t, "cuda-real-"+g.Name)
			r.watch(target)
			job := uprobetest.Start(t, target, uprobetest.Build(t, t.TempDir(), "job", "job"))
			job.Do("load %s", g.Library("libcuda.so"))
			job.Do("load %s", g.Library("libcudart.so"))
			r.found(target.Key, job.PID, "cuLaunchKernel", "cudaLaunchKernel")
			was := r.process(target.Key, job.PID)
			job.Do("null cuLaunchKernel 40")
			job.Do("null cuLaunchCooperativeKernel 30")
			job.Do("null cudaLaunchKernel 20")
			job.Do("null cuGraphLaunch 7")
			job.Do("null cuStreamSynchronize 5")
			job.Do("null cudaDeviceSynchronize 3")
			job.Do("call cuMemcpyHtoDAsync_v2 6 4096")
			job.Do("call cudaMemcpy 2 4096 2")
			is := r.process(target.Key, job.PID)
			copies := is.Copies
			for i := range copies {
				copies[i] -= was.Copies[i]
			}
			syncs := waits(is)
			if n := is.Launches - was.Launches; n != 90 || is.Graphs-was.Graphs != 7 || syncs != 8 ||
				copies[probes.CopyHostToDevice] != 6 || copies[probes.CopyDeviceToHost] != 2 {
				t.Errorf("%d launches of 90, %d graphs of 7, %d waits of 8, copies %v of 6 to the device and 2 from it", n, is.Graphs-was.Graphs, syncs, copies)
			}
		})
	}
}

// TestRealRuntimeTrains: a program of NVIDIA's compiler and runtime trains on the virtual
// driver. What it is told to launch, copy and wait for is what the probe counts and what the
// device did, to the call.
func TestRealRuntimeTrains(t *testing.T) {
	object := userland.Compiled(t, "train.cu")
	for _, g := range userland.Generations(t) {
		for kind, library := range map[string]string{"shared": g.Library("libcudart.so."), "static": g.Library("libcudart_static.a")} {
			if library == "" {
				continue // the compiler's generation alone has the static one
			}
			t.Run(g.Name+" "+kind, func(t *testing.T) {
				r := newRig(t)
				node := vgputest.Node(t, vgpu.Options{Devices: 1})
				userland.NeedsProof(t, node.Dir.Lib("libcuda.so.1"))
				target := uprobetest.Cgroup(t, "cuda-trains-"+g.Name+kind)
				r.watch(target)
				// The virtual runtime has the real one's name, so the driver's own folder is not in the path.
				job := uprobetest.Start(t, target, "env", "TRIMTAB_VGPU_NODE="+node.Path,
					"LD_LIBRARY_PATH="+userland.Folder(t, node.Dir.Lib("libcuda.so.1"), library), userland.Linked(t, object, library))
				r.found(target.Key, job.PID, "cuLaunchKernel", "cudaLaunchKernel")
				was := r.process(target.Key, job.PID)
				before := device(t, node)
				job.Do("steps 200")
				job.Do("graphs 30")
				is, after := r.process(target.Key, job.PID), device(t, node)
				// The five that are captured are calls, and run in the graph alone.
				if n := is.Launches - was.Launches; n != 1005 || after.Kernels-before.Kernels != 1000 {
					t.Errorf("%d launches counted of 1005, the device did %+v", n, after)
				}
				if n := is.Graphs - was.Graphs; n != 30 || after.Graphs-before.Graphs != 30 || after.GraphKernels-before.GraphKernels != 150 {
					t.Errorf("%d graphs counted of 30, the device did %+v", n, after)
				}
				if n := is.Copies[probes.CopyHostToDevice] - was.Copies[probes.CopyHostToDevice]; n != 200 || after.Copies[1]-before.Copies[1] != 200 {
					t.Errorf("%d copies counted of 200, the device did %+v", n, after)
				}
				if n := waits(is) - waits(was); n != 201 || after.Syncs-before.Syncs != 201 {
					t.Errorf("%d waits counted of 201, the device did %+v", n, after)
				}
			})
		}
	}
}

// waits are those of all threads.
func waits(p *probes.CUDAProcess) (sum uint64) {
	for _, thread := range p.Threads {
		sum += thread.Syncs
	}
	return sum
}

// device is what the node's one process has done.
func device(t *testing.T, node *vgpu.Node) vgpu.ProcessState {
	t.Helper()
	state, err := node.Show(t.Context())
	if err != nil || len(state.Procs) != 1 {
		t.Fatalf("%v: %+v", err, state)
	}
	return state.Procs[0]
}
