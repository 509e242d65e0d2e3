package network

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
)

// BenchmarkRead is one pass and one reading of a container: fixed cost, and cost
// for each socket. The open files of the host, which the pass walks, are reported.
func BenchmarkRead(b *testing.B) {
	for _, sockets := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("sockets=%d", sockets), func(b *testing.B) {
			x := newBox(b, true)
			addr, _ := server(b, x.hostIP)
			for range sockets {
				x.do("dial %s", addr)
			}
			p := newProbe(b)
			watch(b, p, x, "a")
			into := map[string]*probes.Sample{}
			b.ResetTimer()
			for b.Loop() {
				p.nextWalk = time.Time{}
				if err := p.Read(b.Context(), into); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			if n := into["a"].Network; n.Sockets != sockets {
				b.Errorf("%d sockets of %d", n.Sockets, sockets)
			}
			b.ReportMetric(hostFiles(b), "files")
		})
	}
}

// BenchmarkOnState is what the program costs a connection of the host that opens
// and closes, by the kernel's accounting, for each change of a socket's state.
func BenchmarkOnState(b *testing.B) {
	p := newProbe(b)
	addr, _ := server(b, "127.0.0.1")
	on, err := ebpf.EnableStats(0) // BPF_STATS_RUN_TIME
	if err != nil {
		b.Skipf("needs Linux 5.8 and CAP_SYS_ADMIN: %v", err)
	}
	defer on.Close()
	stats := func() *ebpf.ProgramStats {
		s, err := p.loaded.objs.OnState.Stats()
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	before := stats()
	for b.Loop() {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
	after := stats()
	b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(after.RunCount-before.RunCount), "ns/run")
	b.ReportMetric(float64(after.RunCount-before.RunCount)/float64(b.N), "runs/op")
}

// hostFiles is the number of files that the processes of the host have open.
func hostFiles(b *testing.B) float64 {
	b.Helper()
	processes, err := os.ReadDir("/proc")
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for _, p := range processes {
		if bytes.Trim([]byte(p.Name()), "0123456789") == nil {
			files, _ := os.ReadDir("/proc/" + p.Name() + "/fd")
			n += len(files)
		}
	}
	return float64(n)
}
