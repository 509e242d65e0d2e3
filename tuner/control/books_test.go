package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/model"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// poisoned are known jobs that look like those of a node and lie about all that is learned of them.
func poisoned(r *rand.Rand, known []profiles.Known) (out []profiles.Known) {
	lie := func() float64 { return []float64{1e-6, 0.01, 0.3, 1, 3, 100, 1e6}[r.IntN(7)] }
	for _, k := range known {
		c := &k.Learned.Cost
		c.Device, c.Batch, c.LoaderCPU = c.Device*lie(), c.Batch*lie(), c.LoaderCPU*lie()
		c.Loaders = r.IntN(1000)
		k.Learned.Devices, k.Learned.Correction, k.Learned.Right, k.Jobs = nil, 2, 1<<30, 1<<30
		curve := &model.Learner{Version: 1, Source: k.Print.Unit, Cost: *c}
		for x := range 4 {
			curve.Cells = append(curve.Cells, model.Cell{X: 0.1 + float64(x)*lie()/1e6 + float64(x), Log: 20*r.Float64() - 10, Weight: 24})
		}
		k.Learned.Response = curve
		out = append(out, k)
	}
	return out
}

// bookCase is a node of jobs, and a book that lies about them.
type bookCase struct {
	seed                 uint64
	cpus                 int
	knees, rates, quotas []float64
	calibrated           bool // what it says of devices is known here too
}

// TestPoisonedBooks: whatever a book of another host says of the jobs that run here, each change keeps
// the laws, nobody is left below what is theirs, and nothing of it is taken for measured here.
func TestPoisonedBooks(t *testing.T) {
	for _, calibrated := range []bool{false, true} {
		alike := 0
		for seed := range uint64(3) {
			alike += poisonedBook(t, bookCase{seed: seed, cpus: 4, knees: []float64{0.6, 1.5}, rates: []float64{10, 15}, quotas: []float64{0, 0.6}, calibrated: calibrated})
		}
		if alike == 0 {
			t.Fatalf("calibrated %v: no job was ever like one of the book: nothing was tried", calibrated)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := bookCase{seed: rapid.Uint64().Draw(t, "seed"), cpus: rapid.IntRange(2, 6).Draw(t, "cpus")}
		for range rapid.IntRange(1, 3).Draw(t, "jobs") {
			b.knees, b.rates = append(b.knees, rapid.Float64Range(0.35, 3).Draw(t, "knee")), append(b.rates, rapid.Float64Range(5, 20).Draw(t, "rate"))
			b.quotas = append(b.quotas, rapid.SampledFrom([]float64{0, 0.3, 0.6, 1}).Draw(t, "quota"))
		}
		b.calibrated = rapid.Bool().Draw(t, "calibrated")
		poisonedBook(t, b)
	})
}

// poisonedBook holds one case to the laws; alike is for how many seconds jobs were like some of the book.
func poisonedBook(t rapid.TB, b bookCase) (alike int) {
	r := rand.New(rand.NewPCG(b.seed, 5))
	node := func() *node {
		n := newNode(b.cpus)
		for i := range b.knees {
			n.sized(fmt.Sprint("job", i), b.knees[i], b.rates[i], b.quotas[i])
		}
		return n
	}
	honest := started()
	run(honest, node(), 60, nil)
	there := honest.Profiles().All()

	store, n := profiles.NewStore(), node()
	now := int64(n.nowNs)
	for i := range there { // whatever clock that host had
		there[i].FirstUnixNs, there[i].LastUnixNs = now, now
	}
	var own []profiles.Known
	if b.calibrated {
		own = there
	}
	book := profiles.Prepare(own, profiles.Book{Host: "evil", Known: poisoned(r, there)}, now)
	store.SetForeign(book.Known, now)
	c := started()
	c.Remember(store)
	originals := map[string]runtime.Values{}
	for _, j := range n.jobs {
		originals[j.c.Key()] = j.c.Now.Clone()
	}
	below := map[string]int{}
	run(c, n, 120, func(i int, d Decision) {
		for _, o := range d.Apply {
			for _, ch := range o.Changes {
				lawful(t, c, n, originals[ch.Key], ch)
			}
		}
		for _, j := range n.jobs {
			if c.containers[j.c.Key()].known.similar != nil {
				alike++
			}
			if due := min(c.containers[j.c.Key()].rights.entitled, j.demand()); i > 10 && j.lastCPUsUsed > 0 && j.lastCPUsUsed < 0.95*due {
				below[j.c.Name]++
			}
		}
	})
	for name, ticks := range below {
		if ticks > 30 {
			t.Fatalf("%s was below its right for %d s", name, ticks)
		}
	}
	if m := c.Profiles().Marks(); m.Misled["evil"] > 3 {
		t.Fatalf("misled %d times", m.Misled["evil"])
	}
	if kept := profiles.Own(c.Profiles().All()); slices.ContainsFunc(kept, func(k profiles.Known) bool { return k.Learned.Cost.Loaders > 100 }) {
		t.Fatalf("a lie is among what was measured: %+v", kept)
	}
	return alike
}
