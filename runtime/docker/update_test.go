package docker_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// TestUpdatedMeanwhile: each write of trimtab's carries all values that it read. What `docker
// update` stores between the reading and the writing stands at the end all the same.
func TestUpdatedMeanwhile(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	e := newEngine(t, docker.Options{})
	id := host.Start(t, "--cpu-quota=40000", "--memory=128m", "--memory-swap=400m")
	c := runtimetest.Find(t, e, id)
	for round := range 60 {
		quota, limit := 41+round, 100+round
		var wait sync.WaitGroup
		wait.Go(func() {
			host.Run(t, "update", fmt.Sprintf("--cpu-quota=%d000", quota), fmt.Sprintf("--memory=%dm", limit), "--memory-swap=400m", id)
		})
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		for i := range 3 {
			if err := e.Apply(t.Context(), c, runtime.Values{runtime.KnobCPUWeight: runtime.IntValue(int64(500 + 10*round + i))}); err != nil {
				t.Fatal(err)
			}
		}
		wait.Wait()
		stands, err := e.Read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		wantQuota, wantLimit := runtime.Quota(int64(quota)*1000, runtime.DefaultPeriodUs), runtime.IntValue(int64(limit)<<20)
		if stands[runtime.KnobCPUQuota] != wantQuota || stands[runtime.KnobMemoryLimit] != wantLimit {
			t.Fatalf("round %d: quota %s and memory %s stand, its owner stored %s and %s", round, stands[runtime.KnobCPUQuota], stands[runtime.KnobMemoryLimit], wantQuota, wantLimit)
		}
	}
}
