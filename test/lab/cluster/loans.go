package cluster

import (
	"math"
	"math/rand/v2"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/allocate"
)

// Loans divides a server as the daemon does: each job begins with its proportional share as
// quota and limit, and a weight by its GPUs, as an owner would set them who asks for that share.
// What others leave idle is lent at once, by the daemon's own allocation, and called back when
// they want it. Memory above a limit is lent as page cache that nobody else wants.
func Loans(t Times) Mechanism {
	return Mechanism{Name: "trimtab", New: func(*rand.Rand) Strategy { return &loans{times: t, k: policies.DefaultConstants()} }}
}

// Times are what the daemon takes for its steps, in seconds.
type Times struct {
	Grant float64 `json:"grantS"` // from a job's start to its first loan
	Fill  float64 `json:"fillS"`  // until what a raised memory limit keeps was read once
}

// DefaultTimes: two readings and a write; an epoch of a minute.
func DefaultTimes() Times { return Times{Grant: 3, Fill: 60} }

type loans struct {
	times Times
	k     *policies.Constants
}

// Divide implements Strategy.
func (d *loans) Divide(now float64, s Server, jobs []*Running) float64 {
	next := math.Inf(1)
	due := func(r *Running, after float64) bool {
		at := r.StartS + after
		if now < at-1e-9 {
			next = min(next, at)
			return false
		}
		return true
	}
	d.memory(s, jobs, func(r *Running) bool { return due(r, d.times.Fill) })
	parties := make([]allocate.Party, len(jobs))
	idle := s.CPUs
	for i, r := range jobs {
		own, _ := s.share(r.GPUs)
		r.Have = min(own, r.want(r.MemoryGB))
		idle -= r.Have
		parties[i] = allocate.Party{OwnQuota: own, OwnWeight: 100 * float64(r.GPUs), Used: r.Have, Most: math.Inf(1)}
		parties[i].Claim = policies.Claim{Weight: 100 * float64(r.GPUs), Quota: own, Demand: r.want(r.MemoryGB), Active: true, Tuned: true}
		if r.want(r.MemoryGB) > own && due(r, d.times.Grant) {
			parties[i].Asks = s.CPUs
		}
	}
	node := policies.Node{CPUs: s.CPUs, Idle: max(0, idle), MaxWeight: 10000}
	claims := make([]policies.Claim, len(jobs))
	for i, g := range allocate.RightsOf(node, parties).Plan(d.k, parties) {
		claims[i] = parties[i].Claim
		claims[i].Quota, claims[i].Weight = g.Quota, g.Weight
	}
	for i, cpus := range policies.Shares(s.CPUs, claims) {
		jobs[i].Have = cpus
	}
	if math.IsInf(next, 1) {
		return 0
	}
	return next
}

// memory gives each job what it can cache within its share, and what others leave to those
// that want more.
func (d *loans) memory(s Server, jobs []*Running, may func(*Running) bool) {
	left := s.MemoryGB
	for _, r := range jobs {
		_, share := s.share(r.GPUs)
		r.MemoryGB = min(share, float64(r.GPUs)*r.Curve.Cached())
		left -= r.MemoryGB
	}
	for _, r := range jobs {
		more := float64(r.GPUs)*r.Curve.Cached() - r.MemoryGB
		if more > 0 && left > 0 && may(r) {
			give := min(more, left)
			r.MemoryGB, left = r.MemoryGB+give, left-give
		}
	}
}
