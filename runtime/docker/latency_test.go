package docker_test

import (
	"testing"

	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// BenchmarkApply measures a write by each of Docker's write paths.
func BenchmarkApply(b *testing.B) {
	for name, address := range map[string]string{"containerd-moby": "", "docker-api": "/nonexistent/containerd.sock"} {
		b.Run(name, func(b *testing.B) {
			host := runtimetest.NeedDocker(b)
			e, err := docker.New(docker.Options{ContainerdAddress: address})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			runtimetest.Latency(b, e, runtimetest.Find(b, e, host.Start(b, "--cpus=0.5")))
		})
	}
}
