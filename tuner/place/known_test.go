package place

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

func hashed(image string, args []string) identity.Identity {
	return identity.Of(identity.Start{Image: image, Command: args}, bytes.Repeat([]byte{7}, identity.KeyBytes))
}

// ran is a known job with what its engine told of it.
func ran(id uint64, rate float64, s identity.Start) profiles.Known {
	k := known(id, s.Image, int64(id), map[string]policies.Cost{"a": {Device: 1 / rate}})
	k.Identities = []identity.Identity{identity.Of(s, bytes.Repeat([]byte{7}, identity.KeyBytes))}
	return k
}

// TestLikenessOfCommands: the same command counts before one that shares its words, and that before
// one of the same image alone. Numbers that a sweep changes make no other command.
func TestLikenessOfCommands(t *testing.T) {
	book := []profiles.Known{
		ran(1, 10, identity.Start{Image: "train:v1", Command: []string{"train.py", "--model", "gpt", "--lr", "0.1"}}),
		ran(2, 20, identity.Start{Image: "train:v2", Entrypoint: []string{"python"}, Command: []string{"train.py", "--model", "bert"}, Env: []string{"DATASET=x"}}),
		ran(3, 30, identity.Start{Image: "train:v2", Command: []string{"eval.py"}}),
		ran(4, 40, identity.Start{Image: "other", Command: []string{"train.py", "--model", "gpt", "--lr", "0.1"}}),
		known(5, "docker.io/train:v1", 99, map[string]policies.Cost{"a": {Device: 1.0 / 50}}),
	}
	foreign := ran(6, 60, identity.Start{Image: "train:v9", Command: []string{"eval.py"}})
	foreign.Identities[0].Key = "another"
	book = append(book, foreign)
	h := Host{Devices: []Device{gpu(0, "a", 80*gib)}}
	for _, c := range []struct {
		args  []string
		first uint64
		alike string
		rate  float64
		all   int
	}{
		{[]string{"train.py", "--model", "gpt", "--lr", "0.1"}, 1, "same command", 10, 4},
		{[]string{"train.py", "--model", "gpt", "--lr", "3e-4"}, 1, "same command", 10, 4},
		{[]string{"train.py", "--model", "bert"}, 2, "same image and words", 20, 4},
		{[]string{"eval.py"}, 3, "same command", 30, 4},
		{[]string{"train.py", "--wide"}, 2, "same image, 1 of 2 words", 20, 4},
		{[]string{"never"}, 5, "same image", 50, 4},
		{nil, 5, "same image", 50, 4},
	} {
		j := state.PlaceJob{Image: "train:v1", Args: c.args}
		wanted := Wanted([]state.PlaceJob{j}, hashed)
		got := Job(h, slices.DeleteFunc(slices.Clone(book), func(k profiles.Known) bool { return !wanted(&k) }), hashed, j, false)
		if len(got.Evidence) != c.all || got.Evidence[0].ID != c.first || got.Evidence[0].Alike != c.alike || math.Abs(got.Choices[0].Rate.PerSecond-c.rate) > 1e-6 {
			t.Errorf("%q: %+v\n%+v", c.args, got.Evidence, got.Choices[0].Rate)
		}
	}
}

// TestNeedsOfTheLastRun: what runs ended with goes before what the steps' cost says.
func TestNeedsOfTheLastRun(t *testing.T) {
	k := ran(1, 10, identity.Start{Image: "train", Command: []string{"x"}})
	h := Host{Devices: []Device{gpu(0, "a", 80*gib)}}
	ask := func() state.PlacedJob {
		return Job(h, []profiles.Known{k}, hashed, state.PlaceJob{Image: "train", Args: []string{"x"}}, false)
	}
	if got := ask(); got.CPUs != 2 || got.MemoryBytes != 0 {
		t.Errorf("by the cost: %v CPUs, %v bytes", got.CPUs, got.MemoryBytes)
	}
	k.Ends = profiles.EndsOf(profiles.End{CPUs: 1, Memory: 5 * gib}, profiles.End{CPUs: 3.5})
	if got := ask(); got.CPUs != 3.5 || got.MemoryBytes != 5*gib {
		t.Errorf("by the runs: %v CPUs, %v bytes", got.CPUs, got.MemoryBytes)
	}
}

