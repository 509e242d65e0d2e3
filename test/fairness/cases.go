package main

import (
	"fmt"
	"math"
	"strings"
)

// metric is what of a neighbour is held against what it had at its owner's values.
type metric string

const (
	byCPU  metric = "CPU time"
	byWork metric = "work per CPU second"
	byRate metric = "steps a second"
	byHeld metric = "memory held"
)

// neighbour is a container beside the borrower.
type neighbour struct {
	docker []string // arguments of docker run
	args   []string // of fair.py
	// weight is its CPU shares where they are all that its owner set; 0: it has a quota, or is not
	// measured by CPU.
	weight float64
	// enrolled: it may be tuned as well. present: it is there, and idle, before the loan.
	enrolled, present bool
}

// fairCase is one situation.
type fairCase struct {
	name, why  string
	borrower   []string // arguments of docker run
	lends      []string // arguments of its fair.py
	neighbours []neighbour
	by         metric
	// together: they are at work from the beginning, and the loan comes while they are.
	together bool
	config   string
}

const (
	borrowerQuota = 0.4       // CPUs
	borrowerLimit = 400 << 20 // bytes of memory, where that is lent
)

func spins(n int) []string { return []string{"--kind", "spin", "--processes", fmt.Sprint(n)} }

func cpus(x float64) []string { return []string{"--cpus", fmt.Sprint(x)} }

// fair is the CPUs that a neighbour has a right to at the most where its owner set no quota: its
// share by weight. What the borrower's quota leaves it beyond that may be proved to be worth more.
func (c fairCase) fair(n neighbour, cpus float64) float64 {
	if n.weight == 0 {
		return math.Inf(1)
	}
	sum := 1024.0 // the borrower's
	for _, x := range c.neighbours {
		sum += x.weight
	}
	return cpus * n.weight / sum
}

// many neighbours alike.
func many(count int, n neighbour) (out []neighbour) {
	for range count {
		out = append(out, n)
	}
	return out
}

// cases are all, for a machine of two CPUs or more.
func cases() []fairCase {
	lent := cpus(borrowerQuota)
	both := spins(2)
	slice := func(name string, more ...string) []string {
		return append([]string{"--cgroup-parent", "/" + name}, more...)
	}
	return []fairCase{
		{name: "quota, came later", why: "a container of --cpus 1.8 starts while the loan stands", borrower: lent, lends: both, by: byCPU,
			neighbours: []neighbour{{docker: cpus(1.8), args: both}}},
		{name: "quota, was idle", why: "the same, and it was there before", borrower: lent, lends: both, by: byCPU,
			neighbours: []neighbour{{docker: cpus(1.8), args: both, present: true}}},
		{name: "quota, enrolled", why: "the same, enrolled", borrower: lent, lends: both, by: byCPU,
			neighbours: []neighbour{{docker: cpus(1.8), args: both, present: true, enrolled: true}}},
		{name: "no quota", why: "a container without a quota wakes", borrower: lent, lends: both, by: byCPU,
			neighbours: []neighbour{{args: both, present: true, weight: 1024}}},
		{name: "a larger weight", why: "one of four times the weight wakes", borrower: lent, lends: both, by: byCPU,
			neighbours: []neighbour{{docker: []string{"--cpu-shares", "4096"}, args: both, present: true, weight: 4096}}},
		{name: "a smaller weight", why: "one of a quarter of the weight wakes", borrower: lent, lends: both, by: byCPU,
			neighbours: []neighbour{{docker: []string{"--cpu-shares", "256"}, args: both, present: true, weight: 256}}},
		{name: "one process", why: "one of --cpus 1 with a single process wakes", borrower: lent, lends: both, by: byCPU,
			neighbours: []neighbour{{docker: cpus(1), args: spins(1), present: true}}},
		{name: "ten neighbours", why: "ten of one process each wake at once", borrower: lent, lends: both, by: byCPU,
			neighbours: many(10, neighbour{args: spins(1), present: true, weight: 1024})},
		{name: "another slice", why: "one in another parent group wakes, where weights do not compare", borrower: append(slice("fair-a"), lent...), lends: both, by: byCPU,
			neighbours: []neighbour{{docker: slice("fair-b", "--cpus", "1.8"), args: both, present: true}}},
		{name: "memory bandwidth", why: "one that copies arrays is at work when the loan comes", borrower: lent, lends: []string{"--kind", "stream", "--processes", "1"}, by: byWork, together: true,
			neighbours: []neighbour{{docker: cpus(1), args: []string{"--kind", "stream", "--processes", "1"}, present: true}}},
		{name: "woken fast", why: "one that sleeps 4 ms and works 1 ms is at work when the loan comes", borrower: lent, lends: both, by: byRate, together: true,
			neighbours: []neighbour{{docker: cpus(1), args: []string{"--kind", "wake", "--processes", "2"}, present: true}}},
		{name: "memory", why: "the borrower was lent memory for its files; one needs what is left of the host's", by: byHeld,
			borrower: []string{"--memory", "400m", "--memory-swap", "400m", "--cpus", "0.8", "--label", "trimtab.knobs=memory"}, lends: nil, config: "memory",
			neighbours: []neighbour{{docker: cpus(1), args: []string{"--kind", "hold", "--processes", "1", "--mib", "1500"}, present: true}}},
	}
}

func chosen(only string) ([]fairCase, error) {
	if only == "" {
		return cases(), nil
	}
	var out []fairCase
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
	}
	for want := range strings.SplitSeq(only, ";") {
		found := false
		for _, c := range cases() {
			if c.name == strings.TrimSpace(want) {
				out, found = append(out, c), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only %q: there is: %s", want, strings.Join(names, "; "))
		}
	}
	return out, nil
}
