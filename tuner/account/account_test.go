package account

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	second = int64(1e9)
	noon   = 1_767_268_800 * second // 2026-01-01, 12:00 UTC
)

// host plays one container that holds one device, in ticks of a second.
type host struct {
	b    *Book
	now  int64
	c    state.Container
	h    state.Holder
	idle float64 // of each second, how much is told to be idle
	all  []Hour
}

func newHost() *host {
	h := &host{b: NewBook(), now: noon}
	h.c = state.Container{Key: "docker-a", Name: "train", Image: "torch:2", Watched: true, UsedCPUs: 1.5,
		Enrolment: policies.Enrolment{Team: "vision"}, Now: runtime.Values{runtime.KnobCPUQuota: "200000 100000"}}
	h.h = state.Holder{Key: h.c.Key, Name: h.c.Name, Team: "vision"}
	h.tick(0)
	return h
}

func (h *host) tick(elapsed int64) {
	h.now += elapsed
	h.b.Step(&state.Snapshot{UnixNs: h.now, Containers: []state.Container{h.c}, Devices: []state.Device{{UUID: "GPU-0", Holders: []state.Holder{h.h}}}}, elapsed)
}

// run lets so many seconds pass, in which the device is held.
func (h *host) run(seconds int) {
	for range seconds {
		h.h.HeldSeconds++
		h.h.IdleSeconds += h.idle
		h.tick(second)
	}
}

// window lets as many seconds pass as its parts have, and closes in the last.
func (h *host) window(parts map[policies.Part]int64) {
	var wall int64
	for _, s := range parts {
		wall += s
	}
	h.run(int(wall) - 1)
	for p, s := range parts {
		h.c.PartNs[p] += s * second
	}
	h.run(1)
}

// sums is what was counted so far, in ms.
func (h *host) sums() (out Sums) {
	h.all = append(h.all, h.b.Take()...)
	for _, hour := range h.all {
		for _, r := range hour.Rows {
			out.add(&r.Sums)
		}
	}
	return out
}

func use(cells map[Cause]Cell) (u Use) {
	for c, cell := range cells {
		u[c] = cell
	}
	return u
}

var throttled = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Relief: policies.ReliefQuota} //trimtab:table read only

// Ten seconds: five computing, two out of quota, two at a slow peer, one in the device. With a
// quota of 2 CPUs of which 1.5 are used, 5 CPU seconds of the 20 are idle, and 15 are divided so.
func TestHeldTimeIsDividedByTheBreakdown(t *testing.T) {
	h := newHost()
	h.c.Verdict = throttled
	h.window(map[policies.Part]int64{policies.PartCompute: 5, policies.PartInputThrottled: 2, policies.PartCommunication: 2, policies.PartDevice: 1})
	want := Sums{Observed: 10_000,
		GPU: use(map[Cause]Cell{Cause(policies.PartCompute): {Held: 5000}, Cause(policies.PartInputThrottled): {Held: 2000, Actionable: 2000},
			Cause(policies.PartCommunication): {Held: 2000}, Cause(policies.PartDevice): {Held: 1000}}),
		CPU: use(map[Cause]Cell{Cause(policies.PartCompute): {Held: 7500}, Cause(policies.PartInputThrottled): {Held: 3000, Actionable: 3000},
			Cause(policies.PartCommunication): {Held: 3000}, Cause(policies.PartDevice): {Held: 1500}, Idle: {Held: 5000}})}
	if d := cmp.Diff(want, h.sums()); d != "" {
		t.Error(d)
	}
}