// TestBooksTellNoMoreThanThereIs: what a book says that a job has use for ends at what the host has, and says
// nothing where nothing tells how fast its host is. This host's own runs are believed.
func TestBooksTellNoMoreThanThereIs(t *testing.T) {
	h := Host{Devices: []Device{gpu(0, "a", 80*gib)}, CPUs: 16, MemoryBytes: 64 * gib}
	for name, c := range map[string]struct {
		host         string
		shape        bool
		cpus, memory float64
	}{"its own": {"", false, 1 << 20, 1 << 59}, "a book's": {"node7", false, 16, 64 * gib}, "of unknown speed": {"node7", true, 2, 0}} {
		k := ran(1, 10, identity.Start{Image: "train", Command: []string{"x"}})
		k.Host, k.Shape, k.Ends = c.host, c.shape, profiles.EndsOf(profiles.End{CPUs: 1 << 20, Memory: 1 << 59})
		got := Job(h, []profiles.Known{k}, hashed, state.PlaceJob{Image: "train", Args: []string{"x"}}, false)
		if got.CPUs != c.cpus || got.MemoryBytes != c.memory {
			t.Errorf("%s: %v CPUs, %v bytes", name, got.CPUs, got.MemoryBytes)
		}
	}
}

// TestBooksCloseNoDevice: another host's word counts after this one's, is never called measured, tells no
// rate where nothing tells how fast that host is, and keeps no device from a job.
func TestBooksCloseNoDevice(t *testing.T) {
	start := identity.Start{Image: "train", Command: []string{"x"}}
	own, book := ran(1, 10, start), ran(2, 20, start)
	book.Host, book.Learned.Devices = "node7", profiles.CostsOf(map[string]policies.Cost{"a": {Device: 0.05}, "far": {Device: 0.01}})
	book.Print = book.Print.With(profiles.VRAM, 1000*gib)
	h := Host{Devices: []Device{gpu(0, "a", 80*gib)}}
	ask := func(args []string, known ...profiles.Known) state.PlacedJob {
		return Job(h, known, hashed, state.PlaceJob{Image: "train", Args: args}, false)
	}
	if got := ask(start.Command, book, own); got.Choices[0].Rate.PerSecond != 10 || got.Evidence[0].ID != 1 || got.Evidence[1].Host != "node7" || len(got.Elsewhere) != 0 {
		t.Errorf("both: %+v", got)
	}
	got := ask(start.Command, book)
	r := got.Choices[0].Rate
	if len(got.Chosen) != 1 || r.How != state.RatePredicted || r.PerSecond != 20 || len(got.Elsewhere) != 1 || got.Elsewhere[0].Model != "far" || !slices.Equal(got.Elsewhere[0].Hosts, []string{"node7"}) {
		t.Errorf("the book alone: %+v", got)
	}
	book.Shape = true
	if s := ask(start.Command, book); s.Choices[0].Rate.How != state.RateUnknown || len(s.Chosen) != 1 || len(s.Evidence) != 1 {
		t.Errorf("of unknown scale: %+v", s)
	}
	own.Print = own.Print.With(profiles.VRAM, 100*gib)
	if got := ask(start.Command, own); len(got.Chosen) != 0 || got.Choices[0].Unfit == "" {
		t.Errorf("its own runs used more than there is: %+v", got)
	}
	if got := ask([]string{"another"}, own); len(got.Chosen) != 1 {
		t.Errorf("another program of its image did: %+v", got)
	}
}

