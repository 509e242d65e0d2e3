package top

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/clipperhouse/displaywidth"
	"github.com/gdamore/tcell/v3"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// hostile texts are of those who make containers.
func hostile() []string {
	return []string{"\x1b[2J\x1b]0;x\a", "\u009b31m", "\u202eevil\u202c", "שלום עולם", "مرحبا", "👩‍👩‍👧‍👦🏽🇩🇪", "训练任务", "ﬁ한국어ᄒ", "e\u0301\u0300\u20dd", "\xff\xfe\xc0", "a\tb\r\nc\x00",
		"\u00ad\u200b\ufeff", strings.Repeat("x", 4096), strings.Repeat("漢", 2048), strings.Repeat("\u0301", 4096), "ｆｕｌｌ", "☺️✋🏿", ""}
}

// hostileContainer has a text wherever containers have one.
func hostileContainer(key, text string, n int64) state.Container {
	c := lentTrain()
	c.Key, c.Name, c.Image, c.WhyNot, c.Tuning, c.RateWhy = key, text, text, text, text, ""
	c.Rate, c.Watched, c.Windows = policies.Rate{PerSecond: float64(n), Source: text}, true, uint64(n)
	c.Enrolment = policies.Enrolment{Mode: policies.Mode(text), Team: text, Job: text, EnrolledBy: text, WhyNot: text, Problems: []string{text}, Knobs: []string{text}}
	c.Verdict = policies.Verdict{Class: policies.Class(text), Cause: policies.Cause(text), Why: text, Relief: text, Evidence: []policies.Evidence{{Name: text, Unit: text}}}
	c.GPUs, c.Preflight, c.Thinned, c.Advice = []string{text}, text, []string{text}, []string{text}
	c.Now = runtime.Values{runtime.KnobCPUQuota: runtime.Value(text), runtime.Knob(text): runtime.Value(text)}
	c.Original = c.Now
	c.Changed = []runtime.Knob{runtime.KnobCPUQuota, runtime.Knob(text)}
	c.Trials = []state.Trial{{Outcome: state.Outcome(text), Why: text, Changes: []policies.Change{{Knob: runtime.Knob(text), From: runtime.Value(text), To: runtime.Value(text), Reason: text}}}}
	c.Loan.Why, c.Pending, c.GPULost = text, text, text
	for p := range c.Breakdown.Ns {
		c.Breakdown.Ns[p] = n * int64(p-3) * 1e17
	}
	return c
}

// check is what must hold of each frame: it has its size, and each line takes as many columns
// of a terminal as the frame has cells, of characters that no terminal acts on or joins.
func check(t *testing.T, f *Frame, width, height int) {
	t.Helper()
	if f.Width != width || f.Height != height || len(f.Cells) != width*height {
		t.Fatalf("%d×%d in %d cells, want %d×%d", f.Width, f.Height, len(f.Cells), width, height)
	}
	for y := range height {
		var line strings.Builder
		for x := range width {
			switch c := f.At(x, y); {
			case c.Rune == 0 && (x == 0 || !f.At(x-1, y).Wide):
				t.Fatalf("line %d: half a character at %d", y, x)
			case c.Wide && (x == width-1 || f.At(x+1, y).Rune != 0):
				t.Fatalf("line %d: a wide character at %d has one column", y, x)
			case c.Rune != 0:
				if !unicode.IsPrint(c.Rune) || unicode.IsMark(c.Rune) || unicode.Is(unicode.Cf, c.Rune) {
					t.Fatalf("line %d: %q", y, c.Rune)
				}
				line.WriteRune(c.Rune)
			}
		}
		if got := displaywidth.String(line.String()); got != width {
			t.Fatalf("line %d takes %d columns of %d: %q", y, got, width, line.String())
		}
	}
}

// FuzzFrames: whatever containers are named and say, whatever is typed, whatever size the
// terminal has.
func FuzzFrames(f *testing.F) {
	for i, text := range hostile() {
		f.Add(text, "jj\nekkd?/"+text+"\n>r", uint16(80), uint16(24), int64(i))
		f.Add(text, "?d\x1b\n", uint16(1+i*3), uint16(1+i), int64(-i))
	}
	f.Fuzz(func(t *testing.T, text, pressed string, width, height uint16, n int64) {
		w, h := int(width%250)+1, int(height%80)+1
		m := New(Options{Zone: time.UTC, Filter: text[:min(len(text), 3)], All: true})
		m.Update(Resized{w, h})
		check(t, m.View(), w, h)
		m.Update(Failed{Text: text, Hint: text})
		check(t, m.View(), w, h)
		d := answer(2, hostileContainer("a", text, n), hostileContainer("b", text+"2", n), hostileContainer(text, "plain", 1))
		d.Status.Daemon.Version, d.Status.Daemon.ConfigError = text, text
		d.Status.Daemon.Probes = []state.Part{{Name: text, Lost: text}}
		d.Devices.Devices[0].Name, d.Devices.Devices[0].UUID, d.Devices.Devices[0].Parent, d.Devices.Devices[1].Lost = text, text, text, text
		d.Devices.Devices[0].Holders = []state.Holder{{Key: "a", Name: text, Idle: true, QuietSeconds: float64(n)}}
		m.Update(d)
		check(t, m.View(), w, h)
		for _, r := range pressed[:min(len(pressed), 200)] {
			keys(m, string(r))
			check(t, m.View(), w, h)
		}
		m.list.typing, m.list.filter = false, ""
		for _, v := range []view{viewContainers, viewDevices, viewJob, viewExplain, viewHelp} {
			m.view = viewContainers
			m.open(v)
			check(t, m.View(), w, h)
		}
		m.list.arrange()
		once := m.Once()
		check(t, once, w, once.Height)
	})
}

// TestNamesInTheTable: a name is shown in characters of which none looks like another.
func TestNamesInTheTable(t *testing.T) {
	for _, text := range hostile() {
		m := New(Options{Zone: time.UTC})
		m.Update(answer(2, hostileContainer("a", text, 1)))
		line := strings.Split(m.View().String(), "\n")[tableTop]
		if strings.Contains(line, "\x1b") || len([]rune(line)) > 80 {
			t.Errorf("%.20q is shown as %q", text, line)
		}
	}
}

func BenchmarkThousand(b *testing.B) {
	answers := []Data{answer(2, many(1000)...), answer(4, many(1000)...)}
	for i := range answers[1].Containers {
		answers[1].Containers[i].Windows = 1
	}
	m := New(Options{Zone: time.UTC})
	m.Update(Resized{140, 40})
	b.Run("answer and frame", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			m.Update(answers[i%2])
			m.View()
		}
	})
	b.Run("key and frame", func(b *testing.B) {
		for b.Loop() {
			m.Update(Key{Code: tcell.KeyDown})
			m.View()
		}
	})
	b.Run("sort and frame", func(b *testing.B) {
		for b.Loop() {
			keys(m, "r")
			m.View()
		}
	})
}
