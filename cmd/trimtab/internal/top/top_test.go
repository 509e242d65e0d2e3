package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

var update = flag.Bool("update", false, "write the golden files anew")

// at is so many seconds after the instant at which the tests begin.
func at(seconds int) time.Time {
	return time.Date(2026, 1, 2, 14, 2, seconds, 0, time.UTC)
}

func golden(t *testing.T, file string, m *Model) {
	t.Helper()
	got := m.View().String()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// breakdown gives parts of a second, in hundredths.
func breakdown(parts map[policies.Part]int64) policies.Breakdown {
	b := policies.Breakdown{WallNs: 1e9}
	for p, hundredths := range parts {
		b.Ns[p] = hundredths * 1e7
	}
	return b
}

func starving() policies.Breakdown {
	return breakdown(map[policies.Part]int64{policies.PartCompute: 20, policies.PartThrottled: 6, policies.PartDevice: 18, policies.PartInputThrottled: 55, policies.PartOther: 1})
}

func helped() policies.Breakdown {
	return breakdown(map[policies.Part]int64{policies.PartCompute: 47, policies.PartDevice: 51, policies.PartInputWorkers: 2})
}

// train is a job before its loan.
func train() state.Container {
	return state.Container{Key: "docker-1", ID: "4f0c77", Name: "train-resnet50", Image: "pytorch:2.9", Watched: true, GPUs: []string{"0"}, Tuning: "measured", Windows: 1,
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: "label", Knobs: []string{"cpu"}, Team: "vision"},
		Rate:      policies.Rate{PerSecond: 16.6, Source: "torch.backward", Steps: true}, Breakdown: starving(), UsedCPUs: 1,
		Verdict: policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Severity: 0.61, Confidence: 0.95},
		Now:     runtime.Values{runtime.KnobCPUQuota: "100000 100000"}, Original: runtime.Values{runtime.KnobCPUQuota: "100000 100000"}}
}

// lentTrain is the same job with a loan.
func lentTrain() state.Container {
	c := train()
	c.Windows, c.Tuning, c.Breakdown, c.UsedCPUs = 2, "settled", helped(), 1.6
	c.Rate.PerSecond, c.Gain, c.HasGain = 26.7, 0.61, true
	c.Verdict = policies.Verdict{Class: policies.ClassBalanced, Confidence: 0.9}
	c.Now = runtime.Values{runtime.KnobCPUQuota: "180000 100000"}
	c.Changed = []runtime.Knob{runtime.KnobCPUQuota}
	c.Loan = &state.Loan{CPUs: 0.8, Own: 1, Used: 0.6, Settled: true, SinceUnixNs: at(4).UnixNano()}
	c.WhyNot = "no CPU of this host is idle"
	return c
}

// others are containers in other states.
func others() []state.Container {
	quota := []policies.Change{{Name: "x", Knob: runtime.KnobCPUQuota, From: "100000 100000", To: "150000 100000", Gain: 0.3}}
	trial := state.Container{Key: "docker-2", Name: "llm-finetune-of-somebody-with-a-long-name-0", Watched: true, GPUs: []string{"1", "2"}, Tuning: "trial", UsedCPUs: 2,
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Team: "nlp"}, Rate: policies.Rate{PerSecond: 3.1, Source: "hand-offs"}, Breakdown: starving(),
		Verdict: policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseContended, Confidence: 0.8},
		Now:     runtime.Values{runtime.KnobCPUWeight: "2048"}, Original: runtime.Values{runtime.KnobCPUWeight: "1024"}, Changed: []runtime.Knob{runtime.KnobCPUWeight},
		Trial: &state.Trial{Changes: quota, StartedUnixNs: at(0).UnixNano(), Outcome: state.OutcomeOpen, Before: 3, Predicted: 3.9}}
	observed := state.Container{Key: "docker-3", Name: "eval", Watched: true, Tuning: "watched", WhyNot: "no label", Breakdown: helped(), UsedCPUs: 0.5,
		Enrolment: policies.Enrolment{Mode: policies.ModeObserve, WhyNot: "no label"}, Verdict: policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseDevice},
		Trials: []state.Trial{{Changes: quota, Outcome: state.OutcomeWould, Before: 10, Predicted: 13, StartedUnixNs: at(0).UnixNano()}}}
	pending := state.Container{Key: "docker-4", Name: "notebook", Pending: "memory in use is above the limit", Enrolment: policies.Enrolment{Mode: policies.ModeOff}}
	web := state.Container{Key: "docker-5", Name: "web", WhyNot: "no label", Enrolment: policies.Enrolment{Mode: policies.ModeObserve}}
	return []state.Container{trial, observed, pending, web}
}

