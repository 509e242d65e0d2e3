package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/tuner/config"
	sheets "github.com/trimtab/trimtab/tuner/devices"
	"github.com/trimtab/trimtab/tuner/state"
)

// gpuSummary is what the doctor wants to know of a host's GPUs.
type gpuSummary struct {
	nvml.Summary
	host bool // processes that are in no container's cgroup compute on a device
}

// lookTimeout bounds the look: two readings of a second, and a driver that first
// has to wake its devices.
const lookTimeout = 60 * time.Second

// lookNVML asks NVIDIA's library once, in a child process.
func lookNVML(ctx context.Context) (gpuSummary, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s, err := nvml.Look(ctx, nvml.Options{})
	if err != nil {
		return gpuSummary{}, fmt.Errorf("NVML: %w", err)
	}
	return gpuSummary{s, hostComputes("/proc", s.Devices)}, nil
}

// hostComputes reports whether there is one on the devices whose cgroup no engine that is known here
// would make. The doctor asks no engine: it must tell as much where none answers.
func hostComputes(proc string, devices []probes.Device) bool {
	engines := regexp.MustCompile(`[0-9a-f]{64}|docker|containerd|kubepods|libpod|crio|nerdctl`)
	for _, d := range devices {
		for _, p := range d.Processes {
			groups, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(int(p.PID)), "cgroup"))
			if err == nil && !p.Graphics && !engines.Match(groups) { // one that ended is nobody's
				return true
			}
		}
	}
	return false
}

// examineGPU tells what is there, and the rows of the support table that fit.
func examineGPU(s gpuSummary, err error) []finding {
	switch {
	case err != nil:
		return []finding{grade("GPU", err, levelDegraded, "", "nvidia-smi should work; a reset of the GPU or a restart of the host fixes a driver that hangs"), supportFinding(rowSilent)}
	case s.Absent != "":
		return []finding{{What: "GPU", Level: levelOK, Text: s.Absent}, supportFinding(rowNoGPU)}
	}
	out := []finding{{What: "GPU", Level: levelOK, Text: gpuText(s)}}
	if s.Files != "" {
		out = append(out, finding{What: "GPU", Level: levelOK, Text: s.Files + "; so in a child of doctor's own, and the daemon's log tells of the daemon's"})
	}
	for _, d := range s.Devices {
		out = append(out, examineMemoryErrors(d)...)
		if d.Lost != "" {
			out = append(out, finding{What: "GPU", Level: levelDegraded, Text: fmt.Sprintf("device %d (%s) is lost: %s", d.Index, d.UUID, d.Lost),
				Hint: "nvidia-smi and the kernel's log (Xid) tell more"})
		}
	}
	for _, call := range s.Silent {
		out = append(out, finding{What: "GPU", Level: levelDegraded, Text: call + " did not answer and is left out", Hint: "a newer driver"})
	}
	for _, key := range gpuRowsOf(s) {
		out = append(out, supportFinding(key))
	}
	return out
}

// examineMemoryErrors tells of a device's memory where its driver has counted errors of it.
func examineMemoryErrors(d probes.Device) []finding {
	e, level, hint := d.Errors, levelOK, ""
	var said []string
	say := func(n *uint64, what string) bool {
		if n == nil || *n == 0 {
			return false
		}
		said = append(said, fmt.Sprintf(what, *n))
		return true
	}
	if say(e.ECCUncorrected, "%d errors that ECC cannot correct since the driver was loaded") {
		level, hint = levelDegraded, "nvidia-smi -q -d ECC,ROW_REMAPPER tells more; a job that computed with them may have ended, or be wrong"
	}
	say(e.ECCCorrected, "%d corrected since the driver was loaded")
	say(e.RowsRemapped, "%d rows remapped")
	if e.RowPending {
		said, level, hint = append(said, "one more row is remapped at the next reset"), levelDegraded, "reset the GPU once nobody uses it: nvidia-smi --gpu-reset"
	}
	if e.RowFailed {
		said, level, hint = append(said, "no spare row was left for a bad one"), levelDegraded, "have the GPU replaced"
	}
	if said == nil {
		return nil
	}
	return []finding{{What: "GPU", Level: level, Text: fmt.Sprintf("device %d (%s), its memory: %s", d.Index, d.UUID, strings.Join(said, ", ")), Hint: hint}}
}

