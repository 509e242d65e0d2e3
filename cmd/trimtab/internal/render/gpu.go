package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// GPURow is one container that holds a GPU, as `trimtab doctor --gpu` reports it.
type GPURow struct {
	Container string   `json:"container"`
	GPUs      []string `json:"gpus"`
	Injection string   `json:"injection"`    // the way its devices came: device-requests, legacy-hook, cdi, devices
	Driver    string   `json:"cgroupDriver"` // systemd, cgroupfs; "" if unknown
	Access    string   `json:"access"`       // allowed, refused, unknown
	Risk      string   `json:"risk"`         // none, at risk, lost, unknown
	Why       string   `json:"why"`
	Hint      string   `json:"hint,omitempty"`
}

// GPUVisibilities is the table of `trimtab gpu ls`.
func GPUVisibilities(all []state.GPUVisibility) string {
	if len(all) == 0 {
		return "no running container holds a GPU\n"
	}
	columns := []column{{"CONTAINER", 30, 12, true}, {"DEVICE", 9, 9, false}, {"UUID", 40, 12, false}, {"GRANTED", 7, 7, false}, {"VISIBLE", 7, 7, false}, {"HIDDEN", 6, 6, false}, {"IN USE BY", 20, 9, false}}
	var cells [][]string
	var notes strings.Builder
	for _, s := range all {
		if s.Lost != "" {
			fmt.Fprintf(&notes, "\n%s: %s\n", Clean(s.Name), Clean(s.Lost))
			continue
		}
		cells = append(cells, []string{Clean(s.Name), s.Device, cmp.Or(Clean(s.UUID), "-"), yes(s.Granted), yes(s.Visible), hiddenBy(s), pids(s.Users)})
	}
	return table(columns, cells) + notes.String()
}