// answer is what the daemon says at so many seconds.
func answer(seconds int, containers ...state.Container) Data {
	share := func(v float64) *float64 { return &v }
	return Data{At: at(seconds), Containers: containers,
		Status: api.Status{UnixNs: at(seconds).UnixNano(), Node: policies.Node{CPUs: 8, Reserve: 0.8, Idle: 3.2},
			Daemon:     state.Daemon{Version: "v0.1.0", PID: 812, StartedUnixNs: at(-3600).UnixNano(), Mode: policies.ModeTune, Engines: []state.Part{{Name: "docker", OK: true}}},
			Containers: api.Numbers{Running: 5, Watched: 3, Tuned: 2, Changed: 2, Pending: 1}},
		Devices: api.Devices{Devices: []state.Device{
			{Index: 0, Name: "NVIDIA H100 80GB HBM3", Duty: share(0.92), SMActive: share(0.7), MemTotal: 80 << 30, MemUsed: 60 << 30, PowerW: share(612), TempC: share(64),
				Holders: []state.Holder{{Key: "docker-1", Name: "train-resnet50", MemBytes: 60 << 30}}},
			{Index: 1, Name: "NVIDIA H100 80GB HBM3", Duty: share(0), MemTotal: 80 << 30, MemUsed: 21 << 30,
				Holders: []state.Holder{{Key: "docker-2", Name: "llm", MemBytes: 21 << 30, Idle: true, QuietSeconds: 2400}}},
			{Index: 2, Name: "NVIDIA H100 80GB HBM3", Lost: "it fell off the bus"}}}}
}

// seen is a model that has watched a job get its loan.
func seen(width, height int) *Model {
	m := New(Options{Zone: time.UTC})
	m.Update(Resized{width, height})
	m.Update(Data(answer(2, append(others(), train())...)))
	m.Update(Data(answer(4, append(others(), train())...))) // the same window
	second := train()
	second.Windows = 2
	m.Update(Data(answer(6, append(others(), second)...)))
	third := lentTrain()
	third.Windows = 3
	m.Update(Data(answer(8, append(others(), third)...)))
	return m
}

func keys(m *Model, text string) (last Action) {
	for _, r := range text {
		switch r {
		case '\n':
			last = m.Update(Key{Code: tcell.KeyEnter})
		case '\x1b':
			last = m.Update(Key{Code: tcell.KeyEscape})
		default:
			last = m.Update(Key{Code: tcell.KeyRune, Rune: r})
		}
	}
	return last
}

func TestFrames(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {140, 40}} {
		for name, pressed := range map[string]string{"containers": "jj", "devices": "d", "job": "G\n", "help": "?", "explain": "Ge", "filter": "/nlp"} {
			m := seen(size[0], size[1])
			keys(m, pressed)
			golden(t, fmt.Sprintf("%s-%dx%d.txt", name, size[0], size[1]), m)
		}
		m := seen(size[0], size[1])
		m.Update(Failed{Text: "the trimtab daemon is not running (nobody answers at /run/trimtab/trimtab.sock)"})
		m.Update(Tick{Now: at(20)})
		golden(t, fmt.Sprintf("gone-%dx%d.txt", size[0], size[1]), m)
	}
}

func TestWithoutDaemon(t *testing.T) {
	m := New(Options{Zone: time.UTC})
	m.Update(Tick{Now: at(0)})
	m.Update(Failed{Text: "nobody answers", Hint: "`systemctl start trimtab` starts it"})
	golden(t, "never.txt", m)
	m.Update(answer(2, train()))
	if text := m.View().String(); strings.Contains(text, "nobody answers") || !strings.Contains(text, "train-resnet50") {
		t.Errorf("it came, and is not shown:\n%s", text)
	}
}

