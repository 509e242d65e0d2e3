package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"trimtab": main})
}

// The scripts run the command against a daemon that is the real API before a
// fixed snapshot; $SOCKET is where it listens.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			socket := filepath.Join(env.WorkDir, "t.sock")
			env.Setenv("SOCKET", socket)
			env.Setenv("TZ", "UTC")
			return serve(env, socket)
		},
	})
}

func serve(env *testscript.Env, socket string) error {
	l, err := api.Listen(socket, api.Groups{})
	if err != nil {
		return fmt.Errorf("fake daemon: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- api.NewServer(fake{}, slog.New(slog.DiscardHandler), time.Now).Run(ctx, l) }()
	env.Defer(func() {
		cancel()
		<-ended
	})
	return nil
}

// fake is a daemon in one fixed state.
type fake struct{}

func at(hour, minute int) int64 {
	return time.Date(2026, 1, 2, hour, minute, 5, 0, time.UTC).UnixNano()
}

func (fake) Snapshot() *state.Snapshot {
	quota := []policies.Change{{Name: "train", Knob: runtime.KnobCPUQuota, From: "100000 100000", To: "150000 100000", Gain: 0.58}}
	return &state.Snapshot{
		UnixNs: at(15, 0), Node: policies.Node{CPUs: 8, Reserve: 0.8},
		Daemon:      state.Daemon{Version: "v0.1.0", PID: 812, StartedUnixNs: at(14, 0), Mode: policies.ModeTune, Policies: []string{"lend", "knee", "share"}, ConfigUnixNs: at(14, 0)},
		IdleAfterNs: 30e9, Devices: []state.Device{
			{Index: 0, UUID: "GPU-0", Name: "NVIDIA H100 80GB HBM3", Holders: []state.Holder{
				{Key: "docker-1", Name: "train", Team: "vision", MemBytes: 60 << 30, SinceUnixNs: at(14, 0)}}},
			{Index: 1, UUID: "GPU-1", Name: "NVIDIA H100 80GB HBM3", Holders: []state.Holder{
				{Host: true, MemBytes: 21 << 30, SinceUnixNs: at(14, 0), QuietSeconds: 2400, Idle: true, Evidence: "device idle"}}},
		},
		Containers: []state.Container{
			{Key: "docker-1", ID: "4f0c77", Name: "train", Watched: true, GPUs: []string{"0"},
				Enrolment: policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: "label", Knobs: []string{"cpu"}, Team: "vision"},
				Rate:      policies.Rate{PerSecond: 26.7, Source: "torch.backward", Steps: true},
				Verdict:   policies.Verdict{Class: policies.ClassBalanced, Confidence: 0.9},
				Now:       runtime.Values{runtime.KnobCPUQuota: "150000 100000"}, Original: runtime.Values{runtime.KnobCPUQuota: "100000 100000"},
				Changed: []runtime.Knob{runtime.KnobCPUQuota}, Gain: 0.61, HasGain: true, WhyNot: "cool-down 40 s",
				Trials: []state.Trial{{Changes: quota, StartedUnixNs: at(14, 2), EndedUnixNs: at(14, 3), Outcome: state.OutcomeKept, Before: 16.6, After: 26.7, Unit: state.UnitSteps, Predicted: 26.2, Ratio: 1.61}}},
			{Key: "docker-2", ID: "9a0b11", Name: "web", Enrolment: policies.Enrolment{Mode: policies.ModeObserve, EnrolledBy: "default", WhyNot: "no label"}, WhyNot: "no label"},
		},
	}
}

func (fake) History(_ context.Context, q api.HistoryQuery) ([]state.Record, error) {
	if q.SinceUnixNs > at(14, 2) || q.UntilUnixNs != 0 && q.UntilUnixNs < at(14, 2) {
		return nil, nil
	}
	return []state.Record{{UnixNs: at(14, 2), Kind: state.RecordChange, Name: "train", Knob: runtime.KnobCPUQuota,
		From: "100000 100000", To: "150000 100000", Gain: 0.58, Text: "loaders run out of quota"}}, nil
}

func (fake) Report(_ context.Context, q api.ReportQuery) (state.Report, error) {
	use := state.ReportUse{Held: 36000, Idle: 7200, Stalled: 3600, Actionable: 1800, Proven: 25200, Saved: 9000, Tried: 600, Lost: 60,
		Causes: map[string]float64{"compute": 25200, "idle": 7200, "input_throttled": 3600}}
	g := state.ReportGroup{Name: "=vision", GPU: use, CPU: use, LentCPUSeconds: 1800}
	return state.Report{FromUnixNs: q.SinceUnixNs, ToUnixNs: at(15, 0), By: string(q.By), Source: "history", ObservedSeconds: 36000, UnobservedSeconds: 7200,
		Groups: []state.ReportGroup{g}, Total: g}, nil
}

func (fake) Enable(_ context.Context, r state.EnableRequest) ([]state.ActionResult, error) {
	return []state.ActionResult{{Name: "train", OK: true, Text: fmt.Sprintf("enabled %+v", r)}}, nil
}

func (fake) Disable(_ context.Context, r state.EnableRequest) ([]state.ActionResult, error) {
	return []state.ActionResult{{Name: "train", OK: true, Text: fmt.Sprintf("disabled %+v", r)}}, nil
}

func (fake) Restore(_ context.Context, name string) ([]state.ActionResult, error) {
	if name == "" {
		return []state.ActionResult{{Name: "train", OK: true, Text: "restored"}, {Name: "web", Text: "somebody else set cpu.quota"}}, nil
	}
	return nil, api.NotFound(name)
}

func (fake) Resume(context.Context, string) ([]state.ActionResult, error) { return nil, nil }

func (fake) Pause(context.Context) error { return nil }

func (fake) Fingerprints(context.Context) ([]state.Fingerprint, error) {
	cost := policies.Cost{TrainerCPU: 0.02, LoaderCPU: 0.05, Device: 0.04, Batch: 0.05, Loaders: 2, Ticks: 100}
	return []state.Fingerprint{{ID: 7, Name: "train", Print: profiles.Print{Unit: "torch.backward"}, Jobs: 3,
		Learned: profiles.Learned{Cost: cost, Correction: 1, Kept: 2, Failed: 1, Right: 1}},
		{ID: 1<<52 + 5, Name: "gpu-7/12", Host: "gpu-7", Print: profiles.Print{Unit: "torch.backward"}, Jobs: 1, Learned: profiles.Learned{Cost: cost, Correction: 1}}}, nil
}

func (fake) Forget(_ context.Context, r state.ForgetRequest) ([]state.ActionResult, error) {
	return []state.ActionResult{{Name: r.Name, OK: true, Text: fmt.Sprintf("profile %d forgotten, all: %v, host: %s", r.ID, r.All, r.Host)}}, nil
}

func (fake) Series(string) []series.Point { return nil }

func (fake) GPUs(context.Context) ([]state.GPUVisibility, error) {
	return []state.GPUVisibility{{Key: "k", Name: "train", Device: "nvidia1", Granted: true, Hidden: true}}, nil
}

func (fake) HideGPU(_ context.Context, r state.GPURequest) ([]state.ActionResult, error) {
	return []state.ActionResult{{Name: r.Name, OK: true, Text: "hidden: " + strings.Join(r.Devices, ", ")}}, nil
}

func (fake) ShowGPU(_ context.Context, r state.GPURequest) ([]state.ActionResult, error) {
	return []state.ActionResult{{Name: r.Name, Text: "refused"}}, nil
}

func (fake) Record(context.Context, io.Writer, time.Duration) error { return nil }
