package docker_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// What an image asks for by labels is not asked by who starts a container of it, unless the
// host's config says so.
func TestLabelsOfAnImage(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	image := fmt.Sprintf("trimtab-test-labelled-%08x", rand.Uint32())
	base := host.Run(t, "create", runtimetest.ImageName, "sleep", "1000000")
	host.Run(t, "commit", "--change", `LABEL trimtab.mode=tune trimtab.cpu.min=1 trimtab.job=its team=a`, base, image)
	host.Run(t, "rm", base)
	t.Cleanup(func() { host.Run(t, "rmi", "-f", image) })
	start := func(args ...string) string {
		name := fmt.Sprintf("trimtab-test-%08x", rand.Uint32())
		t.Cleanup(func() { host.Remove(t, name) })
		return host.Run(t, append(append([]string{"run", "-d", "--net=none", "--name", name}, args...), image)...)
	}
	silent, asking := start(), start("--label", "trimtab.mode=observe", "--label", "trimtab.knobs=cpu")
	all := map[string]string{"trimtab.mode": "tune", "trimtab.cpu.min": "1", "trimtab.job": "its", "team": "a"}
	for _, tc := range []struct {
		images bool
		id     string
		want   map[string]string
	}{
		{false, silent, map[string]string{"team": "a"}},
		{false, asking, map[string]string{"team": "a", "trimtab.mode": "observe", "trimtab.knobs": "cpu"}},
		{true, silent, all},
	} {
		e := newEngine(t, docker.Options{ImageLabels: tc.images})
		c, _ := watch(t, e).expect(t, 0, runtime.EventSeen, tc.id)
		if diff := cmp.Diff(tc.want, c.Labels); diff != "" {
			t.Errorf("images ask %v (-want +got):\n%s", tc.images, diff)
		}
	}
}