// TestLink: what is said of the daemon, and what becomes of what it said before.
func TestLink(t *testing.T) {
	m := seen(80, 24)
	line := func() string { return strings.Split(m.View().String(), "\n")[3] }
	if got := line(); got != "" {
		t.Errorf("all is well, and it says %q", got)
	}
	m.Update(Asked{At: at(10)})
	m.Update(Tick{Now: at(12)})
	if got := line(); got != "" || m.stale() {
		t.Errorf("after 2 s without an answer: %q", got)
	}
	m.Update(Tick{Now: at(15)})
	if got := line(); got != "7 s old, of 14:02:08: the daemon has not answered for 5 s" || !m.stale() {
		t.Errorf("after 5 s without an answer: %q", got)
	}
	if style := m.View().At(0, tableTop+1).Style; style != StyleFaint {
		t.Errorf("old data has style %d", style)
	}
	again := answer(16, train())
	again.Status.Daemon.PID = 900
	m.Update(again)
	if got := line(); got != "the daemon was restarted; that was seen 0 s ago" || m.stale() {
		t.Errorf("after a restart: %q", got)
	}
	m.Update(Tick{Now: at(50)})
	if got := line(); got != "" {
		t.Errorf("long after a restart: %q", got)
	}
	again.At = at(90)
	m.Update(again)
	if got := line(); got != "1 min old, of 14:02:16: the daemon answers, and its state does not move" {
		t.Errorf("a state that stands: %q", got)
	}
	again = answer(92, train())
	again.Status.Daemon.Engines[0] = state.Part{Name: "docker", Lost: "no answer: nothing is written"}
	m.Update(again)
	if got := line(); !strings.Contains(got, "restarted") {
		t.Errorf("another process: %q", got)
	}
	m.Update(Tick{Now: at(125)})
	if got := line(); got != "docker is lost: no answer: nothing is written" {
		t.Errorf("a lost part: %q", got)
	}
}

func TestKeys(t *testing.T) {
	m := seen(80, 24)
	selected := func(want string) {
		t.Helper()
		if r := m.list.current(); r == nil || r.cells.Name != want {
			t.Errorf("selected is %+v, want %s", r, want)
		}
	}
	selected("eval")
	keys(m, "G")
	selected("train-resnet50")
	keys(m, "r")
	selected("train-resnet50") // stays, though it is first now
	if m.list.shown[0].cells.Name != "train-resnet50" {
		t.Error("not the other way round")
	}
	keys(m, "ra")
	if len(m.list.shown) != 5 {
		t.Errorf("all: %d", len(m.list.shown))
	}
	keys(m, "a/TRAIN\n")
	if len(m.list.shown) != 1 {
		t.Errorf("filter: %d", len(m.list.shown))
	}
	keys(m, "/q") // typed, no end
	if m.list.filter != "TRAINq" || len(m.list.shown) != 0 {
		t.Errorf("filter %q: %d", m.list.filter, len(m.list.shown))
	}
	m.Update(Key{Code: tcell.KeyBackspace})
	keys(m, "\n\x1b")
	if len(m.list.shown) != 4 {
		t.Errorf("after esc: %d", len(m.list.shown))
	}
	for range columns() {
		keys(m, ">")
	}
	if m.list.sort != 0 {
		t.Errorf("once round all columns: %d", m.list.sort)
	}
	keys(m, ">>>>>") // RATE
	if m.list.shown[0].cells.Name != "train-resnet50" {
		t.Errorf("the highest rate is of %s", m.list.shown[0].cells.Name)
	}
	for pressed, want := range map[string]view{"d": viewDevices, "?": viewHelp, "e": viewExplain, "\n": viewJob, "\ne": viewExplain, "\ne\x1b": viewJob, "\ne\x1b\x1b": viewContainers, "\n?\x1b": viewJob, "d?\x1b": viewDevices, "??": viewContainers} {
		m := seen(80, 24)
		keys(m, pressed)
		if m.view != want {
			t.Errorf("%q leads to page %d, want %d", pressed, m.view, want)
		}
	}
	for key, want := range map[Key]Action{{Code: tcell.KeyRune, Rune: 'q'}: ActionQuit, {Code: tcell.KeyCtrlC}: ActionQuit, {Code: tcell.KeyCtrlZ}: ActionSuspend, {Code: tcell.KeyRune, Rune: 'R'}: ActionRefresh, {Code: tcell.KeyCtrlL}: ActionRedraw, {Code: tcell.KeyRune, Rune: 'x'}: ActionNone} {
		if got := seen(80, 24).Update(key); got != want {
			t.Errorf("%+v asks for %d, want %d", key, got, want)
		}
	}
}