// examineXIDs tells what the daemon has heard of errors. They are past, and make no host less able.
func examineXIDs(all []state.Device) (out []finding) {
	for _, d := range all {
		for _, x := range d.Errors.XIDs {
			what := fmt.Sprintf("XID %d", x.XID)
			if x.XID == 0 {
				what = "other XIDs"
			}
			text := fmt.Sprintf("device %s (%s) reported %s, %d times since the daemon started", render.Clean(d.Label()), render.Clean(d.UUID), what, x.Count)
			if words := sheets.XID(x.XID); words != "" {
				text += ": " + words
			}
			out = append(out, finding{What: "GPU", Level: levelOK, Text: text, Hint: "`trimtab history` says when, and who held the device"})
		}
	}
	return out
}

// supportFinding is a row of the support table, which has all keys.
func supportFinding(key string) finding {
	return finding{What: "support", Level: levelOK, Text: supportRows()[key].String()}
}

// gpuText counts: "virtual: 2 GPUs, 4 slices, driver 570.1; shared: time-slicing".
func gpuText(s gpuSummary) string {
	gpus, slicesOf := 0, 0
	var sharing []string
	for _, d := range s.Devices {
		if d.Parent == "" {
			gpus++
		} else {
			slicesOf++
		}
		if d.Sharing != "" {
			sharing = append(sharing, d.Sharing)
		}
	}
	text := fmt.Sprintf("GPUs: %d", gpus)
	if slicesOf > 0 {
		text += fmt.Sprintf(", MIG slices: %d", slicesOf)
	}
	if s.Driver != "" {
		text += ", driver " + s.Driver
	}
	if len(sharing) > 0 {
		slices.Sort(sharing)
		text += "; shared now: " + strings.Join(slices.Compact(sharing), ", ")
	}
	if isVirtual(s) {
		text = "virtual, no real device: " + text
	}
	return text
}

func isVirtual(s gpuSummary) bool {
	return s.Virtual || slices.ContainsFunc(s.Devices, func(d probes.Device) bool { return d.Virtual })
}

// gpuRowsOf names the rows for the ways in which devices are shared now.
func gpuRowsOf(s gpuSummary) []string {
	var out []string
	if isVirtual(s) {
		out = append(out, rowVirtual)
	}
	if s.host {
		out = append(out, rowHost)
	}
	for _, d := range s.Devices {
		switch d.Sharing {
		case rowMIG, rowMPS, rowSliced:
			out = append(out, d.Sharing)
		default:
			out = append(out, rowExclusive)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// examineSupport names the rows of the support table for the host itself.
func examineSupport(cfg config.Config) []finding {
	rows := map[runtime.CgroupMode]string{runtime.CgroupHybrid: rowHybrid, runtime.CgroupV1: rowV1, runtime.CgroupV2: rowV2}
	var out []finding
	if mode, err := cgroup.Detect(cgroup.DefaultRoot); err == nil && rows[mode] != "" {
		out = append(out, supportFinding(rows[mode]))
	}
	if goruntime.GOARCH == "arm64" {
		out = append(out, supportFinding(rowARM))
	}
	if _, err := os.Stat(btfFile); errors.Is(err, os.ErrNotExist) || examineKernel().Level == levelBroken {
		out = append(out, supportFinding(rowNoBTF))
	}
	if strings.HasPrefix(cfg.Docker.Host, "unix:///run/user/") { // a user's own Docker listens there
		out = append(out, supportFinding(rowRootless))
	}
	return out
}

// The risks, in words.
const (
	riskNone    = "none"
	riskAtRisk  = "at risk"
	riskLost    = "lost"
	riskUnknown = "unknown"
)

// doctorGPU reports on every container that holds a GPU; it changes nothing.
func doctorGPU(cmd *cobra.Command) error {
	cfg, _, err := config.Load(configFiles(cmd))
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
		row := render.GPURow{Container: c.Name, GPUs: c.GPUs, Injection: c.GPUVia, Driver: report.Driver, Access: string(access), Why: report.Why, Hint: report.Hint}
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
