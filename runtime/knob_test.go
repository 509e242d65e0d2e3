package runtime

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestQuotaText(t *testing.T) {
	for _, tc := range []struct {
		v             Value
		quota, period int64
		cpus          float64 // 0: none
		bad           bool
	}{
		{v: "50000 100000", quota: 50000, period: 100000, cpus: 0.5},
		{v: "max 100000", quota: -1, period: 100000},
		{v: "150000 50000", quota: 150000, period: 50000, cpus: 3},
		{v: "", bad: true}, {v: "50000", bad: true}, {v: "max", bad: true}, {v: "0 100000", bad: true}, {v: "-1 100000", bad: true},
		{v: "50000 0", bad: true}, {v: "50000 -5", bad: true}, {v: "x 100000", bad: true}, {v: "50000 100000 1", bad: true},
	} {
		quota, period, err := ParseQuota(tc.v)
		if (err != nil) != tc.bad || quota != tc.quota || period != tc.period {
			t.Errorf("%q: %d %d, %v", tc.v, quota, period, err)
		}
		if cpus, ok := tc.v.CPUs(); cpus != tc.cpus || ok != (tc.cpus > 0) {
			t.Errorf("%q: %v CPUs, %v", tc.v, cpus, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		quota := rapid.Int64Range(1, 1<<40).Draw(t, "quota")
		period := rapid.Int64Range(1000, 1_000_000).Draw(t, "period")
		if q, p, err := ParseQuota(Quota(quota, period)); err != nil || q != quota || p != period {
			t.Errorf("%d %d became %d %d, %v", quota, period, q, p, err)
		}
	})
}

func TestSame(t *testing.T) {
	for _, tc := range []struct {
		knob          Knob
		asked, stands Value
		want          bool
	}{
		{KnobCPUQuota, "50000 100000", "50000 100000", true},
		{KnobCPUQuota, "50000 100000", "25000 50000", true},
		{KnobCPUQuota, "50300 100000", "51000 100000", true}, // systemd rounds up to 1 %
		{KnobCPUQuota, "50000 100000", "51100 100000", false},
		{KnobCPUQuota, "50000 100000", "49900 100000", false},
		{KnobCPUQuota, "max 100000", "max 50000", true},
		{KnobCPUQuota, "max 100000", "50000 100000", false},
		{KnobCPUQuota, "50000 100000", "max 100000", false},
		{KnobCPUQuota, "max 100000", "", false},
		{KnobMemoryLimit, "1000000", "999424", true}, // a page down
		{KnobMemoryLimit, "1000000", "1003520", false},
		{KnobMemoryLimit, "1000000", "max", false},
		{KnobMemoryLimit, "max", "max", true},
		{KnobMemorySwap, "1000000", "900000", false},
		{KnobCpuset, "0,1,2", "0-2", true},
		{KnobCpuset, "2,0-1", "0-2", true},
		{KnobCpuset, "0-1", "0-2", false},
		{KnobCpuset, "", "0-2", false},
		{KnobCPUWeight, "100", "100", true},
		{KnobCPUWeight, "100", "101", false},
	} {
		if got := tc.knob.Same(tc.asked, tc.stands); got != tc.want {
			t.Errorf("%s asked %q stands %q: %v", tc.knob, tc.asked, tc.stands, got)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "8,0-1,1": {0, 1, 8}, " 2\n": {2}} {
		if got, err := ParseCPUList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{",", "a", "1-", "-1", "3-1", "0-99999999", "0,,1"} {
		if got, err := ParseCPUList(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

func TestKnobs(t *testing.T) {
	all := make(Values)
	for _, knob := range Knobs() {
		all[knob] = "1"
		if family := knob.Family(); !slices.Contains([]string{"cpu", "cpuset", "memory"}, family) {
			t.Errorf("%s is of family %q, which nobody can allow", knob, family)
		}
	}
	if diff := cmp.Diff(Knobs(), all.Sorted()); diff != "" {
		t.Errorf("Sorted (-want +got):\n%s", diff)
	}
	all["cpu.burst"], all["aa"], all[KnobGPU] = "1", "1", "1"
	if got := all.Sorted(); !slices.Equal(got, append(Knobs(), KnobGPU, "aa", "cpu.burst")) {
		t.Errorf("with knobs of another version: %v", got)
	}
	copied := all.Clone()
	copied[KnobCPUWeight] = "2"
	if all[KnobCPUWeight] != "1" {
		t.Error("a clone shares its values")
	}
}

func TestKey(t *testing.T) {
	id := ID{Engine: "docker", Container: strings.Repeat("ab", 32), Boot: "5f0c2d1e-0000-4000-8000-000000000001", StartTick: 7}
	if key := id.Key(); key != "docker-abababababababab-5f0c2d1e-7" {
		t.Error(key)
	}
	seen := map[string]ID{}
	for _, other := range []ID{id, {Engine: "docker", Container: id.Container, Boot: id.Boot, StartTick: 8},
		{Engine: "docker", Container: id.Container, Boot: "60", StartTick: 7}, {Engine: "containerd", Container: id.Container, Boot: id.Boot, StartTick: 7},
		{Engine: "containerd", Container: "resnet-training-rank-0", Boot: id.Boot, StartTick: 7}, {Engine: "containerd", Container: "resnet-training-rank-1", Boot: id.Boot, StartTick: 7}} {
		if twin, ok := seen[other.Key()]; ok {
			t.Errorf("%v and %v share %s", twin, other, other.Key())
		}
		seen[other.Key()] = other
	}
}

// TestKeyIsAFileName: whatever an engine gives for an ID, the key is a name in one directory.
func TestKeyIsAFileName(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"../../etc/cron", "a/../../b", "../../../../../../etc/passwd", "a/b", "a_b", "..", "", "a\x00b", "a\nb", "é", "a/b/c/d/e/f/g/h/i/j"} {
		key := ID{Engine: "docker", Container: id, Boot: "60", StartTick: 7}.Key()
		if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" || strings.ContainsAny(key, "/\x00\n") {
			t.Errorf("%q: %q", id, key)
		}
		if twin, ok := seen[key]; ok {
			t.Errorf("%q and %q share %s", id, twin, key)
		}
		seen[key] = id
	}
}

func TestDir(t *testing.T) {
	hybrid := Cgroup{Unified: "/u", V1: map[string]string{"cpu": "/c"}}
	if got := hybrid.Dir("cpu") + " " + hybrid.Dir("io"); got != "/c /u" {
		t.Error(got)
	}
}

func TestChangeText(t *testing.T) {
	for want, c := range map[string]struct {
		k        Knob
		from, to Value
	}{
		"CPU 0.40→1.50":               {KnobCPUQuota, "40000 100000", "150000 100000"},
		"memory.limit 700MiB→1500MiB": {KnobMemoryLimit, "734003200", "1572864000"},
		"memory.limit max→12.0GiB":    {KnobMemoryLimit, ValueMax, "12884901888"},
		"cpu.weight 100→400":          {KnobCPUWeight, "100", "400"},
		"cpuset →0-3":                 {KnobCpuset, "", "0-3"},
	} {
		if got := c.k.Text(c.from, c.to); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
