package place

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/tuner/devices"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// maxEvidence bounds the known jobs that an answer rests on.
const maxEvidence = 8

// Identify is what a container of an image with these arguments would be known by at its start, but
// for what only its engine knows: entrypoint, environment, mounts.
type Identify func(image string, args []string) identity.Identity

// Wanted tells which known jobs an answer may rest on: those of the images asked for, and those that
// ran on several models of device, by which rates on others are predicted.
func Wanted(jobs []state.PlaceJob, identify Identify) func(*profiles.Known) bool {
	names, words := map[string]bool{}, map[identity.Hash]bool{}
	for _, j := range jobs {
		names[wholeName(j.Image)] = true
		for _, w := range identify(j.Image, nil).Words {
			words[w] = true
		}
	}
	ofName := map[string]bool{} // most known jobs share few images
	return func(k *profiles.Known) bool {
		fits, seen := ofName[k.Print.Image]
		if !seen {
			fits = k.Print.Image != "" && names[wholeName(k.Print.Image)]
			ofName[k.Print.Image] = fits
		}
		return fits || len(k.Learned.Devices) > 1 || slices.ContainsFunc(k.Identities, func(i identity.Identity) bool {
			return slices.ContainsFunc(i.Words, func(w identity.Hash) bool { return words[w] })
		})
	}
}

// match is a known job of the image that is to start.
type match struct {
	*profiles.Known
	words, of int // how many of the words asked for it ran with, of how many; the image is not one
	same      bool
	numbers   int // that both have
}

// request is what the jobs of one request have in common.
type request struct {
	host     Host
	known    []profiles.Known
	names    []string // of their images, whole, in the same order; "": none
	identify Identify
	speeds   *profiles.Predictor
	answers  map[string]state.PlacedJob // by image and arguments
}

func newRequest(h Host, known []profiles.Known, identify Identify) *request {
	r := &request{h, known, make([]string, len(known)), identify, profiles.NewPredictor(known), map[string]state.PlacedJob{}}
	for i := range known {
		if image := known[i].Print.Image; image != "" {
			r.names[i] = wholeName(image)
		}
	}
	return r
}

// matches are the known jobs of an image that are the most like the command, those first.
func (r *request) matches(j state.PlaceJob) []match {
	image, asked, name := r.identify(j.Image, nil), r.identify(j.Image, j.Args), wholeName(j.Image)
	var out []match
	for n := range r.known {
		m := match{Known: &r.known[n], words: -1, of: len(asked.Words) - len(image.Words)}
		for _, i := range m.Identities {
			if i.Key != asked.Key || identity.Common(i.Words, image.Words) == 0 {
				continue
			}
			m.same = m.same || i.Same(asked)
			m.words = max(m.words, identity.Common(i.Words, asked.Words)-len(image.Words))
			m.numbers = max(m.numbers, identity.Common(i.Numbers, asked.Numbers))
		}
		if m.words < 0 && r.names[n] != name {
			continue
		}
		m.words = max(m.words, 0)
		if at, _ := slices.BinarySearchFunc(out, m, match.compare); at < maxEvidence {
			out = slices.Insert(out, at, m)
			out = out[:min(len(out), maxEvidence)]
		}
	}
	return out
}

