package nvml

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/userland"
)

// younger are calls that not all drivers have; each is looked up before it is made.
var younger = map[string]string{
	"nvmlDeviceGetTemperatureV": "driver 570 and later",
}

// TestRealLibrary: NVIDIA's own NVML exports what is called, and says without a driver that there is none.
func TestRealLibrary(t *testing.T) {
	called := calls(t)
	if len(called) < 30 {
		t.Fatalf("of this package's sources only %v are calls", called)
	}
	for _, g := range userland.Generations(t) {
		t.Run(g.Name, func(t *testing.T) {
			path := g.Library("libnvidia-ml.so")
			exported := userland.Functions(t, path)
			for _, name := range called {
				if !slices.Contains(exported, name) && younger[name] == "" {
					t.Errorf("%s is not exported", name)
				}
			}
			if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
				t.Skip("needs a machine without NVIDIA's driver: what the library says without one")
			}
			r := started(t, Options{Library: path})
			until(t, r, "a word on it", func() bool { _, lost := r.Status(); return strings.Contains(lost, "the driver is not loaded") })
			if ok, lost := r.Status(); !ok {
				t.Errorf("a library without a driver is a fault: %s", lost)
			}
			if list, err := r.Read(context.Background()); err != nil || list != nil {
				t.Errorf("devices %v, %v", list, err)
			}
			t.Logf("%d calls", len(called))
		})
	}
}

// calls are the names of NVML's functions in the child's sources.
func calls(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../cmd/trimtab-nvml/*.go")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"(nvml(Init|Device|System|Gpm)\w+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