// A device without a kernel is so in a stall: what is idle is not taken from what computes, unless
// more is idle than stalls.
func TestIdleIsTakenFromStalls(t *testing.T) {
	for _, tc := range []struct{ idle, compute, stalled int64 }{{18, 24, 18}, {36, 24, 0}, {48, 12, 0}, {0, 24, 36}} {
		h := newHost()
		h.idle = float64(tc.idle) / 60
		h.window(map[policies.Part]int64{policies.PartCompute: 24, policies.PartInputThrottled: 27, policies.PartReclaim: 9})
		got := h.sums().GPU
		for _, x := range []struct {
			c    Cause
			want int64
		}{{Cause(policies.PartCompute), tc.compute * 1000}, {Cause(policies.PartInputThrottled), tc.stalled * 750}, {Cause(policies.PartReclaim), tc.stalled * 250}, {Idle, tc.idle * 1000}} {
			if d := got[x.c][Held] - x.want; d < -1 || d > 1 {
				t.Errorf("%d s idle: %s %d ms, want %d", tc.idle, x.c, got[x.c][Held], x.want)
			}
		}
		if sum := got.Sum(Held); sum < 59_990 || sum > 60_000 {
			t.Errorf("%d s idle: held %d ms, want 60000 less what waits", tc.idle, sum)
		}
	}
}

func TestIdleDevicesAndWindowsThatDoNotClose(t *testing.T) {
	h := newHost()
	h.c.UsedCPUs = 2
	h.idle = 1
	h.run(60)
	h.idle = 0
	h.run(60) // two minutes without a window
	if d := cmp.Diff(Sums{Observed: 120_000, GPU: use(map[Cause]Cell{Idle: {Held: 60_000}, Unknown: {Held: 60_000}}),
		CPU: use(map[Cause]Cell{Unknown: {Held: 240_000}})}, h.sums()); d != "" {
		t.Error(d)
	}
}

// The tracker tells of idle time when it is known, which may be after it was counted as use.
func TestIdleThatIsToldLateIsTakenFromWhatComes(t *testing.T) {
	h := newHost()
	h.run(10)
	h.h.IdleSeconds = 8
	h.run(5)
	h.run(5)
	h.b.Close(h.now)
	if got := h.sums().GPU; got[Idle][Held] != 8000 || got.Sum(Held) != 20_000 {
		t.Errorf("idle %d, held %d ms, want 8000 of 20000", got[Idle][Held], got.Sum(Held))
	}
}

func TestCPUs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		c     func(*state.Container)
		want  map[Cause]Cell
		lent  int64
		wants string
	}{
		{name: "no quota: what it is entitled to", c: func(c *state.Container) { c.Now, c.Entitled, c.UsedCPUs = nil, 3, 1 }, want: map[Cause]Cell{Unknown: {Held: 1000}, Idle: {Held: 2000}}},
		{name: "no quota: what it uses beyond that is held", c: func(c *state.Container) { c.Now, c.Entitled, c.UsedCPUs = nil, 1, 3 }, want: map[Cause]Cell{Unknown: {Held: 3000}}},
		{name: "lent", c: func(c *state.Container) {
			c.Original = runtime.Values{runtime.KnobCPUQuota: "100000 100000"}
			c.Now = runtime.Values{runtime.KnobCPUQuota: "400000 100000"}
			c.UsedCPUs, c.Loan = 3.5, &state.Loan{CPUs: 3, Own: 1, Used: 2.5}
		}, want: map[Cause]Cell{Unknown: {Held: 1000}}, lent: 2500},
		{name: "above the owner's quota under one that a trial proved, which is no loan", c: func(c *state.Container) {
			c.Original = runtime.Values{runtime.KnobCPUQuota: "100000 100000"}
			c.Now = runtime.Values{runtime.KnobCPUQuota: "300000 100000"}
			c.UsedCPUs, c.Loan = 2.5, nil
		}, want: map[Cause]Cell{Unknown: {Held: 1000}}, lent: 1500},
		{name: "use not read", c: func(c *state.Container) { c.Watched, c.UsedCPUs = false, 0 }, want: map[Cause]Cell{Unknown: {Held: 2000}}},
		{name: "nonsense", c: func(c *state.Container) { c.UsedCPUs = -5 }, want: map[Cause]Cell{Idle: {Held: 2000}}},
	} {
		h := newHost()
		tc.c(&h.c)
		h.run(1)
		h.b.Close(h.now)
		if got := h.sums(); cmp.Diff(use(tc.want), got.CPU) != "" || got.Lent != tc.lent {
			t.Errorf("%s: %s lent %d, want %d", tc.name, cmp.Diff(use(tc.want), got.CPU), got.Lent, tc.lent)
		}
	}
}

