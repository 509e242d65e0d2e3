package render

import (
	"fmt"
	"strings"
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
	Mend      string   `json:"mend,omitempty"`
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
		cells = append(cells, []string{clean(r.Container), clean(strings.Join(r.GPUs, ",")), r.Injection, r.Driver, r.Access, r.Risk})
		fmt.Fprintf(&notes, "\n%s: %s\n", clean(r.Container), clean(r.Why))
		if r.Mend != "" {
			fmt.Fprintf(&notes, "  mend: %s\n", r.Mend)
		}
	}
	return table(columns, cells) + notes.String()
}
