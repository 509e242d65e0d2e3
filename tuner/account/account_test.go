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
	h.b.Step(&state.Snapshot{UnixNs: h.now, Node: policies.Node{CPUs: 8}, Containers: []state.Container{h.c}, Devices: []state.Device{{UUID: "GPU-0", Holders: []state.Holder{h.h}}}}, elapsed)
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
		given int64
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
		}, want: map[Cause]Cell{Unknown: {Held: 1000}}, given: 1500},
		{name: "a loan on top of what a trial gave", c: func(c *state.Container) {
			c.Original = runtime.Values{runtime.KnobCPUQuota: "100000 100000"}
			c.Now = runtime.Values{runtime.KnobCPUQuota: "400000 100000"}
			c.UsedCPUs, c.Loan = 3.5, &state.Loan{CPUs: 2, Own: 1, Trial: 1}
		}, want: map[Cause]Cell{Unknown: {Held: 1000}}, lent: 1500, given: 1000},
		{name: "a loan that it does not use, on top of what a trial gave", c: func(c *state.Container) {
			c.Original = runtime.Values{runtime.KnobCPUQuota: "100000 100000"}
			c.Now = runtime.Values{runtime.KnobCPUQuota: "400000 100000"}
			c.UsedCPUs, c.Loan = 1.5, &state.Loan{CPUs: 2, Own: 1, Trial: 1}
		}, want: map[Cause]Cell{Unknown: {Held: 1000}}, given: 500},
		{name: "a quota above what the host has", c: func(c *state.Container) { c.Now = runtime.Values{runtime.KnobCPUQuota: "6400000 100000"} }, want: map[Cause]Cell{Unknown: {Held: 1500}, Idle: {Held: 6500}}},
		{name: "a quota above what its CPU set has", c: func(c *state.Container) {
			c.UsedCPUs, c.Now = 0.5, runtime.Values{runtime.KnobCPUQuota: "200000 100000", runtime.KnobCpuset: "3"}
		}, want: map[Cause]Cell{Unknown: {Held: 500}, Idle: {Held: 500}}},
		{name: "a CPU set that was changed", c: func(c *state.Container) {
			c.UsedCPUs, c.Now, c.Original = 0.5, runtime.Values{runtime.KnobCPUQuota: "200000 100000", runtime.KnobCpuset: "3"}, runtime.Values{runtime.KnobCpuset: "0-3"}
		}, want: map[Cause]Cell{Unknown: {Held: 500}, Idle: {Held: 1500}}},
		{name: "queued for behind other work: that it could not get", c: func(c *state.Container) { c.UsedCPUs, c.QueuedCPUs = 1, 0.75 }, want: map[Cause]Cell{Unknown: {Held: 1750}, Idle: {Held: 250}}},
		{name: "queued for by more threads than it has CPUs", c: func(c *state.Container) { c.UsedCPUs, c.QueuedCPUs = 1, 7 }, want: map[Cause]Cell{Unknown: {Held: 2000}}},
		{name: "use not read", c: func(c *state.Container) { c.Watched, c.UsedCPUs = false, 0 }, want: map[Cause]Cell{Unknown: {Held: 2000}}},
		{name: "nonsense", c: func(c *state.Container) { c.UsedCPUs = -5 }, want: map[Cause]Cell{Idle: {Held: 2000}}},
	} {
		h := newHost()
		tc.c(&h.c)
		h.run(1)
		h.b.Close(h.now)
		if got := h.sums(); cmp.Diff(use(tc.want), got.CPU) != "" || got.Lent != tc.lent || got.Given != tc.given {
			t.Errorf("%s: %s lent %d, given %d, want %d, %d", tc.name, cmp.Diff(use(tc.want), got.CPU), got.Lent, got.Given, tc.lent, tc.given)
		}
		var totals state.Totals
		h.b.Show(&totals)
		if totals.LentSeconds != float64(tc.lent)/1e3 || totals.TeamLent[0].Value != totals.LentSeconds || totals.TeamGiven[0].Value != float64(tc.given)/1e3 {
			t.Errorf("%s: counters %g, %v, %v", tc.name, totals.LentSeconds, totals.TeamLent, totals.TeamGiven)
		}
	}
}

// A trial ran 8 s at 0.75 of the rate, and was not kept: 2 s of the device are lost, and 3 CPU seconds.
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
		{"not told, and it stands", state.Trial{Outcome: state.OutcomeUnproven, Ratio: 0.75, Changes: gives}, 0, 2000, 3000, 8000},
		{"not told, and taken back later", state.Trial{Outcome: state.OutcomeWithdrawn, Ratio: 0.75, Changes: gives}, 0, 2000, 3000, 8000},
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

// TestTeamOfAContainerThatEnds: a device's reading may name one that its engine has ended, and nobody knows any more.
// What it held is its team's still. So it is where nobody knew the team at first.
func TestTeamOfAContainerThatEnds(t *testing.T) {
	h := newHost()
	h.c.Verdict = throttled
	h.run(1)
	h.h.Name, h.h.Team = "", ""
	h.h.HeldSeconds++
	h.now += second
	h.b.Step(&state.Snapshot{UnixNs: h.now, Devices: []state.Device{{UUID: "GPU-0", Holders: []state.Holder{h.h}}}}, second)
	h.now += second
	h.b.Step(&state.Snapshot{UnixNs: h.now}, second)
	row := h.b.Take()[0].Rows[0]
	if row.Team != "vision" || row.Name != "train" || row.Image != "torch:2" || row.GPU[Unknown][Held] != 2000 || row.CPU[Unknown][Held] != 1500 {
		t.Errorf("%+v", row)
	}
	before, after := Row{Key: row.Key}, row
	before.Observed = 1000
	merged := Merge(Hour{Hours: 1, Rows: []Row{before}}, Hour{Hours: 1, Rows: []Row{after}}).Rows[0]
	if merged.Team != "vision" || merged.Name != "train" || merged.Image != "torch:2" || merged.Observed != row.Observed+1000 {
		t.Errorf("with what was stored before it was known: %+v", merged)
	}
	var tally = NewTally(ByTeam, h.now, h.now+nsInHour)
	tally.Add(Hour{StartUnixNs: FromHour(h.now), Hours: 1, Rows: []Row{row}})
	if g := tally.Report().Groups; len(g) != 1 || g[0].Name != "vision" || g[0].GPU.Held != 2 {
		t.Errorf("%+v", g)
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
