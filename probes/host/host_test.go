package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/probes"
)

const (
	stat = "cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 50 10 15 2000 25 3 4 4 45 5\ncpu1 50 10 15 2000 25 3 3 4 45 5\n" +
		"intr 123 0 0\nctxt 9\nbtime 1\n"
	meminfo = "MemTotal:        4096 kB\nMemFree:          100 kB\nMemAvailable:    1024 kB\n"
)

func write(t *testing.T, stat, meminfo string) *Probe {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"stat": stat, "meminfo": meminfo} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return New(dir)
}

func TestRead(t *testing.T) {
	got, err := write(t, stat, meminfo).Read()
	if err != nil {
		t.Fatal(err)
	}
	want := probes.Host{
		CPUs: 2, BusyNs: (100 + 20 + 30 + 6 + 7) * 1e7, IdleNs: 4000 * 1e7, IOWaitNs: 50 * 1e7, StealNs: 8 * 1e7,
		MemTotal: 4 << 20, MemAvail: 1 << 20,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(probes.Host{}, "AtNs")); diff != "" {
		t.Error(diff)
	}
	if got.AtNs <= 0 {
		t.Errorf("AtNs %d", got.AtNs)
	}
}

func TestBadInputIsAnError(t *testing.T) {
	for name, tc := range map[string]struct{ stat, meminfo string }{
		"empty":           {"", meminfo},
		"no cpus":         {"cpu  1 2 3 4 5 6 7 8\n", meminfo},
		"short":           {"cpu  1 2 3\ncpu0 1 2 3\n", meminfo},
		"not a number":    {"cpu  1 2 x 4 5 6 7 8\ncpu0 1\n", meminfo},
		"no available":    {stat, "MemTotal: 4096 kB\n"},
		"odd memory":      {stat, "MemTotal: much kB\nMemAvailable: 1 kB\n"},
		"negative memory": {stat, "MemTotal: -1 kB\nMemAvailable: 1 kB\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := write(t, tc.stat, tc.meminfo).Read(); err == nil {
				t.Errorf("no error, read %+v", h)
			}
		})
	}
	if _, err := New(t.TempDir()).Read(); err == nil {
		t.Error("no error without files")
	}
}

func TestLiveProc(t *testing.T) {
	h, err := New("/proc").Read()
	if err != nil {
		t.Fatal(err)
	}
	if h.CPUs == 0 || h.BusyNs == 0 || h.MemTotal < h.MemAvail || h.MemAvail == 0 {
		t.Errorf("%+v", h)
	}
}