// hiddenBy says whether a device is hidden, and where no person asked for it, who did.
func hiddenBy(s state.GPUVisibility) string {
	if s.Hidden && s.Policy {
		return "policy"
	}
	return yes(s.Hidden)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

func pids(all []int32) string {
	if len(all) == 0 {
		return "-"
	}
	words := make([]string, len(all))
	for i, pid := range all {
		words[i] = strconv.Itoa(int(pid))
	}
	return strings.Join(words, ",")
}

// GPUs is the table, and below it a sentence on each container.
func GPUs(rows []GPURow) string {
	if len(rows) == 0 {
		return "no running container holds a GPU\n"
	}
	columns := []column{{"CONTAINER", 30, 12, true}, {"GPUS", 16, 8, false}, {"INJECTION", 15, 9, false}, {"CGROUPS", 8, 8, false}, {"ACCESS", 7, 7, false}, {"RISK", 7, 7, false}}
	var cells [][]string
	var notes strings.Builder
	for _, r := range rows {
		cells = append(cells, []string{Clean(r.Container), Clean(strings.Join(r.GPUs, ",")), r.Injection, r.Driver, r.Access, r.Risk})
		fmt.Fprintf(&notes, "\n%s: %s\n", Clean(r.Container), Clean(r.Why))
		if r.Hint != "" {
			fmt.Fprintf(&notes, "  hint: %s\n", r.Hint)
		}
	}
	return table(columns, cells) + notes.String()
}

// hostHolder stands for the processes outside of all containers.
const hostHolder = "host processes"

// IdleQuery says which holders are shown.
type IdleQuery struct {
	Since time.Duration // only those idle for so long; 0: whatever counts as idle
	All   bool          // every device and holder
}

// Idle tells which GPUs are held and not used: a sentence, then a table.
func Idle(d api.Devices, q IdleQuery) string {
	if len(d.Devices) == 0 {
		return "no GPU here (" + Clean(d.Why) + ")\n"
	}
	columns := []column{{"DEVICE", 6, 6, false}, {"NAME", 20, 10, true}, {"HOLDER", 20, 10, true}, {"TEAM", 8, 5, true}, {"VRAM", 8, 8, false},
		{"HELD", 10, 8, false}, {"SINCE-KERNEL", 12, 12, false}, {"IDLE", 22, 12, false}}
	var rows [][]string
	for _, dev := range d.Devices {
		for _, h := range dev.Holders {
			if q.All || q.Fits(h) {
				rows = append(rows, idleRow(d.UnixNs, dev, h))
			}
		}
		if q.All && len(dev.Holders) == 0 && !dev.Sliced {
			rows = append(rows, []string{Clean(dev.Label()), Clean(deviceName(dev)), "-", "-", "-", "-", "-", free(dev)})
		}
	}
	out := idleSentence(d, q)
	if len(rows) > 0 {
		out += table(columns, rows)
	}
	return out
}

// Fits reports whether a holder is idle as asked for.
func (q IdleQuery) Fits(h state.Holder) bool { return h.Idle && h.QuietSeconds >= q.Since.Seconds() }

func deviceName(d state.Device) string {
	if d.Virtual {
		return "virtual: " + d.Name
	}
	return cmp.Or(d.Name, "-")
}

func free(d state.Device) string {
	if d.Lost != "" {
		return "lost: " + Clean(d.Lost)
	}
	if d.Hold != nil {
		return "held for " + name(d.Hold.For)
	}
	return "free"
}

func idleRow(nowUnixNs int64, d state.Device, h state.Holder) []string {
	since := "-"
	switch {
	case h.QuietSeconds > 0 && h.FirstSight:
		since = "≥ " + Span(h.QuietSeconds)
	case h.QuietSeconds > 0:
		since = Span(h.QuietSeconds)
	}
	state := "in use"
	switch {
	case d.Lost != "":
		state = free(d)
	case h.Idle:
		state = "idle"
		if strings.HasPrefix(h.Evidence, "by ") {
			state += ", " + Clean(h.Evidence)
		}
	case strings.HasPrefix(h.Evidence, "unknown: shared"):
		state = "unknown, shared" // the whole of it is in JSON
	case h.Evidence != "":
		state = "unknown"
	}
	return []string{Clean(d.Label()), Clean(deviceName(d)), holderName(h), cmp.Or(name(h.Team), "-"), enrolment.FormatBytes(float64(h.MemBytes)),
		Span(float64(nowUnixNs-h.SinceUnixNs) / 1e9), since, state}
}

func holderName(h state.Holder) string {
	switch {
	case h.Host:
		return hostHolder
	case h.Name == "":
		return name(h.Key) // a container that trimtab does not know yet, or no more
	}
	return name(h.Name)
}

// tally is what the sentence tells.
type tally struct {
	units, held, lost, aside int // GPUs or slices; held by idle holders alone; not answering; idle holders beside others
	sliced                   bool
	bytes                    uint64
	longest                  float64 // s
	who                      []string
}

func (t *tally) add(d state.Device, q IdleQuery) {
	t.units++
	t.sliced = t.sliced || d.Parent != ""
	var idle []state.Holder
	for _, h := range d.Holders {
		if q.Fits(h) {
			idle = append(idle, h)
		}
	}
	switch {
	case d.Lost != "":
		t.lost++
		return
	case len(idle) < len(d.Holders):
		t.aside += len(idle)
		return
	case len(idle) == 0:
		return
	}
	t.held++
	for _, h := range idle {
		t.bytes, t.longest = t.bytes+h.MemBytes, max(t.longest, h.QuietSeconds)
		if n := holderName(h); !slices.Contains(t.who, n) {
			t.who = append(t.who, n)
		}
	}
}

// idleSentence says the whole in plain words.
func idleSentence(d api.Devices, q IdleQuery) string {
	var t tally
	for _, dev := range d.Devices {
		if !dev.Sliced {
			t.add(dev, q)
		}
	}
	noun, verb, upTo := "GPUs", "are", "up to "
	if t.sliced {
		noun = "GPUs and slices"
	}
	if t.held == 1 {
		verb = "is"
		if len(t.who) == 1 {
			upTo = ""
		}
	}
	out := fmt.Sprintf("%d of %d %s %s held idle: %s for %s%s by %s", t.held, t.units, noun, verb, enrolment.FormatBytes(float64(t.bytes)), upTo, Span(t.longest), few(t.who))
	switch {
	case t.held == 0 && q.Since > 0:
		out = fmt.Sprintf("none of %d %s is held idle for %s or longer", t.units, noun, Span(q.Since.Seconds()))
	case t.held == 0:
		out = fmt.Sprintf("none of %d %s is held idle", t.units, noun)
	}
	if t.aside > 0 {
		out += fmt.Sprintf("; idle on GPUs that others use: %d", t.aside)
	}
	if t.lost > 0 {
		out += fmt.Sprintf("; not answering: %d", t.lost)
	}
	return out + "\n"
}

// few names up to four, and counts the rest.
func few(names []string) string {
	const most = 4
	rest := ""
	if len(names) > most {
		names, rest = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	return each(names, func(n string) string { return ClipMiddle(n, 40) }) + rest
}

// Span shows a length of time in two units: 3 h 12 min.
func Span(seconds float64) string {
	s := int64(max(0, seconds))
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}
