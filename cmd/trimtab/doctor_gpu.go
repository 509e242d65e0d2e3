package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/tuner/config"
)

// The risks, in words.
const (
	riskNone    = "none"
	riskAtRisk  = "at risk"
	riskLost    = "lost"
	riskUnknown = "unknown"
)

// doctorGPU reports on every container that holds a GPU; it changes nothing.
func doctorGPU(cmd *cobra.Command, file, dropDir string) error {
	cfg, _, err := config.Load(file, dropDir)
	if err != nil {
		return err
	}
	all, err := openEngines(cfg, nil)
	if err != nil {
		return err
	}
	defer all.Close()
	listed := listAll(cmd.Context(), all.list())
	if listed.err != nil {
		return listed.err
	}
	rows := gpuRows(cmd.Context(), listed.running)
	code := 0
	if slices.ContainsFunc(rows, func(r render.GPURow) bool { return r.Risk != riskNone }) {
		code = 1
	}
	return showGraded(cmd, rows, code, func() string { return render.GPUs(rows) })
}

func gpuRows(ctx context.Context, running []runtime.Container) []render.GPURow {
	rows := []render.GPURow{}
	for _, c := range running {
		if len(c.GPUs) == 0 {
			continue
		}
		report := device.Preflight(ctx, c, device.Options{})
		access, err := device.CheckAccess(ctx, c)
		row := render.GPURow{Container: c.Name, GPUs: c.GPUs, Injection: report.Mode, Driver: report.Driver, Access: string(access), Why: report.Why, Hint: report.Hint}
		switch {
		case access == device.AccessRefused || report.Lost:
			row.Risk = riskLost
		case report.AtRisk:
			row.Risk = riskAtRisk
		case report.Green:
			row.Risk = riskNone
		default:
			row.Risk = riskUnknown
		}
		if access == device.AccessUnknown && err != nil {
			row.Why += "; " + err.Error()
		}
		rows = append(rows, row)
	}
	return rows
}
