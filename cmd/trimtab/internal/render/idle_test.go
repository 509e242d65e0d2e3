package render

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

const gib = 1 << 30

func holder(name string, mem uint64, quiet float64, idle bool, evidence string) state.Holder {
	return state.Holder{Key: "docker-" + name, Name: name, Team: "vision", MemBytes: mem, SinceUnixNs: at(12, 0), QuietSeconds: quiet, Idle: idle, Evidence: evidence}
}

// node has GPUs of every kind of use.
func node() api.Devices {
	unseen := holder("notebook-of-somebody-with-a-very-long-name-indeed-4711", 21*gib, 11520, true, "device idle")
	unseen.FirstSight = true
	host := state.Holder{Host: true, MemBytes: 40 * gib, SinceUnixNs: at(16, 0), QuietSeconds: 600, Idle: true, Evidence: "device idle"}
	return api.Devices{UnixNs: at(18, 0), IdleAfterNs: 30e9, Devices: []state.Device{
		{Index: 0, UUID: "GPU-0", Name: "NVIDIA H100 80GB HBM3", Holders: []state.Holder{unseen}},
		{Index: 1, UUID: "GPU-1", Name: "NVIDIA H100 80GB HBM3", Holders: []state.Holder{host}},
		{Index: 2, UUID: "GPU-2", Name: "NVIDIA H100 80GB HBM3", Holders: []state.Holder{holder("train", 70*gib, 0, false, "")}},
		{Index: 3, UUID: "GPU-3", Name: "NVIDIA H100 80GB HBM3", Sharing: "time-slicing", Holders: []state.Holder{
			holder("busy", 30*gib, 0, false, ""), holder("waiting", 8*gib, 95, true, "by launches"), holder("who-knows", gib, 0, false, "unknown: shared, driver tells nothing")}},
		{Index: 4, UUID: "GPU-4", Name: "NVIDIA H100 80GB HBM3", Sliced: true},
		{Index: 4, UUID: "MIG-12345678-9abc", Parent: "GPU-4", Name: "MIG 1g.10gb", Holders: []state.Holder{holder("small", gib, 0, false, "unknown: driver tells nothing")}},
		{Index: 5, UUID: "GPU-5", Name: "NVIDIA H100 80GB HBM3", Lost: "fell off the bus"},
		{Index: 6, UUID: "GPU-6", Name: "H100", Virtual: true},
	}}
}

func TestIdle(t *testing.T) {
	golden(t, "idle.txt", Idle(node(), IdleQuery{}))
	golden(t, "idle-since.txt", Idle(node(), IdleQuery{Since: time.Hour}))
	golden(t, "idle-all.txt", Idle(node(), IdleQuery{All: true}))
}

func TestIdleSentence(t *testing.T) {
	one := func(h ...state.Holder) api.Devices {
		return api.Devices{UnixNs: at(18, 0), Devices: []state.Device{{UUID: "GPU-0", Holders: h}}}
	}
	for want, got := range map[string]string{
		"no GPU here (no driver is installed)":                                   Idle(api.Devices{Why: "no driver is installed"}, IdleQuery{}),
		"none of 1 GPUs is held idle":                                            Idle(one(), IdleQuery{}),
		"1 of 1 GPUs is held idle: 1GiB for 1 d 1 h by a":                        Idle(one(holder("a", gib, 90000, true, "device idle")), IdleQuery{}),
		"1 of 1 GPUs is held idle: 2GiB for up to 50 s by a, b":                  Idle(one(holder("a", gib, 50, true, ""), holder("b", gib, 40, true, "")), IdleQuery{}),
		"none of 1 GPUs is held idle for 10 min or longer":                       Idle(one(holder("a", gib, 599, true, "device idle")), IdleQuery{Since: 10 * time.Minute}),
		"none of 1 GPUs is held idle; idle on GPUs that others use: 1":           Idle(one(holder("a", gib, 50, true, ""), holder("b", gib, 0, false, "")), IdleQuery{}),
		"1 of 1 GPUs is held idle: 6GiB for up to 50 s by a, b, c, d and 2 more": Idle(one(six()...), IdleQuery{}),
	} {
		if line, _, _ := strings.Cut(got, "\n"); line != want {
			t.Errorf("got %q, want %q", line, want)
		}
	}
}

func six() []state.Holder {
	var out []state.Holder
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		out = append(out, holder(name, gib, 50, true, "device idle"))
	}
	return out
}

func TestIdleIsHardened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := api.Devices{UnixNs: at(18, 0), Why: genText(t, "why")}
		for range rapid.IntRange(0, 3).Draw(t, "devices") {
			dev := state.Device{Index: rapid.IntRange(0, 99).Draw(t, "index"), UUID: "MIG-" + genText(t, "uuid"), Parent: rapid.SampledFrom([]string{"", "GPU-1"}).Draw(t, "parent"),
				Name: genText(t, "device"), Lost: rapid.SampledFrom([]string{"", "fell off\nthe bus", strings.Repeat("x", 200)}).Draw(t, "lost")}
			for range rapid.IntRange(0, 2).Draw(t, "holders") {
				h := holder(genText(t, "name"), rapid.Uint64().Draw(t, "mem"), rapid.Float64().Draw(t, "quiet"), rapid.Bool().Draw(t, "idle"), genText(t, "evidence"))
				h.Team = genText(t, "team")
				dev.Holders = append(dev.Holders, h)
			}
			d.Devices = append(d.Devices, dev)
		}
		text := Idle(d, IdleQuery{All: true})
		for _, r := range text {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%q comes through:\n%q", r, text)
			}
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for _, line := range lines[min(1, len(lines)):] {
			if n := utf8.RuneCountInString(line); n > Width {
				t.Fatalf("%d columns:\n%s", n, line)
			}
		}
	})
}