// many are n containers, all of them watched.
func many(n int) []state.Container {
	var out []state.Container
	for i := range n {
		c := lentTrain()
		if i%2 == 0 {
			c = train()
		}
		c.Key, c.Name, c.Windows = fmt.Sprintf("docker-%d", i), fmt.Sprintf("job-%04d", i), 0
		out = append(out, c)
	}
	return out
}

// TestSortedByWhatIsShown: a rate that is not shown is none, a quota counts as it stands, and a speedup by
// whatever tells it.
func TestSortedByWhatIsShown(t *testing.T) {
	of := func(name string, edit func(*state.Container)) state.Container {
		c := state.Container{Key: name, Name: name, Watched: true, Now: runtime.Values{runtime.KnobCPUQuota: "100000 100000"}}
		edit(&c)
		return c
	}
	all := []state.Container{
		of("a", func(c *state.Container) {
			c.Rate.PerSecond, c.RateWhy, c.UsedCPUs, c.Gain = 90, "a rhythm, no speed", 9, 0.9
		}),
		of("b", func(c *state.Container) { c.Rate.PerSecond, c.Work = 5, &state.Work{Ratio: 1.2} }),
		of("c", func(c *state.Container) {
			c.Rate.PerSecond, c.Gain, c.HasGain, c.Now[runtime.KnobCPUQuota] = 7, 0.1, true, "max 100000"
		}),
		of("d", func(c *state.Container) { c.Work, c.Now[runtime.KnobCPUQuota] = &state.Work{CPUs: 3}, "200000 100000" }),
	}
	for by, want := range map[string]string{"rate": "cbad", "cpu": "cdab", "speedup": "dbca"} {
		m := New(Options{Zone: time.UTC, Sort: by})
		m.Update(answer(2, all...))
		got := ""
		for _, r := range m.list.shown {
			got += r.container.Name
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

// TestScrolling: the selected row is always on the screen.
func TestScrolling(t *testing.T) {
	m := New(Options{Zone: time.UTC})
	m.Update(answer(2, many(1000)...))
	for _, code := range []tcell.Key{tcell.KeyDown, tcell.KeyPgDn, tcell.KeyPgDn, tcell.KeyEnd, tcell.KeyUp, tcell.KeyPgUp, tcell.KeyHome, tcell.KeyEnd} {
		m.Update(Key{Code: code})
		if name := m.list.current().cells.Name; strings.Count(m.View().String(), name) < 2 { // in the table and below it
			t.Errorf("after key %d %s is not shown:\n%s", code, name, m.View())
		}
	}
	m.Update(Resized{80, 12})
	m.Update(answer(4, many(3)...))
	if name := m.list.current().cells.Name; name != "job-0002" {
		t.Errorf("%s took its place", name)
	}
	if once := m.Once(); strings.Count(once.String(), "job-") != 3 {
		t.Errorf("once:\n%s", once)
	}
}

// TestScrolledPagesGrow: a larger terminal has room for more of a page that was scrolled to its end,
// and a page that lost lines shows those that are left.
func TestScrolledPagesGrow(t *testing.T) {
	for _, page := range []string{"e", "?", "d", "\n"} {
		m := seen(40, 10)
		keys(m, page+"G")
		m.Update(Resized{140, 40})
		if last := max(m.lines()-m.rowsShown(), 0); m.scroll > last {
			t.Errorf("page %q: line %d is the first of %d, with room for %d:\n%s", page, m.scroll, m.lines(), m.rowsShown(), m.View())
		}
	}
	m := seen(40, 6)
	keys(m, "dG")
	d := answer(4, train())
	d.Devices.Devices = d.Devices.Devices[:1]
	m.Update(d)
	if n := m.lines(); m.scroll > max(n-m.rowsShown(), 0) {
		t.Errorf("line %d is the first of %d devices", m.scroll, n)
	}
}

func TestSplit(t *testing.T) {
	for name, tc := range map[string]struct {
		b       policies.Breakdown
		columns int
		want    map[policies.Part]int
	}{
		"nothing known": {policies.Breakdown{}, 10, nil},
		"no room":       {helped(), 0, nil},
		"halves":        {breakdown(map[policies.Part]int64{policies.PartCompute: 50, policies.PartDevice: 50}), 11, map[policies.Part]int{policies.PartCompute: 6, policies.PartDevice: 5}},
		"less than all": {breakdown(map[policies.Part]int64{policies.PartCompute: 50}), 10, map[policies.Part]int{policies.PartCompute: 5}},
		"more than all": {breakdown(map[policies.Part]int64{policies.PartCompute: 150, policies.PartDevice: 50}), 8, map[policies.Part]int{policies.PartCompute: 6, policies.PartDevice: 2}},
		"negative":      {breakdown(map[policies.Part]int64{policies.PartCompute: -50, policies.PartDevice: 100}), 8, map[policies.Part]int{policies.PartDevice: 8}},
	} {
		var want [policies.NumParts]int
		for p, n := range tc.want {
			want[p] = n
		}
		if got := split(tc.b, tc.columns); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if len(letters) != int(policies.NumParts) {
		t.Errorf("%d letters for %d parts", len(letters), policies.NumParts)
	}
}

func TestColumns(t *testing.T) {
	for width, want := range map[int]int{1: 1, 20: 1, 22: 2, 80: 8, 120: 11, 140: 12, 160: 13, 300: 14} {
		got := place(width)
		sum := len(got) - 1
		for _, c := range got {
			sum += c.width
		}
		if len(got) != want || sum != width {
			t.Errorf("%d columns: %d are shown, in %d", width, len(got), sum)
		}
	}
	for _, name := range SortColumns() {
		m := New(Options{Sort: name, Zone: time.UTC})
		if got := columns()[m.list.sort].sortName(); got != name {
			t.Errorf("sorted by %s instead of %s", got, name)
		}
	}
}

// TestPage: each line of a frame in docs/top.md is one of the golden that the page names, in
// that order.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/top.md")
	if err != nil {
		t.Fatal(err)
	}
	var golden []string
	frames, lines, fenced := 0, 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch name, named := strings.CutPrefix(line, "<!-- cmd/trimtab/internal/top/"); {
		case named:
			name, _, _ = strings.Cut(name, ",")
			frame, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			golden = strings.Split(string(frame), "\n")
			frames++
		case line == "```":
			fenced = !fenced
		case fenced && line != "" && line != "…":
			at := slices.Index(golden, line)
			if at < 0 {
				t.Errorf("no such line, or not here: %q", line)
				continue
			}
			golden = golden[at+1:]
			lines++
		}
	}
	if frames != 2 || lines < 20 {
		t.Errorf("%d lines of %d frames: the page has more", lines, frames)
	}
}

// TestClockStepsBack: when the host's clock is set back an hour nothing gets an age below zero, the rows keep their
// order, and the next answer is shown, with its window.
func TestClockStepsBack(t *testing.T) {
	m := New(Options{Zone: time.UTC, Sort: "rate"})
	m.Update(Resized{120, 24})
	second := lentTrain()
	m.Update(answer(8, append(others(), train())...))
	m.Update(answer(10, append(others(), second)...))
	order := func() (out []string) {
		for _, r := range m.list.shown {
			out = append(out, r.container.Key)
		}
		return out
	}
	notice := func() string { text, _ := m.notice(); return text }
	was := order()
	const back = -3600
	m.Update(Tick{Now: at(back + 11)})
	m.Update(Failed{Text: "nobody answers"})
	if got := notice(); got != "0 s old, of 14:02:10: nobody answers" {
		t.Errorf("of a state that is ahead of the clock: %q", got)
	}
	second.Windows++
	restarted := answer(back+14, append(others(), second)...)
	restarted.Status.Daemon.PID++
	m.Update(restarted)
	m.Update(Tick{Now: at(2*back + 15)}) // and once more
	if got := notice(); got != "the daemon was restarted; that was seen 0 s ago" || m.stale() {
		t.Errorf("of an instant that is ahead of the clock: %q", got)
	}
	if got := order(); !slices.Equal(got, was) || len(got) < 3 {
		t.Errorf("the rows are %v, and were %v", got, was)
	}
	if w := m.past["docker-1"].windows; len(w) != 3 || w[2].unixNs != at(back+14).UnixNano() || w[2].unixNs >= w[1].unixNs {
		t.Errorf("the windows are %v", w)
	}
}
