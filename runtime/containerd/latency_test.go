package containerd_test

import (
	"os"
	"testing"

	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// BenchmarkApply measures a write to a container of containerd's own, by systemd's driver
// where systemd runs.
func BenchmarkApply(b *testing.B) {
	d := runtimetest.NeedContainerd(b, "")
	d.Start(b)
	e, err := containerd.New(containerd.Options{Address: d.Address})
	if err != nil {
		b.Fatal(err)
	}
	_, noSystemd := os.Stat("/run/systemd/system")
	runtimetest.Latency(b, e, runtimetest.Find(b, e, d.RunContainer(b, runtimetest.ContainerdSpec{Namespace: namespace, Systemd: noSystemd == nil})))
}
