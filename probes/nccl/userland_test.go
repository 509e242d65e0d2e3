package nccl

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/userland"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
)

// collectiveLike are names of calls that exchange, or make a communicator.
var collectiveLike = regexp.MustCompile(`^nccl(All|Reduce|Broadcast|Bcast|Gather|Scatter|Send|Recv|Comm(Init|Split|Shrink|Grow))`)

// unprobed are those of them that are not counted, each with why.
var unprobed = map[string]string{
	"ncclBcast":     "it calls ncclBroadcast",
	"ncclCommSplit": "smaller than the communicator that it is made of", "ncclCommShrink": "smaller than the communicator that it is made of",
	"ncclCommGrow": "how many ranks there were before is told all the same",
}

// younger are functions that not all generations have, and the spelling that none has yet.
var younger = map[string]string{
	"ncclAllToAll": "another spelling", "ncclAlltoAll": "NCCL 2.28", "ncclGather": "NCCL 2.28", "ncclScatter": "NCCL 2.28",
	"ncclCommInitRankScalable": "NCCL 2.23",
}

func coverage(t *testing.T, exported []string) {
	t.Helper()
	for name := range functions {
		if !slices.Contains(exported, name) && younger[name] == "" {
			t.Errorf("%s is not exported", name)
		}
	}
	for _, name := range exported {
		if _, known := functions[name]; collectiveLike.MatchString(name) && !known && unprobed[name] == "" {
			t.Errorf("%s is neither probed nor decided on", name)
		}
	}
}

// TestNamesOfTheNCCLThatWasSeen needs no library.
func TestNamesOfTheNCCLThatWasSeen(t *testing.T) { coverage(t, userland.Seen(t, "libnccl")) }

// TestRealNCCL: NVIDIA's own exports what is probed, it is found, and calls are counted exactly.
// Without a communicator each of them fails, and is a call all the same.
func TestRealNCCL(t *testing.T) {
	for _, g := range userland.Generations(t) {
		path := g.Library("libnccl.so")
		if path == "" {
			continue // bookworm has none
		}
		t.Run(g.Name, func(t *testing.T) {
			exported := userland.Functions(t, path)
			coverage(t, exported)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			found, err := symbols.Find(f, symbols.Want{Names: slices.Collect(maps.Keys(functions))}, time.Now().Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			for name := range functions {
				has := slices.ContainsFunc(found, func(s symbols.Symbol) bool { return s.Name == name })
				if has != slices.Contains(exported, name) {
					t.Errorf("%s: found %t", name, has)
				}
			}
			uprobetest.NeedsRoot(t)
			target := uprobetest.Cgroup(t, "nccl-real-"+g.Name)
			read, nccl, _ := watched(t, target)
			command := g.Command(uprobetest.Build(t, t.TempDir(), "job", "job"))
			job := uprobetest.Start(t, target, command[0], command[1:]...)
			job.Do("load %s", g.Library("libcuda.so"))
			job.Do("load %s", path)
			uprobetest.Until(t, "found", func() bool { read(); return nccl.Has(job.PID, "ncclAllReduce") })
			job.Do("call ncclAllReduce 9 1000 7")
			job.Do("call ncclAllGather 4 1000 7")
			job.Do("call ncclSend 3 1000 7")
			is := read().NCCL.Processes[0]
			if is.Calls[probes.AllReduce] != 9 || is.Calls[probes.AllGather] != 4 || is.Calls[probes.Send] != 3 {
				t.Errorf("calls %v, want 9 all-reduces, 4 all-gathers, 3 sends", is.Calls)
			}
			t.Logf("%d of %d functions", len(found), len(functions))
		})
	}
}

// TestRealNCCLReduces: NVIDIA's NCCL makes its rings on virtual devices and reduces. What it is
// told to do is what the probe counts, to the call; of two ranks each launches NCCL's own kernel,
// as the driver's truth has it. What the kernel would have added is not there: it has no code.
func TestRealNCCLReduces(t *testing.T) {
	for _, g := range userland.Generations(t) {
		if g.Library("libnccl.so") == "" {
			continue // bookworm has none
		}
		for _, tc := range []struct {
			name             string
			processes, ranks int
		}{{"one", 1, 1}, {"two in a process", 1, 2}, {"two processes", 2, 2}} {
			t.Run(g.Name+" "+tc.name, func(t *testing.T) { reduces(t, g, tc.processes, tc.ranks) })
		}
	}
}

func reduces(t *testing.T, g userland.Generation, processes, ranks int) {
	uprobetest.NeedsRoot(t)
	const times = 100
	node := vgputest.Node(t, vgpu.Options{Devices: ranks})
	userland.NeedsProof(t, node.Dir.Lib("libcuda.so.1"))
	target := uprobetest.Cgroup(t, "nccl-reduces-"+g.Name)
	read, nccl, cuda := watched(t, target)
	libraries := []string{g.Library("libnccl.so"), g.Library("libcudart.so.")}
	program := userland.Linked(t, userland.Source(t, "reduce.cc"), libraries...)
	folder := userland.Folder(t, append(libraries, node.Dir.Lib("libcuda.so.1"), node.Dir.Lib("libnvidia-ml.so.1"))...)
	command := append([]string{"TRIMTAB_VGPU_NODE=" + node.Path, "NCCL_SOCKET_IFNAME=lo"}, append(g.Command(program, folder), strconv.Itoa(ranks))...)
	var jobs []*uprobetest.Job
	for rank := range processes {
		args := command
		if processes > 1 {
			args = append(slices.Clone(command), strconv.Itoa(rank), filepath.Join(folder, "name"))
		}
		jobs = append(jobs, uprobetest.Start(t, target, "env", args...))
	}
	uprobetest.Until(t, "found", func() bool {
		read()
		return !slices.ContainsFunc(jobs, func(j *uprobetest.Job) bool {
			return !nccl.Has(j.PID, "ncclAllReduce") || !cuda.Has(j.PID, "cuLaunchKernel")
		})
	})
	each := func(what string, args ...any) {
		for _, j := range jobs {
			j.Do(what, args...)
		}
	}
	each("join")
	each("wait")
	launches := launched(read())
	before := kernels(t, node)
	each("reduce %d", times)
	is := read()
	for _, p := range is.NCCL.Processes {
		if want := uint64(times * ranks / processes); p.Calls[probes.AllReduce] != want || p.Ranks != ranks {
			t.Errorf("%d all-reduces counted of %d, of %d ranks of %d", p.Calls[probes.AllReduce], want, p.Ranks, ranks)
		}
	}
	want := uint64(0) // a rank alone has nothing to add
	if ranks > 1 {
		want = uint64(times * ranks)
	}
	if n, counted := kernels(t, node)-before, launched(is)-launches; n != want || counted != want || len(is.NCCL.Processes) != processes {
		t.Errorf("%d kernels launched and %d counted of %d", n, counted, want)
	}
}

// launched are the launches that were counted of all processes.
func launched(s *probes.Sample) (sum uint64) {
	for _, p := range s.CUDA.Processes {
		sum += p.Launches
	}
	return sum
}

// kernels are those that the node's processes have launched.
func kernels(t *testing.T, node *vgpu.Node) (sum uint64) {
	t.Helper()
	state, err := node.Show(t.Context())
	if err != nil || len(state.Procs) == 0 {
		t.Fatalf("%v: %+v", err, state)
	}
	for _, p := range state.Procs {
		sum += p.Kernels
	}
	return sum
}
