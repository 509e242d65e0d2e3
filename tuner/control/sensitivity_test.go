//go:build sensitivity

package control

import (
	"encoding/json"
	"math"
	"os"
	"reflect"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// simMix is one of the mixes of make bench-regret, as far as the simulated node goes.
type simMix struct {
	name string
	cpus int
	make func(n *node)
	each func(n *node, i int)
}

func simMixes() []simMix {
	light := func(n *node, name string, quota float64) {
		j := n.addJob(name, quota, tune())
		j.trainerCPU, j.loaderCPU = 0.003, 0.004
	}
	files := func(n *node) {
		j := n.addJob("files", 1, memoryToo())
		j.files = &fileSet{bytes: 1.2e9, perStep: 4e6, disk: 200e6}
		j.c.Now[runtime.KnobMemoryLimit] = runtime.IntValue(400 << 20)
		j.cgroup.Anon = 100 << 20
		n.memTotal, n.memAvail = 16<<30, 12<<30
	}
	return []simMix{
		{name: "uneven", cpus: 2, make: func(n *node) { n.addJob("images", 0.33, tune()); light(n, "l1", 0.33); light(n, "l2", 0.33) }},
		{name: "uneven8", cpus: 2, make: func(n *node) {
			n.addJob("i1", 0.25, tune())
			n.addJob("i2", 0.25, tune())
			for _, name := range []string{"l1", "l2", "l3", "l4", "l5", "l6"} {
				light(n, name, 0.25)
			}
		}},
		{name: "noisy", cpus: 2, make: func(n *node) { n.addJob("images", 0.33, tune()); light(n, "l1", 0.33); n.addSpinner("stranger", 2) }},
		{name: "even", cpus: 2, make: func(n *node) {
			for _, name := range []string{"t1", "t2", "t3", "t4"} {
				n.addJob(name, 0.5, tune()).device = 0.12
			}
		}},
		{name: "memory", cpus: 4, make: func(n *node) { files(n); n.addJob("images", 0.5, tune()) }},
		{name: "spinning", cpus: 2, make: func(n *node) {
			for _, name := range []string{"s1", "s2", "s3"} {
				n.addProgram(name, 0.6, 1, 0)
			}
		}},
		{name: "changing", cpus: 2, make: func(n *node) { n.addJob("turn", 0.5, tune()); light(n, "l1", 0.5) }, each: func(n *node, i int) {
			if i == 60 {
				n.jobs[0].loaderCPU = 0.010
			}
			if i == 90 {
				n.jobs[0].loaderCPU = 0.050
			}
		}},
		{name: "bursty", cpus: 2, make: func(n *node) { n.addProgram("b1", 0.5, 1.2, 1e6); light(n, "l1", 0.5) }, each: func(n *node, i int) {
			if n.jobs[0].spin = 1.2; i/2%2 == 1 {
				n.jobs[0].spin = 0.1
			}
		}},
		{name: "restless", cpus: 2, make: func(n *node) {
			n.addProgram("borrower", 0.4, 2, 1e6)
			n.addProgram("b2", 0.2, 0.5, 1e6)
			n.addSpinner("comes and goes", 0.01)
		}, each: func(n *node, i int) {
			if n.jobs[2].spin = 0.01; i/7%2 == 1 {
				n.jobs[2].spin = 1.2
			}
		}},
		{name: "unweighted", cpus: 2, make: func(n *node) {
			n.weighted = false
			n.addProgram("borrower", 0.4, 2, 1e6)
			n.addProgram("b2", 0.6, 0.7, 1e6)
			n.addSpinner("late", 0.01)
		}, each: func(n *node, i int) {
			if i == 60 {
				n.jobs[2].spin = 1.1
			}
		}},
		{name: "contended", cpus: 2, make: func(n *node) {
			j := n.addJob("behind", 0, tune())
			j.c.Now[runtime.KnobCPUWeight] = "256"
			j.c.Enrolment.CPU.Min = 0.8
			n.addSpinner("s1", 2)
			n.addSpinner("s2", 2)
		}},
		{name: "deal", cpus: 2, make: func(n *node) {
			n.addJob("small", 0, tune()).trainerCPU = 0.002
			n.addJob("large", 0, tune())
			n.addProgram("third", 0, 1, 1e6)
		}},
		{name: "noisy counts", cpus: 2, make: func(n *node) { n.addJob("images", 0.3, tune()); n.addSpinner("s", 2) }, each: func(n *node, i int) {
			n.jobs[0].device = 0.04 * math.Exp(0.3*n.rng.NormFloat64())
		}},
		{name: "small need", cpus: 2, make: func(n *node) {
			n.addProgram("a", 0.5, 0.56, 1e6)
			n.addProgram("b", 0.3, 0.32, 1e6)
			n.addJob("c", 0.8, tune())
		}},
		{name: "growth", cpus: 2, make: func(n *node) {
			files(n)
			n.jobs[0].files.bytes = 50e6
		}, each: func(n *node, i int) {
			if i > 20 {
				n.jobs[0].cgroup.Anon += 8 << 20
			}
		}},
		{name: "too large to keep", cpus: 2, make: func(n *node) {
			files(n)
			n.jobs[0].files.bytes = 60e9
			n.jobs[0].files.disk = 2e9
		}},
		{name: "epochs of a minute", cpus: 4, make: func(n *node) {
			files(n)
			n.jobs[0].files.bytes = 6e9
			n.jobs[0].files.disk = 100e6
		}},
		{name: "stolen", cpus: 2, make: func(n *node) { n.addJob("images", 0.3, tune()); n.addSpinner("s", 2) }, each: func(n *node, i int) {
			if n.steal = 0; i%20 > 12 {
				n.steal = 0.03
			}
		}},
		{name: "neighbour", cpus: 2, make: func(n *node) { n.addProgram("borrower", 0.4, 2, 1e6); n.addProgram("late", 1.8, 0.01, 1e6) }, each: func(n *node, i int) {
			if i == 60 {
				n.jobs[1].spin = 2
			}
		}},
	}
}

// memoryToo is tuned in CPU and memory.
func memoryToo() policies.Enrolment {
	e := tune()
	e.Knobs = []string{"cpu", "memory"}
	return e
}

// simOutcome is what a run of a mix comes to.
type simOutcome struct {
	Work  float64 `json:"work"`  // CPUs used over wanted, mean over jobs and seconds
	Right float64 `json:"right"` // the least part of its right that a job had in any 5 s
	Grant float64 `json:"grant"` // seconds until the first loan
	Moves float64 `json:"moves"` // changes a minute
	Lent  float64 `json:"lent"`  // CPUs above owners' quotas, mean
	GiB   float64 `json:"gib"`   // of memory above owners' limits, mean
}

const simSeconds = 120

func (m simMix) run(k *policies.Constants) simOutcome {
	cfg := Defaults()
	cfg.Constants = *k
	n := newNode(m.cpus)
	m.make(n)
	c := New(cfg, builtin, "t")
	out := simOutcome{Right: 1, Grant: simSeconds}
	var work, of float64
	got := map[*simJob][]float64{}
	own, limit := map[*simJob]float64{}, map[*simJob]int64{}
	for _, j := range n.jobs {
		own[j], limit[j] = j.quota(), j.limit()
	}
	run(c, n, simSeconds, func(i int, d Decision) {
		for _, o := range append(d.Apply, d.Rollback...) {
			out.Moves += float64(len(o.Changes)) / simSeconds * 60
		}
		claims := make([]policies.Claim, len(n.jobs))
		for x, j := range n.jobs {
			claims[x] = policies.Claim{Weight: 1024, Quota: own[j], Demand: j.wanted(), Active: true}
		}
		rights := policies.Shares(float64(n.cpus), claims)
		for x, j := range n.jobs {
			out.Lent += (j.quota() - own[j]) / simSeconds
			out.GiB += float64(j.limit()-limit[j]) / (1 << 30) / simSeconds
			work, of = work+min(1, j.lastCPUsUsed/j.wanted()), of+1
			right := min(rights[x], j.wanted())
			if own[j] == 0 { // what quotas leave to it is no right
				right = min(right, float64(n.cpus)/float64(len(n.jobs)))
			}
			got[j] = append(got[j], min(1, j.lastCPUsUsed/right))
			if own[j] > 0 && j.quota() > own[j]*1.01 && out.Grant == simSeconds {
				out.Grant = float64(i)
			}
		}
		if m.each != nil {
			m.each(n, i)
		}
	})
	for _, g := range got {
		for i := 10; i+5 <= len(g); i++ {
			if i > 60-5 && i < 60+5 { // a neighbour comes, and has its right within 5 s
				continue
			}
			sum := 0.0
			for _, x := range g[i : i+5] {
				sum += x / 5
			}
			out.Right = min(out.Right, sum)
		}
	}
	out.Work = work / of
	return out
}

// TestSensitivity writes what each constant does to the simulated mixes.
func TestSensitivity(t *testing.T) {
	out := map[string]map[string]simOutcome{}
	all := func(k *policies.Constants) map[string]simOutcome {
		by := map[string]simOutcome{}
		for _, m := range simMixes() {
			by[m.name] = m.run(k)
		}
		return by
	}
	out["="] = all(policies.DefaultConstants())
	fields := reflect.TypeOf(policies.Constants{})
	for i := range fields.NumField() {
		for sign, factor := range map[string]float64{"*": 2, "/": 0.5} {
			k := policies.DefaultConstants()
			f := reflect.ValueOf(k).Elem().Field(i)
			f.SetFloat(f.Float() * factor)
			out[sign+fields.Field(i).Name] = all(k)
		}
	}
	writeSensitivity(t, out)
}

func writeSensitivity(t *testing.T, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("SENSITIVITY_OUT"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}
