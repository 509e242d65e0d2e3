package shares

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// TestCalibrate: what is measured here is what the layout means, and nothing is left.
func TestCalibrate(t *testing.T) {
	for _, v := range runtimetest.Runtimes() {
		t.Run(v.Name, func(t *testing.T) {
			path, err := exec.LookPath(filepath.Join(v.Bin, "runc"))
			if err != nil || os.Geteuid() != 0 {
				t.Skipf("needs runc: and root (%v)", err)
			}
			got, err := Calibrate(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", got)
			if len(got.Points) != 5 {
				t.Errorf("%+v", got)
			}
			for i, p := range got.Points {
				n, ok := p.Weight.Int()
				if !ok || got.Mode != runtime.CgroupV2 && n != p.Shares || got.Mode == runtime.CgroupV2 && n == p.Shares && n > 100 {
					t.Errorf("shares %d stand as %q on %s", p.Shares, p.Weight, got.Mode)
				}
				if before, _ := got.Points[max(0, i-1)].Weight.Int(); i > 0 && n <= before {
					t.Errorf("more shares are no more weight: %+v", got.Points)
				}
			}
			left, _ := filepath.Glob(cgroup.DefaultRoot + "/*/trimtab-shares-*")
			dirs, _ := filepath.Glob(os.TempDir() + "/trimtab-shares-*")
			if len(left)+len(dirs) > 0 {
				t.Errorf("left behind: %v %v", left, dirs)
			}
		})
	}
}

func TestNoRuntime(t *testing.T) {
	if got, err := Calibrate(t.Context(), "/bin/false"); err == nil || !strings.Contains(err.Error(), "/bin/false") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestString(t *testing.T) {
	for want, c := range map[string]Calibration{
		"shares 512, 1024 stand as they are (cgroups hybrid)":                                           {Mode: runtime.CgroupHybrid, Points: []Point{{512, "512"}, {1024, "1024"}}},
		"shares 1024, 2048 become weights 39, 79 (cgroups v2); twice 1024 buys 2.03 times the weight":   {Mode: runtime.CgroupV2, Points: []Point{{1024, "39"}, {2048, "79"}}},
		"shares 1024, 2048 become weights 100, 170 (cgroups v2); twice 1024 buys 1.70 times the weight": {Mode: runtime.CgroupV2, Points: []Point{{1024, "100"}, {2048, "170"}}},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