// kept is a trial that raised the quota, and made it at least low times as fast.
func kept(plan string, from, to runtime.Value, low float64) state.Trial {
	return state.Trial{Plan: plan, Outcome: state.OutcomeKept, Ratio: low + 0.3, Low: low,
		Changes: []policies.Change{{Knob: runtime.KnobCPUQuota, From: from, To: to}}}
}

// stand sets the quota that stands, of an owner's of 2 CPUs.
func (h *host) stand(v runtime.Value) {
	h.c.Original = runtime.Values{runtime.KnobCPUQuota: "200000 100000"}
	h.c.Now = runtime.Values{runtime.KnobCPUQuota: v}
	h.c.Changed = nil
	if v != "200000 100000" {
		h.c.Changed = []runtime.Knob{runtime.KnobCPUQuota}
	}
}

// Before a trial that at the least doubles the rate: nothing. After it half of the time in use is
// saved: of 10 s of the device 5, of 15 CPU seconds 7.5. A second proof multiplies: 1 − 1/(2 × 1.25).
func TestSaved(t *testing.T) {
	h := newHost()
	h.c.Verdict = throttled
	h.run(10)
	h.stand("300000 100000")
	h.c.Trial = &state.Trial{Plan: "p1"}
	h.run(5)
	h.c.Trial = nil
	h.c.Trials = []state.Trial{kept("p1", "200000 100000", "300000 100000", 2)}
	h.run(10)
	about := Cause(policies.PartInputThrottled)
	saved := func(step string, gpu, cpu int64) {
		t.Helper()
		if got := h.sums(); got.GPU[about][Saved] != gpu || got.CPU[about][Saved] != cpu || got.GPU.Sum(Saved) != gpu {
			t.Errorf("%s: saved %d and %d ms, want %d and %d", step, got.GPU[about][Saved], got.CPU[about][Saved], gpu, cpu)
		}
	}
	saved("proved", 5000, 7500)
	if got := h.sums(); got.GPU[about][Proven] != 10_000 || got.GPU[about][Tried] != 0 {
		t.Errorf("proven %d ms, in trials that were taken back %d", got.GPU[about][Proven], got.GPU[about][Tried])
	}
	h.stand("350000 100000") // lent on top of it
	h.run(10)
	saved("more", 10_000, 15_000)
	h.c.Trials = append([]state.Trial{kept("p2", "300000 100000", "400000 100000", 1.25)}, h.c.Trials...)
	h.stand("400000 100000")
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 16_000 {
		t.Errorf("two proofs: %d ms, want 10000 + 6000", got)
	}
	h.stand("300000 100000") // the second was taken back
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 21_000 {
		t.Errorf("the first alone: %d ms, want 16000 + 5000", got)
	}
	h.stand("250000 100000") // trimtab lowered it to what the job can use
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 21_000 {
		t.Errorf("lower, and nothing tells that it is enough: %d ms, want no more than 21000", got)
	}
	h.c.Breakdown = policies.Breakdown{WallNs: 100}
	h.c.Breakdown.Ns[policies.PartThrottled] = 4
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("lower, and it does not bind: %d ms, want 21000 + 5000", got)
	}
	h.c.Breakdown.Ns[policies.PartThrottled] = 5
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("lower, and it binds: %d ms, want no more than 26000", got)
	}
	h.stand("300000 100000")
	h.idle = 1
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("an idle device: %d ms, want no more than 26000", got)
	}
	h.idle = 0
	h.stand("200000 100000") // restored
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("restored: %d ms, want no more than 26000", got)
	}
}

// 2 to 4 CPUs were proved, of which 1 was called in, and then 3 to 5: what the first gave beyond 3
// is in the second, so that alone counts. That the quota does not bind today tells nothing of 3 CPUs.
func TestProofsThatOverlapDoNotMultiply(t *testing.T) {
	h := newHost()
	h.stand("500000 100000")
	h.c.Trials = []state.Trial{kept("p2", "300000 100000", "500000 100000", 1.25), kept("p1", "200000 100000", "400000 100000", 1.5)}
	h.c.Breakdown = policies.Breakdown{WallNs: 100}
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 2000 {
		t.Errorf("saved %d ms, want 2000: 10 s × (1 − 1/1.25)", got)
	}
}

