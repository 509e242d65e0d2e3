package containerd_test

import (
	"testing"

	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/runtime/runtimetest"
)

// BenchmarkApply measures a write to a container of containerd's own.
func BenchmarkApply(b *testing.B) {
	d := runtimetest.NeedContainerd(b, "")
	d.Start(b)
	e, err := containerd.New(containerd.Options{Address: d.Address})
	if err != nil {
		b.Fatal(err)
	}
	runtimetest.Latency(b, e, runtimetest.Find(b, e, d.RunContainer(b, runtimetest.ContainerdSpec{Namespace: namespace})))
}
