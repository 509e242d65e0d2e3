package nccl

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/userland"
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
			read, _, _ := watched(t, target)
			command := g.Command(uprobetest.Build(t, t.TempDir(), "job", "job"))
			job := uprobetest.Start(t, target, command[0], command[1:]...)
			job.Do("load %s", g.Library("libcuda.so"))
			job.Do("load %s", path)
			uprobetest.Until(t, "found", func() bool { s := read(); return s != nil && s.NCCL != nil && len(s.NCCL.Processes) == 1 })
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