func TestWhatProvesNothing(t *testing.T) {
	take := kept("take", "200000 100000", "300000 100000", 2)
	take.Changes[0].Take = true
	for name, trial := range map[string]state.Trial{
		"no bound":      kept("x", "200000 100000", "300000 100000", 0),
		"bound below 1": kept("x", "200000 100000", "300000 100000", 0.97),
		"unproven":      {Plan: "x", Outcome: state.OutcomeUnproven, Low: 2, Changes: take.Changes},
		"it was taken":  take,
		"another value": kept("x", "200000 100000", "900000 100000", 2),
	} {
		h := newHost()
		h.stand("300000 100000")
		h.c.Trials = []state.Trial{trial}
		h.run(10)
		if got := h.sums().GPU.Sum(Saved); got != 0 {
			t.Errorf("%s: %d ms saved", name, got)
		}
	}
}

// A plan made two jobs 1.4 times as fast in the mean, 1.25 times at the least; each ran 10 s since.
// One that counts its own steps is credited with no more than they tell.
func TestSavedByAPlanOfSeveral(t *testing.T) {
	for name, tc := range map[string]struct {
		together int
		rate     float64 // its own, in the trial, of 10 before
		saved    int64
	}{
		"a plan of its own":    {0, 11, 2000},
		"as fast as the mean":  {2, 14, 2000},
		"faster than the mean": {2, 20, 2000},
		"less than the mean":   {2, 12.8, 1250}, // 1.28 x 1.25 / 1.4 = 1 / 0.875
		"nothing gained":       {2, 10, 0},
		"slower":               {2, 8, 0},
		"steps not counted":    {2, 0, 2000},
	} {
		h := newHost()
		h.c.Verdict = throttled
		if tc.rate > 0 {
			h.c.Rate = policies.Rate{PerSecond: 10, Source: "steps"}
		}
		h.stand("300000 100000")
		h.run(1)
		of := kept("p", "200000 100000", "300000 100000", 1.25)
		of.Ratio, of.Together = 1.4, tc.together
		h.c.Trial, h.c.Rate.PerSecond = &state.Trial{Plan: "p", Together: tc.together}, tc.rate
		h.run(5)
		h.c.Trial, h.c.Trials = nil, []state.Trial{of}
		h.run(10)
		if got := h.sums().GPU.Sum(Saved); got != tc.saved {
			t.Errorf("%s: %d ms are saved, want %d", name, got, tc.saved)
		}
	}
}