// compare orders those first that are the most alike.
func (m match) compare(n match) int {
	return cmp.Or(compareBool(n.same, m.same), cmp.Compare(n.words, m.words), compareBool(m.Host != "", n.Host != ""), cmp.Compare(n.numbers, m.numbers),
		cmp.Compare(n.LastUnixNs, m.LastUnixNs), cmp.Compare(m.ID, n.ID))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// command reports whether it is of the command that is to start, as far as that is known.
func (m match) command() bool { return m.same || m.of > 0 && m.words == m.of }

// alike says by what it is alike.
func (m match) alike() string {
	switch {
	case m.same:
		return "same command"
	case m.command():
		return "same image and words"
	case m.words > 0:
		return fmt.Sprintf("same image, %d of %d words", m.words, m.of)
	}
	return "same image"
}

// nearest are those of the matches that are as much alike as the first, and of books only where it is.
func nearest(all []match) []match {
	n := 0
	for n < len(all) && all[n].same == all[0].same && all[n].words == all[0].words && (all[n].Host == "") == (all[0].Host == "") {
		n++
	}
	return all[:n]
}

// wholeName writes an image's name with what Docker adds to it: its own registry and the tag latest.
func wholeName(image string) string {
	image = strings.TrimPrefix(strings.TrimPrefix(image, "docker.io/"), "library/")
	if last := image[strings.LastIndexByte(image, '/')+1:]; !strings.ContainsAny(last, ":@") {
		image += ":latest"
	}
	return image
}

// rates are what jobs like these are expected to do on models of device, by model. Where several
// tell, the first is expected, and the interval holds them all.
func (r *request) rates(like []match, models []string) map[string]state.PlaceRate {
	out := map[string]state.PlaceRate{}
	for _, m := range like {
		for _, s := range r.speeds.SpeedsOf(*m.Known, r.host.CPUs, models) {
			rate := state.PlaceRate{How: state.RatePredicted, PerSecond: s.PerSecond, Low: s.Low, High: s.High, Unit: m.Print.Unit, HostBound: s.HostBound}
			if s.Measured {
				rate.How = state.RateMeasured
			}
			switch was, known := out[s.Device]; {
			case !known, rate.How == state.RateMeasured && was.How != rate.How && was.Unit == rate.Unit:
				out[s.Device] = rate
			case was.Unit == rate.Unit && was.How == rate.How:
				was.Low, was.High = min(was.Low, rate.Low), max(was.High, rate.High)
				out[s.Device] = was
			}
		}
	}
	return out
}

// sheet is a model's speed by its data sheet for work that is bound by its tensor cores and by its
// memory alike; 0: not known.
func sheet(model string) float64 {
	s, ok := devices.Of(model)
	if !ok {
		return 0
	}
	return math.Sqrt(s.Tensor * s.GBs)
}

// job answers for one job: its devices, the best first, what such jobs had use for, and why. Jobs of
// one command are looked up once.
func (r *request) job(j state.PlaceJob, share bool) state.PlacedJob {
	key := fmt.Sprintf("%q %q", j.Image, j.Args)
	out, ok := r.answers[key]
	if !ok {
		out = r.ranked(j)
		r.answers[key] = out
	}
	out.Job = j
	out.Chosen, out.Why = Choose(out.Choices, max(1, j.GPUs), share)
	return out
}

func (r *request) ranked(j state.PlaceJob) state.PlacedJob {
	like := r.matches(j)
	out := state.PlacedJob{Evidence: []state.PlaceEvidence{}}
	var w Want
	var models []string
	for _, d := range r.host.Devices {
		models = append(models, d.Name)
	}
	slices.Sort(models)
	models = slices.Compact(models)
	here := len(models)
	for _, m := range like {
		out.Evidence = append(out.Evidence, state.PlaceEvidence{ID: m.ID, Name: m.Name, Host: m.Host, Alike: m.alike(), Jobs: m.Jobs, Models: m.Models(), LastUnixNs: m.LastUnixNs})
	}
	like = nearest(like)
	for _, m := range like {
		for _, model := range m.Models() {
			if !slices.Contains(models, model) {
				models = append(models, model)
			}
		}
		if vram, _ := m.Print.Value(profiles.VRAM); m.command() && m.Host == "" { // no other program, and no book, may close a device
			w.MemoryBytes = cmp.Or(w.MemoryBytes, vram)
		}
		cpus, memory := m.needs(r.host)
		out.CPUs, out.MemoryBytes = cmp.Or(out.CPUs, cpus), cmp.Or(out.MemoryBytes, memory)
	}
	w.Rates = r.rates(like, models)
	out.Choices = Rank(r.host, w)
	out.Elsewhere = elsewhere(models[:here], like, w.Rates)
	return out
}

// needs are the CPUs and the bytes that the latest run ended with which tells of them; of the CPUs
// else those beyond which its steps get no shorter. A book tells of no more than the host has, and of
// no amounts where nothing tells how fast its host is.
func (m match) needs(h Host) (cpus, memory float64) {
	for _, e := range slices.Backward(m.Ends.All()) {
		if !m.Shape {
			cpus, memory = cmp.Or(cpus, e.CPUs), cmp.Or(memory, e.Memory)
		}
	}
	cpus = cmp.Or(cpus, m.Learned.Cost.Knee())
	if m.Host != "" {
		cpus, memory = atMost(cpus, h.CPUs), atMost(memory, h.MemoryBytes)
	}
	return cpus, memory
}

// atMost bounds a value; bound 0: it has none.
func atMost(v, bound float64) float64 {
	if bound > 0 {
		return min(v, bound)
	}
	return v
}

// elsewhere are the models that such jobs ran on and that the host lacks, the fastest first.
func elsewhere(here []string, like []match, expected map[string]state.PlaceRate) (out []state.PlaceElsewhere) {
	for model, r := range expected {
		if slices.Contains(here, model) {
			continue
		}
		e := state.PlaceElsewhere{Model: model, Rate: r}
		for _, m := range like {
			if _, ran := m.Learned.Devices.On(model); ran && m.Host != "" && !slices.Contains(e.Hosts, m.Host) {
				e.Hosts = append(e.Hosts, m.Host)
			}
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b state.PlaceElsewhere) int {
		return cmp.Or(cmp.Compare(b.Rate.PerSecond, a.Rate.PerSecond), cmp.Compare(a.Model, b.Model))
	})
	return out
}

// Answer answers a request, which is checked already. It ends early with the error of ctx.
func Answer(ctx context.Context, h Host, known []profiles.Known, identify Identify, req state.PlaceRequest) (state.Placement, error) {
	out, r := state.Placement{Jobs: []state.PlacedJob{}}, newRequest(h, known, identify)
	for _, j := range req.Jobs {
		if err := ctx.Err(); err != nil {
			return state.Placement{}, err
		}
		out.Jobs = append(out.Jobs, r.job(j, req.Share))
	}
	if len(req.Jobs) > 1 || len(req.Jobs) == 1 && req.Jobs[0].Count > 1 {
		out.Plan = plan(out.Jobs, req.Policy, req.Share)
	}
	return out, nil
}