// TestRatesThatDiffer: what equally alike jobs did is all within the interval.
func TestRatesThatDiffer(t *testing.T) {
	book := []profiles.Known{known(1, "x", 1, map[string]policies.Cost{"a": {Device: 0.1}}), known(2, "x", 2, map[string]policies.Cost{"a": {Device: 0.05}})}
	got := Job(Host{Devices: []Device{gpu(0, "a", 80*gib)}}, book, hashed, state.PlaceJob{Image: "x"}, false).Choices[0].Rate
	if got.PerSecond != 20 || got.Low > 10 || got.High < 20 {
		t.Errorf("%+v", got)
	}
}

// TestRatesOnOtherModels: where such jobs did not run, data sheets tell, with an interval that says how
// little that is; of a job that nobody knows they order the devices, and tell no rate.
func TestRatesOnOtherModels(t *testing.T) {
	const h100, a100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
	k := known(1, "x", 1, map[string]policies.Cost{a100: {TrainerCPU: 0.001, Device: 0.1}})
	k.Print.Device = a100
	h := Host{Devices: []Device{gpu(0, a100, 80*gib), gpu(1, h100, 80*gib), gpu(2, "unheard of", 90*gib)}}
	got := Job(h, []profiles.Known{k}, hashed, state.PlaceJob{Image: "x"}, false).Choices
	if got[0].Model != h100 || got[0].Rate.How != state.RatePredicted || got[1].Rate.How != state.RateMeasured || got[2].Rate.How != state.RateUnknown {
		t.Fatalf("%+v", got)
	}
	for i, c := range got[:2] {
		if r := c.Rate; !(r.Low > 0 && r.Low < r.PerSecond && r.PerSecond < r.High) || i == 0 && r.High < 1.5*r.Low {
			t.Errorf("%s: %+v", c.Model, r)
		}
	}
	got = Job(h, []profiles.Known{k}, hashed, state.PlaceJob{Image: "never"}, false).Choices
	if !slices.Equal(labels(got), []string{"1", "0", "2"}) || got[0].Rate != (state.PlaceRate{How: state.RateUnknown}) {
		t.Errorf("of an unknown job: %+v", got)
	}
	plan := answer(h, nil, state.PlaceRequest{Jobs: []state.PlaceJob{{Image: "never", Seconds: 100, Count: 9}}}).Plan
	on := map[string]int{}
	for _, s := range plan.Starts {
		on[s.Model]++
	}
	if on[h100] <= on[a100] || on[a100] == 0 {
		t.Errorf("data sheets divide unknown jobs: %v", on)
	}
	if on["unheard of"] == 0 {
		t.Errorf("a card without a data sheet gets none of nine: %v", on)
	}
}

// TestOwnBeforeForeign: of two that ran the same command, this host's own is asked first, though
// another's was met later.
func TestOwnBeforeForeign(t *testing.T) {
	s := identity.Start{Image: "train:v1", Command: []string{"train.py"}}
	own, foreign := ran(1, 10, s), ran(2, 20, s)
	foreign.Host = "gpu-7"
	got := Job(Host{Devices: []Device{gpu(0, "a", 80*gib)}}, []profiles.Known{foreign, own}, hashed, state.PlaceJob{Image: "train:v1", Args: []string{"train.py"}}, false)
	if len(got.Evidence) != 2 || got.Evidence[0].ID != 1 || math.Abs(got.Choices[0].Rate.PerSecond-10) > 1e-6 {
		t.Errorf("%+v\n%+v", got.Evidence, got.Choices[0].Rate)
	}
}

// Job answers for one job alone.
func Job(h Host, known []profiles.Known, identify Identify, j state.PlaceJob, share bool) state.PlacedJob {
	return newRequest(h, known, identify).job(j, share)
}

// answer answers a request, for as long as it takes.
func answer(h Host, known []profiles.Known, req state.PlaceRequest) state.Placement {
	out, _ := Answer(context.Background(), h, known, hashed, req)
	return out
}