// A trial ran 8 s at 0.75 of the rate, and was taken back: 2 s of the device are lost, and 3 CPU seconds.
func TestLost(t *testing.T) {
	gives := []policies.Change{{Knob: runtime.KnobCPUWeight}}
	takes := []policies.Change{{Knob: runtime.KnobCPUWeight, Take: true}}
	for _, tc := range []struct {
		name      string
		trial     state.Trial
		rate      float64 // its own, in the trial, of 10 before
		gpu, cpu  int64
		wantTried int64
	}{
		{"worse", state.Trial{Outcome: state.OutcomeRolledBack, Ratio: 0.75, Changes: gives}, 0, 2000, 3000, 8000},
		{"not told", state.Trial{Outcome: state.OutcomeInconclusive, Ratio: 0.75, Changes: gives}, 0, 2000, 3000, 8000},
		{"by rates alone", state.Trial{Outcome: state.OutcomeRolledBack, Before: 8, After: 6, Changes: gives}, 0, 2000, 3000, 8000},
		{"who gave, by its own rate", state.Trial{Outcome: state.OutcomeRolledBack, Ratio: 1.2, Together: 2, Changes: takes}, 7.5, 2000, 3000, 8000},
		{"who gave, not counted", state.Trial{Outcome: state.OutcomeRolledBack, Ratio: 0.5, Together: 2, Changes: takes}, 0, 0, 0, 8000},
		{"faster", state.Trial{Outcome: state.OutcomeInconclusive, Ratio: 1.1, Changes: gives}, 0, 0, 0, 8000},
		{"kept", state.Trial{Outcome: state.OutcomeKept, Ratio: 0.75, Changes: takes}, 0, 0, 0, 0},
		{"void", state.Trial{Outcome: state.OutcomeAborted, Ratio: 0.75, Changes: gives}, 0, 0, 0, 0},
	} {
		h := newHost()
		h.c.Verdict = throttled
		if tc.rate > 0 {
			h.c.Rate = policies.Rate{PerSecond: 10, Source: "steps"}
		}
		h.run(1)
		tc.trial.Plan = "p"
		h.c.Trial = &tc.trial
		h.c.Rate.PerSecond = tc.rate
		h.run(8)
		h.c.Trial, h.c.Trials = nil, []state.Trial{tc.trial}
		h.run(3)
		got := h.sums()
		at := Cause(policies.PartInputThrottled)
		if got.GPU[at][Lost] != tc.gpu || got.CPU[at][Lost] != tc.cpu || got.GPU.Sum(Tried) != tc.wantTried {
			t.Errorf("%s: lost %d and %d, tried %d ms, want %d, %d, %d", tc.name, got.GPU[at][Lost], got.CPU[at][Lost], got.GPU.Sum(Tried), tc.gpu, tc.cpu, tc.wantTried)
		}
	}
}

// The series of a trial's cause are there, at 0, while it is open: increase() does not see what a
// series begins with.
func TestSeriesOfATrialBeginAtZero(t *testing.T) {
	h := newHost()
	h.c.Verdict = throttled
	h.window(map[policies.Part]int64{policies.PartCompute: 5})
	h.c.Trial = &state.Trial{Plan: "p"}
	h.run(1)
	var totals state.Totals
	h.b.Show(&totals)
	for _, resource := range []string{"gpu", "cpu"} {
		want := state.TeamUse{Team: "vision", Resource: resource, Cause: "input_throttled"}
		if !slices.Contains(totals.TeamUse, want) {
			t.Errorf("%+v has no %+v", totals.TeamUse, want)
		}
	}
	if d := cmp.Diff([]state.Count{{Team: "vision"}}, totals.TeamLent); d != "" {
		t.Error(d)
	}
}

// What was kept before a restart counts while it stands, told by its record.
func TestRecall(t *testing.T) {
	rec := state.Record{Kind: state.RecordTrial, Outcome: state.OutcomeKept, Key: "docker-a", Plan: "old-1", Knob: runtime.KnobCPUQuota, From: "200000 100000", To: "300000 100000", Low: 2}
	taken := rec
	taken.From, taken.To = rec.To, rec.From
	for name, late := range map[string]bool{"before it is seen": false, "while it runs": true} {
		h := &host{b: NewBook(), now: noon}
		if late {
			h = newHost()
		}
		h.b.Recall(rec)
		h.b.Recall(taken)
		if !late {
			b := h.b
			h = newHost()
			h.b = b
			h.tick(0)
		}
		h.stand("300000 100000")
		h.run(10)
		if got := h.sums().GPU[Unknown][Saved]; got != 5000 {
			t.Errorf("%s: %d ms saved, want 5000", name, got)
		}
	}
}

// Lists of CPUs and GPUs have no more and less, so that a take cannot be told from a gift.
func TestRecallOfLists(t *testing.T) {
	for _, knob := range []runtime.Knob{runtime.KnobCpuset, runtime.KnobGPU} {
		h := newHost()
		h.b.Recall(state.Record{Kind: state.RecordTrial, Outcome: state.OutcomeKept, Key: "docker-a", Plan: "old-1", Knob: knob, From: "4-7", To: "0-1", Low: 2})
		h.c.Now, h.c.Changed = runtime.Values{knob: "0-1"}, []runtime.Knob{knob}
		h.run(10)
		if got := h.sums().GPU.Sum(Saved); got != 0 {
			t.Errorf("%s: %d ms saved", knob, got)
		}
	}
}

