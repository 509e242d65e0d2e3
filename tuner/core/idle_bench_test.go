package core

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// BenchmarkIdle1000 is a second of a node of 1,000 watched containers in each of which a
// process sleeps: what the core makes of their samples, and what it shows.
func BenchmarkIdle1000(b *testing.B) {
	const second = int64(1e9)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	at := second
	in := func() Input {
		in := Input{Host: probes.Host{AtNs: at, CPUs: 64, IdleNs: uint64(64 * at)}}
		for i := range 1000 {
			id := runtime.ID{Engine: "docker", Container: fmt.Sprintf("%012x%052x", i, i)}
			in.Containers = append(in.Containers, Container{Container: runtime.Container{ID: id, Name: fmt.Sprint("box-", i), State: runtime.StateRunning}, Watched: true,
				Enrolment: policies.Enrolment{Mode: policies.ModeObserve}, Now: runtime.Values{runtime.KnobCPUWeight: "1024"}})
			tid := int32(1000 + i)
			in.Samples = append(in.Samples, probes.Sample{Container: id.Key(),
				Kernel: &probes.Kernel{Threads: []probes.Thread{{TID: tid, TGID: tid, PPID: 1, StartNs: 1, Comm: "sleep",
					Ns: [probes.NumStates]uint64{probes.StateTimer: uint64(at)}}}},
				Cgroup: &probes.Cgroup{AtNs: at, CPUUsageNs: 1000, MemoryBytes: 1 << 20, MemoryLimit: -1, HasPSI: true}})
		}
		return in
	}
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
		at += second
		next := in()
		b.StartTimer()
		c.Step(next)
		var s view.Snapshot
		c.Show(&s)
	}
}
