package nccl

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/cuda"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
)

func TestMain(m *testing.M) {
	symbols.ChildMain()
	goleak.VerifyTestMain(m)
}

// watched has both probes look at a target.
func watched(t *testing.T, target probes.Target) (read func() *probes.Sample, p *Probe, c *cuda.Probe) {
	t.Helper()
	f := uprobe.NewFinder()
	uprobetest.Closing(t, f.Close)
	c, err := cuda.New(f)
	if err != nil {
		t.Fatal(err)
	}
	uprobetest.Closing(t, c.Close)
	p, err = New(f, c.Counters())
	if err != nil {
		t.Fatal(err)
	}
	uprobetest.Closing(t, p.Close)
	for _, probe := range []probes.Probe{c, p} {
		if err := probe.Watch(target); err != nil {
			t.Fatal(err)
		}
	}
	return func() *probes.Sample {
		t.Helper()
		into := map[string]*probes.Sample{}
		for _, probe := range []probes.Probe{c, p} {
			uprobetest.Read(t, probe, into)
		}
		return into[target.Key]
	}, p, c
}

// jobWithNCCL is a process with the stand-ins for CUDA and NCCL, once both were found.
func jobWithNCCL(t *testing.T, name string) (job *uprobetest.Job, read func() *probes.Sample, p *Probe) {
	t.Helper()
	uprobetest.NeedsRoot(t)
	target := uprobetest.Cgroup(t, name)
	read, p, c := watched(t, target)
	dir := t.TempDir()
	job = uprobetest.Start(t, target, uprobetest.Build(t, dir, "job", "job"))
	job.Do("load %s", uprobetest.Library(t, dir, "libcuda.so.1", "driver"))
	job.Do("load %s", uprobetest.Library(t, dir, "libtorch_cuda.so", "nccl"))
	uprobetest.Until(t, "found", func() bool {
		s := read()
		return s != nil && s.CUDA != nil && s.NCCL != nil && len(s.CUDA.Processes) == 1 && len(s.NCCL.Processes) == 1 &&
			c.Has(job.PID, "cuLaunchKernel") && p.Has(job.PID, "ncclAllReduce")
	})
	return job, read, p
}

// Each function of NCCL's that is probed is counted as what it is, with its bytes or ranks.
func TestEveryFunction(t *testing.T) {
	job, read, _ := jobWithNCCL(t, "nccl-all")
	kinds := map[string]probes.Collective{
		"ncclAllReduce": probes.AllReduce, "ncclReduceScatter": probes.ReduceScatter, "ncclAllGather": probes.AllGather,
		"ncclBroadcast": probes.Broadcast, "ncclReduce": probes.Reduce, "ncclAlltoAll": probes.AllToAll, "ncclAllToAll": probes.AllToAll,
		"ncclSend": probes.Send, "ncclRecv": probes.Recv, "ncclGather": probes.Reduce, "ncclScatter": probes.Broadcast,
	}
	// The largest communicator is kept: in the order of names, each is larger than the one before.
	ranks := map[string]int{"ncclCommInitAll": 4, "ncclCommInitRank": 5, "ncclCommInitRankConfig": 6, "ncclCommInitRankScalable": 7}
	was := read().NCCL.Processes[0]
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		kind, collective := kinds[name]
		n, makes := ranks[name]
		if !collective && !makes {
			t.Errorf("%s is not tried", name)
			continue
		}
		if makes {
			job.Do("call %s 1 %d 3", name, n)
			is := read().NCCL.Processes[0]
			if is.Ranks != n || name != "ncclCommInitAll" && is.Rank != 3 {
				t.Errorf("%s of %d ranks, rank 3: rank %d of %d", name, n, is.Rank, is.Ranks)
			}
			was = is
			continue
		}
		job.Do("call %s 2 100 7", name) // floats
		is := read().NCCL.Processes[0]
		want := was
		want.Calls[kind], want.Bytes[kind], want.LastNs = was.Calls[kind]+2, was.Bytes[kind]+800, is.LastNs
		if diff := cmp.Diff(want, is); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		was = is
	}
}

// NCCL inside a library of another name; its collectives are counted with their
// bytes, and leave marks beside CUDA's.
func TestCollectives(t *testing.T) {
	job, read, p := jobWithNCCL(t, "nccl")
	job.Do("call ncclCommInitRank 1 8 3")
	job.Do("call ncclCommInitRank 1 2 1") // a smaller one does not count
	job.Do("call cuLaunchKernel 5 1")
	job.Do("call ncclAllReduce 3 1000 7") // floats
	job.Do("call ncclAllReduce 1 10 9")   // bfloat16
	job.Do("call ncclSend 2 100 4")       // int64
	s := read()
	want := probes.NCCLProcess{TGID: job.PID, Ranks: 8, Rank: 3, LastNs: s.NCCL.Processes[0].LastNs}
	want.Calls[probes.AllReduce], want.Bytes[probes.AllReduce] = 4, 12020
	want.Calls[probes.Send], want.Bytes[probes.Send] = 2, 1600
	if diff := cmp.Diff(want, s.NCCL.Processes[0]); diff != "" {
		t.Error(diff)
	}
	if want.LastNs == 0 {
		t.Error("no time of the latest call")
	}
	// The job runs on while the CUDA probe has been read: marks are of the next reading.
	marks := read().CUDA.Processes[0].Marks
	marks = append(s.CUDA.Processes[0].Marks, marks...)
	if len(marks) != 6 {
		t.Fatalf("%d marks, want 6: %+v", len(marks), marks)
	}
	for _, m := range marks {
		if m.Kind != probes.MarkCollective || m.Launches != 5 || m.TID != job.PID {
			t.Errorf("mark %+v", m)
		}
	}
	if spent := p.Spending(); len(spent) != 1 || spent[0].Hits != 8 || spent[0].Hook != Hook {
		t.Errorf("spending %+v", spent)
	}
}
