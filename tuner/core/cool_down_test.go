package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
)

// TestCoolDownWhereWritesFreeze: systemd's driver on v1 stops a container at each write.
func TestCoolDownWhereWritesFreeze(t *testing.T) {
	v1 := func(cpu string) runtime.Cgroup {
		return runtime.Cgroup{Mode: runtime.CgroupHybrid, V1: map[string]string{"cpu": cpu}}
	}
	for name, tc := range map[string]struct {
		cgroup runtime.Cgroup
		times  int64
	}{
		"v1, cgroupfs": {v1("/sys/fs/cgroup/cpu/docker/0123"), 1},
		"v1, systemd":  {v1("/sys/fs/cgroup/cpu/system.slice/docker-0123.scope"), 3},
		"v2, systemd":  {runtime.Cgroup{Mode: runtime.CgroupV2, Unified: "/sys/fs/cgroup/system.slice/docker-0123.scope"}, 1},
	} {
		n := newNode(2)
		s := n.addJob("job", 0.5, tune())
		s.c.Cgroup = tc.cgroup
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		run(c, n, 1, nil)
		j := c.jobs[s.c.Key()]
		j.coolDown(c)
		if got := j.cooledNs - c.now(); got != tc.times*Defaults().CoolDownNs {
			t.Errorf("%s: %d s", name, got/second)
		}
	}
}
