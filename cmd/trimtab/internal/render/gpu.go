package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

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