// crowd are known jobs of one image, of as many commands, that ran on three models each.
func crowd(n int) []profiles.Known {
	out := make([]profiles.Known, n)
	for i := range out {
		s := identity.Start{Image: "train:v1", Command: []string{"train.py", "--model", fmt.Sprint("m", i)}}
		out[i] = ran(uint64(i+1), 10, s)
		out[i].Print.Device = crowdModels[i%3]
		for d, model := range crowdModels {
			out[i].Learned.Devices = out[i].Learned.Devices.With(model, policies.Cost{TrainerCPU: 0.001, Device: 0.1 / float64(d+1)})
		}
	}
	return out
}

var crowdModels = []string{"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L4"}

// wish are jobs of the crowd's image: of one command or of as many.
func wish(n int, same bool) (req state.PlaceRequest) {
	for i := range n {
		if same {
			i = 0
		}
		req.Jobs = append(req.Jobs, state.PlaceJob{Image: "train:v1", Args: []string{"train.py", "--model", fmt.Sprint("m", i)}})
	}
	return req
}

// TestAnswerEnds: who asked and went is not answered, and what is known is read no further.
func TestAnswerEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	looked := 0
	identify := func(image string, args []string) identity.Identity {
		if looked++; looked == 4 { // twice for each
			cancel()
		}
		return hashed(image, args)
	}
	h := Host{Devices: []Device{gpu(0, "a", 80*gib)}}
	if out, err := Answer(ctx, h, crowd(3), identify, wish(100, false)); !errors.Is(err, context.Canceled) || len(out.Jobs) != 0 || looked != 4 {
		t.Errorf("%v after %d looks: %d jobs", err, looked, len(out.Jobs))
	}
}

// TestOneCommandIsLookedUpOnce: however many jobs of a list are of it, and whatever else they say.
func TestOneCommandIsLookedUpOnce(t *testing.T) {
	looked := 0
	identify := func(image string, args []string) identity.Identity { looked++; return hashed(image, args) }
	req := wish(100, true)
	req.Jobs[7].Name, req.Jobs[7].Steps = "seven", 7
	req.Jobs[9].Args = []string{"eval.py"}
	out, err := Answer(t.Context(), Host{Devices: []Device{gpu(0, "a", 80*gib)}}, crowd(3), identify, req)
	if err != nil || looked != 4 || out.Jobs[7].Job.Name != "seven" || out.Jobs[8].Job.Name != "" || len(out.Plan.Starts) != 100 {
		t.Errorf("%v, looked %d times: %+v", err, looked, out.Jobs[7])
	}
	if a, b := out.Jobs[8].Evidence[0].Alike, out.Jobs[9].Evidence[0].Alike; a != "same command" || a == b {
		t.Errorf("%q, other arguments %q", a, b)
	}
}

// TestMostAlikeAreKept: of many, whatever their order.
func TestMostAlikeAreKept(t *testing.T) {
	all := crowd(200)
	for _, order := range []func([]profiles.Known){func([]profiles.Known) {}, slices.Reverse[[]profiles.Known]} {
		order(all)
		like := newRequest(Host{}, all, hashed).matches(wish(1, true).Jobs[0])
		var ids []uint64
		for _, m := range like {
			ids = append(ids, m.ID)
		}
		if !slices.Equal(ids, []uint64{1, 200, 199, 198, 197, 196, 195, 194}) { // the same command, then the latest
			t.Errorf("%v", ids)
		}
	}
}

// BenchmarkAnswer: a thousand jobs, beside ten thousand known ones of their image.
func BenchmarkLongList(b *testing.B) {
	h, known := Host{CPUs: 16}, crowd(10_000)
	for i := range 8 {
		h.Devices = append(h.Devices, gpu(i, crowdModels[i%3], 80*gib))
	}
	for name, same := range map[string]bool{"one command": true, "a thousand": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				answer(h, known, wish(1000, same))
			}
		})
	}
}
