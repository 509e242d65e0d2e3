package uprobe

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/uprobetest"
)

// What a hit costs the thread that makes it, on this machine.
func BenchmarkHit(b *testing.B) {
	uprobetest.NeedsRoot(b)
	for b.Loop() {
		cost, err := measureCost(context.Background(), newAttacher())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(cost.Emulated, "ns/entry")
		b.ReportMetric(cost.Stepped, "ns/entry-stepped")
		b.ReportMetric(cost.Emulated+cost.Return, "ns/entry+return")
	}
}

// What a round over 200 processes costs that have nothing to find and nothing new.
func BenchmarkScan(b *testing.B) {
	c := newCounter(b)
	target := uprobetest.Cgroup(b, "bench-scan")
	for range 200 {
		cmd := exec.Command("sh", "-c", "echo $$ > "+target.Unified+"/cgroup.procs && exec sleep 1000")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	c.watch(target)
	round := func() {
		c.finder.containers[target.Key].nextRound, c.finder.scanned = time.Time{}, time.Time{}
		if err := c.client.Scan(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	looked := func() (n int) {
		for _, p := range c.finder.processes {
			if p.size > 0 {
				n++
			}
		}
		return n
	}
	for looked() < 200 {
		round()
	}
	for b.Loop() {
		round()
	}
}
