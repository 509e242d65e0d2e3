package render

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/api"
)

func advised() api.Advice {
	number := func(name string, v float64, unit, source string) advice.Number {
		return advice.Number{Evidence: policies.Evidence{Name: name, Value: v, Unit: unit}, Source: source}
	}
	cpus := func(v float64) advice.Setting { return advice.Setting{Value: v, Unit: "CPUs"} }
	return api.Advice{UnixNs: at(18, 0), Advice: []advice.Advice{
		{Key: "k1", Container: "train", What: advice.CPUQuota, Text: "with it nothing holds the container back; as a loan it stands only while nobody else wants the CPU",
			Paste: []advice.Line{{For: "docker run", Text: "--cpus=1.75"}, {For: "compose", Text: "cpus: 1.75"}}, Current: cpus(1), Advised: cpus(1.75),
			Gives:      advice.Gives{Of: advice.OfRunTime, Share: 0.38, Low: 0.22, High: 0.5, Hours: 63, LowHours: 37, HighHours: 84},
			Confidence: 0.9, SinceUnixNs: at(14, 2), Evidence: []advice.Number{number("its own quota", 1, "CPUs", "its control group"), number("rate over before", 1.6, "times", "its counted rate")}},
		{Key: "k1", Container: "train", What: advice.DataLocal, Text: "it waits for reads over the network", Current: advice.Setting{Text: "network"}, Advised: advice.Setting{Text: "local"},
			Gives:      advice.Gives{Of: advice.OfRunTime, Share: 0.2, High: 0.4, Hours: 34, HighHours: 67},
			Confidence: 0.6, Evidence: []advice.Number{number("time waiting for reads over the network", 0.4, "share", "the kernel's accounting of its threads")}},
		{Key: "k2", Container: "web", What: advice.CPUSpare, Text: "since 26 Dec 14:02 UTC it wanted at most 0.80 CPUs: with a smaller quota the rest can be promised to others",
			Paste: []advice.Line{{For: "docker run", Text: "--cpus=1.2"}, {For: "compose", Text: "cpus: 1.2"}}, Current: cpus(4), Advised: cpus(1.2),
			Gives:      advice.Gives{Of: advice.OfCPUs, Share: 0.7, Low: 0.4, High: 0.8, Hours: 470, LowHours: 269, HighHours: 538},
			Confidence: 0.5, SinceUnixNs: at(14, 2) - 7*24*3600e9, Evidence: []advice.Number{number("the most it wanted in one reading", 0.8, "CPUs", "its control group")}},
		{What: advice.GPUIdle, Text: "it holds GPU 1 and runs nothing there: ask its owner whether it still needs that", Current: advice.Setting{Value: 1, Unit: "devices"}, Advised: advice.Setting{Unit: "devices"},
			Gives:      advice.Gives{Of: advice.OfDevices, Share: 0.5, Low: 0.4, High: 0.6, Hours: 84, LowHours: 67, HighHours: 101},
			Confidence: 1, SinceUnixNs: at(9, 0), Evidence: []advice.Number{number("held for", 356400, "s", "NVML")}},
	}}
}

func TestAdvice(t *testing.T) {
	golden(t, "advice.txt", Advice(advised(), false, testClock()))
	golden(t, "advice-full.txt", Advice(advised(), true, testClock()))
	if got := Advice(api.Advice{}, false, testClock()); !strings.HasPrefix(got, "nothing to advise") || !strings.Contains(got, "trimtab explain") || strings.Count(got, "\n") != 1 {
		t.Errorf("of nothing: %q", got)
	}
}

// TestHostileAdvice: whatever an advice says, each row is one line within the width, and a terminal
// acts on nothing. Lines to paste are whole, however long.
func TestHostileAdvice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string {
			return rapid.OneOf(rapid.Just("<b>&\"</b>"), rapid.Just(strings.Repeat("\u202ex\U0001f600", 1000)), rapid.Custom(func(t *rapid.T) string { return genText(t, name) })).Draw(t, name)
		}
		f := rapid.Float64()
		a := advice.Advice{Key: text("key"), Container: text("name"), What: advice.What(text("what")), Text: text("text"), Paste: []advice.Line{{For: text("for"), Text: text("line")}},
			Current: advice.Setting{Text: text("now")}, Advised: advice.Setting{Value: f.Draw(t, "advised"), Unit: text("unit")}, Confidence: f.Draw(t, "confidence"), SinceUnixNs: rapid.Int64().Draw(t, "since"),
			Gives:    advice.Gives{Of: text("of"), Share: f.Draw(t, "share"), Hours: f.Draw(t, "hours")},
			Evidence: []advice.Number{{Evidence: policies.Evidence{Name: text("evidence"), Unit: text("of what"), Value: f.Draw(t, "value")}, Source: text("source")}}}
		got := Advice(api.Advice{Advice: []advice.Advice{a}}, true, testClock())
		for _, r := range got {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%q comes through:\n%q", r, got)
			}
		}
		lines := strings.Split(got, "\n")
		if len(lines) != 7 {
			t.Fatalf("%d lines:\n%s", len(lines), got)
		}
		for _, line := range lines[:2] {
			if n := utf8.RuneCountInString(line); n > Width {
				t.Fatalf("%d columns:\n%s", n, line)
			}
		}
	})
}
