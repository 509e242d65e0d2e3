package disk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/model"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// most is as many jobs as a Store holds, each with all attributes, a device and a curve by CPUs;
// a third of them also with one by memory.
func most(runs bool) []profiles.Known {
	r := rand.New(rand.NewPCG(1, 2))
	cost := func() policies.Cost {
		return policies.Cost{TrainerCPU: r.Float64(), LoaderCPU: r.Float64(), OtherCPU: r.Float64(), Device: r.Float64(), Batch: r.Float64(), Loaders: 8, Ticks: 100 * r.Float64()}
	}
	curve := func(source string) *model.Learner {
		l := &model.Learner{Version: 1, Source: source, Cost: cost()}
		for x := range 4 {
			l.Cells = append(l.Cells, model.Cell{X: math.Pow(1.3, float64(x)) * (1 + r.Float64()/10), Log: r.Float64(), Weight: 1 + r.Float64()})
		}
		return l
	}
	var all []profiles.Known
	for i := range profiles.MaxKnown {
		p := profiles.Print{Unit: "torch.backward", Image: fmt.Sprintf("registry.example.com/team/train-%d:1", i%200), Device: "NVIDIA A100-SXM4-40GB", Steps: 100 * r.Float64()}
		for a := range profiles.NumAttributes {
			p = p.With(a, 1000*r.Float64())
		}
		memory := curve(p.Unit)
		memory.Cost, memory.Paging = policies.Cost{}, policies.Paging{Base: r.Float64(), Lost: r.Float64(), Limit: 1e9 * (1 + r.Float64()), Set: 3e9, Enough: true}
		all = append(all, profiles.Known{ID: uint64(i + 1), Name: fmt.Sprintf("train-%d", i), Print: p, Jobs: 3, FirstUnixNs: day, LastUnixNs: day + int64(i),
			Learned: profiles.Learned{Cost: cost(), Lost: r.Float64(), Correction: 1 + r.Float64()/2, Kept: 3, Right: 2,
				Devices: profiles.CostsOf(map[string]policies.Cost{p.Device: cost()}), Response: curve(p.Unit)}})
		who := identity.Of(identity.Start{Image: p.Image, Command: []string{"python3", "/work/" + word(i) + ".py", "--data", "/data", "--epochs", "9", "--lr", "0.1", "--out", "/out/" + word(i)}}, make([]byte, identity.KeyBytes))
		if runs {
			all[i].Identities = []identity.Identity{who}
			all[i].Ends = profiles.EndsOf(profiles.End{Run: profiles.RunID(i + 1), Setting: profiles.Setting{Job: who.Job, Host: "aGFzaGhh", Kernel: "6.1.0-18-amd64", Driver: "550.54", Device: p.Device, Image: who.Image, Source: p.Unit}, UnixNs: day, Numbers: who.Numbers, CPUs: 2.5,
				Allowed: 8, Memory: 1e9, Pace: profiles.Pace{Rate: 10 * r.Float32(), Spread: r.Float32(), Blocks: 9}})
		}
		if i%3 == 0 {
			all[i].Learned.Memory = memory
		}
	}
	return all
}

// word is a name without a number.
func word(i int) string {
	return strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprint(i))
}

func heap() uint64 {
	goruntime.GC()
	goruntime.GC() // what the first one left to finalizers
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestTenThousandJobs: in less than 20 MB of disk, and of memory.
func TestTenThousandJobs(t *testing.T) {
	for _, c := range []struct {
		name           string
		runs           bool
		memory, onDisk float64
	}{{"by what they do", false, 13e6, 20e6}, {"with a run of each", true, 20e6, 20e6}} {
		t.Run(c.name, func(t *testing.T) {
			s, dir := open(t)
			if err := Save(s, most(c.runs)); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(dir, topic+".json"))
			if err != nil {
				t.Fatal(err)
			}
			before := heap()
			b, err := Load(s, 2*day)
			if err != nil {
				t.Fatal(err)
			}
			held := float64(heap() - before)
			t.Logf("%d jobs: %.1f MB of memory, %.1f MB of disk", b.Len(), held/1e6, float64(info.Size())/1e6)
			if b.Len() != profiles.MaxKnown || held > c.memory || float64(info.Size()) > c.onDisk {
				t.Errorf("want %d in at most %.0f MB of memory and %.0f of disk", profiles.MaxKnown, c.memory/1e6, c.onDisk/1e6)
			}
			goruntime.KeepAlive(b)
		})
	}
}