// Steps of the clock, holes and a suspended daemon: time is the monotonic clock's, hours are the
// wall clock's, and what was not looked on is not counted.
func TestClocks(t *testing.T) {
	h := newHost()
	h.run(10)
	h.now -= 5 * 3600 * second // the clock was set back
	h.run(10)
	h.now += 5 * 3600 * second
	h.h.HeldSeconds += 500
	h.tick(500 * second) // nobody looked on
	h.tick(-3 * second)
	h.run(10)
	h.b.Close(h.now)
	var observed, rows int64
	hours := h.b.Take()
	for _, hour := range hours {
		if observed += hour.Observed; hour.StartUnixNs%nsInHour != 0 || hour.Hours != 1 {
			t.Errorf("%+v is no hour", hour)
		}
		for _, r := range hour.Rows {
			if rows += r.Observed; r.GPU.Sum(Held) != r.Observed {
				t.Errorf("held %d ms of %d", r.GPU.Sum(Held), r.Observed)
			}
		}
	}
	if observed != 30_000 || rows != 30_000 || len(hours) != 2 {
		t.Errorf("observed %d and %d ms in %d hours, want 30000 in 2", observed, rows, len(hours))
	}
}

func TestContainersThatComeAndGo(t *testing.T) {
	b := NewBook()
	for i := range int64(10_000) {
		c := state.Container{Key: fmt.Sprint("docker-", i/2), Name: "x", Now: runtime.Values{runtime.KnobCPUQuota: "100000 100000"}, UsedCPUs: 1, Watched: true}
		b.Step(&state.Snapshot{UnixNs: noon, Containers: []state.Container{c}}, second)
	}
	b.Step(&state.Snapshot{UnixNs: noon}, second)
	hours := b.Take()
	if len(b.meters) != 0 || len(hours) != 1 || len(hours[0].Rows) != MaxRows+1 {
		t.Fatalf("%d meters, %d hours, %d rows", len(b.meters), len(hours), len(hours[0].Rows))
	}
	var held int64
	for _, r := range hours[0].Rows {
		held += r.CPU.Sum(Held)
	}
	if held != 5000*1000 { // each was seen twice, one second apart
		t.Errorf("held %d ms, want 5000000", held)
	}
}

// Processes of the host hold devices too, and so does a container that is not listed any more.
func TestHoldersWithoutAContainer(t *testing.T) {
	b := NewBook()
	holders := []state.Holder{{Host: true}, {Key: "docker-gone", Name: "gone", Team: "vision"}}
	for i := range 11 {
		for h := range holders {
			holders[h].HeldSeconds = float64(i)
		}
		b.Step(&state.Snapshot{UnixNs: noon, Devices: []state.Device{{UUID: "GPU-0", Holders: holders[:1]}, {UUID: "GPU-1", Holders: holders}}}, second)
	}
	b.Close(noon)
	held := map[string]int64{}
	for _, r := range b.Take()[0].Rows {
		held[r.Name+"/"+r.Team] = r.GPU[Unknown][Held]
	}
	if d := cmp.Diff(map[string]int64{"(host)/": 20_000, "gone/vision": 10_000}, held); d != "" {
		t.Error(d)
	}
}

func TestHostileTexts(t *testing.T) {
	h := newHost()
	h.c.Name = strings.Repeat("é", 4096)
	h.c.Image = "\x1b]0;\xff"
	h.run(1)
	h.b.Close(h.now)
	r := h.b.Take()[0].Rows[0]
	if len(r.Name) > maxText || !utf8.ValidString(r.Name) {
		t.Errorf("a name of %d bytes", len(r.Name))
	}
}

func TestWhatCouldNotBeStoredIsCountedLater(t *testing.T) {
	a, b := newHost(), newHost()
	for range 5 {
		a.run(7)
		b.run(7)
		b.b.Return(b.b.Take())
	}
	a.b.Close(a.now)
	b.b.Close(b.now)
	if d := cmp.Diff(a.sums(), b.sums()); d != "" {
		t.Error(d)
	}
}
