package runtimetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// Latency measures Apply by one write path, from the call to its answer: a quota and a
// weight at once, as a plan writes them; of Docker's API on v2, which sets no weight
// there, a quota. p50 and p99 are of b.N writes (-benchtime 500x).
func Latency(b *testing.B, e runtime.Engine, c runtime.Container) {
	b.Helper()
	writePath := e.WritePath(b.Context(), c)
	b.Logf("write path %s, %s", writePath, c.Cgroup.Mode)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		set := runtime.Values{runtime.KnobCPUQuota: runtime.Quota(int64(50_000+i%50*1000), runtime.DefaultPeriodUs)}
		if c.Cgroup.Mode != runtime.CgroupV2 || writePath != "docker-api" {
			set[runtime.KnobCPUWeight] = runtime.IntValue(int64(100 + i%50))
		}
		began := time.Now()
		if err := e.Apply(b.Context(), c, set); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(milliseconds(took[len(took)/2]), "p50-ms")
	b.ReportMetric(milliseconds(took[min(len(took)*99/100, len(took)-1)]), "p99-ms")
	b.ReportMetric(milliseconds(took[len(took)-1]), "max-ms")
}

// Find returns a running container by its ID, as an engine lists it.
func Find(t testing.TB, e runtime.Engine, id string) (found runtime.Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	_ = e.Run(ctx, func(event runtime.Event) { // it ends when it is cancelled
		if event.Kind == runtime.EventSeen && event.Container.ID.Container == id {
			found = event.Container
			cancel()
		}
	})
	if found.InitPID == 0 {
		t.Fatalf("container %s is not listed", id)
	}
	return found
}
