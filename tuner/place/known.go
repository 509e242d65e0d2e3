package place

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// maxEvidence bounds the known jobs that an answer rests on.
const maxEvidence = 8

// Match is a known job that one which is to start is like.
type Match struct {
	profiles.Known
	Alike string // by what, in words
}

// matches are the known jobs that a job is like, the latest first.
func matches(known []profiles.Known, j state.PlaceJob) []Match {
	image := wholeName(j.Image)
	var out []Match
	for _, k := range known {
		if k.Print.Image != "" && wholeName(k.Print.Image) == image {
			out = append(out, Match{k, "same image"})
		}
	}
	slices.SortFunc(out, func(a, b Match) int {
		return cmp.Or(cmp.Compare(b.LastUnixNs, a.LastUnixNs), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), maxEvidence)]
}

// wholeName writes an image's name with what Docker adds to it: its own registry and the tag latest.
func wholeName(image string) string {
	image = strings.TrimPrefix(strings.TrimPrefix(image, "docker.io/"), "library/")
	if last := image[strings.LastIndexByte(image, '/')+1:]; !strings.ContainsAny(last, ":@") {
		image += ":latest"
	}
	return image
}

// expect tells the rate of jobs on a model of device on which one like them ran.
func expect(like []Match, cpus float64) Expect {
	return func(model string) state.PlaceRate {
		for _, m := range like {
			if cost, ok := m.Learned.Devices[model]; ok && cost.Step(cpus) > 0 {
				return state.PlaceRate{How: state.RateMeasured, PerSecond: 1 / cost.Step(cpus), Unit: m.Print.Unit}
			}
		}
		return state.PlaceRate{How: state.RateUnknown}
	}
}

// Job answers for one job: its devices, the best first, what such jobs had use for, and why.
func Job(h Host, known []profiles.Known, j state.PlaceJob, share bool) state.PlacedJob {
	like := matches(known, j)
	out := state.PlacedJob{Job: j, Evidence: []state.PlaceEvidence{}}
	w := Want{Expect: expect(like, h.CPUs)}
	for _, m := range like {
		out.Evidence = append(out.Evidence, state.PlaceEvidence{ID: m.ID, Name: m.Name, Alike: m.Alike, Jobs: m.Jobs, Models: m.Models(), LastUnixNs: m.LastUnixNs})
		w.MemoryBytes = cmp.Or(w.MemoryBytes, value(m, profiles.VRAM))
		out.CPUs = cmp.Or(out.CPUs, m.Learned.Cost.Knee())
	}
	out.Choices = Rank(h, w)
	out.Elsewhere = elsewhere(h, like, w.Expect)
	out.Chosen, out.Why = Choose(out.Choices, max(1, j.GPUs), share)
	return out
}

func value(m Match, a profiles.Attribute) float64 {
	v, _ := m.Print.Value(a)
	return v
}

// elsewhere are the models that such jobs ran on and that the host lacks, the fastest first.
func elsewhere(h Host, like []Match, e Expect) (out []state.PlaceElsewhere) {
	for _, m := range like {
		for _, model := range m.Models() {
			if slices.ContainsFunc(h.Devices, func(d Device) bool { return d.Name == model }) ||
				slices.ContainsFunc(out, func(o state.PlaceElsewhere) bool { return o.Model == model }) {
				continue
			}
			out = append(out, state.PlaceElsewhere{Model: model, Rate: e(model)})
		}
	}
	slices.SortFunc(out, func(a, b state.PlaceElsewhere) int {
		return cmp.Or(cmp.Compare(b.Rate.PerSecond, a.Rate.PerSecond), cmp.Compare(a.Model, b.Model))
	})
	return out
}

// Answer answers a request, which is checked already.
func Answer(h Host, known []profiles.Known, req state.PlaceRequest) state.Placement {
	out := state.Placement{Jobs: []state.PlacedJob{}}
	for _, j := range req.Jobs {
		out.Jobs = append(out.Jobs, Job(h, known, j, req.Share))
	}
	if len(req.Jobs) > 1 || len(req.Jobs) == 1 && req.Jobs[0].Count > 1 {
		out.Plan = plan(out.Jobs, req.Policy, req.Share, func(string) float64 { return 0 })
	}
	return out
}
