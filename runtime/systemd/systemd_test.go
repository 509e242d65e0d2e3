package systemd

import "testing"

func TestUnit(t *testing.T) {
	for cgroup, want := range map[string]string{
		"/sys/fs/cgroup/system.slice/docker-x.scope": "docker-x.scope",
		"/sys/fs/cgroup/docker/x":                    "",
		"/sys/fs/cgroup/a.scope/inner":               "",
		"":                                           "",
	} {
		if got := Unit(cgroup); got != want {
			t.Errorf("%q: %q, want %q", cgroup, got, want)
		}
	}
}
