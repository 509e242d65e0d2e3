package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

const forgedName = "evil\x1b[2J\u202e<script>\u00e9"

// Place knows one job, and two devices of which one is free. Images that begin with "no" stand for what may be.
func (fake) Place(_ context.Context, req state.PlaceRequest) (state.Placement, error) {
	out := state.Placement{UnixNs: at(15, 0)}
	for _, j := range req.Jobs {
		until := time.Now().Add(630 * time.Second).UnixNano()
		p := state.PlacedJob{Job: j, CPUs: 3.4, MemoryBytes: 12 << 30, Evidence: []state.PlaceEvidence{{ID: 7, Name: "train", Alike: "same image", Jobs: 3, LastUnixNs: at(14, 0)}},
			Chosen: []string{"GPU-1"}, Choices: []state.PlaceChoice{
				{Device: "GPU-1", Label: "1", Index: 1, Minor: 1, Model: "NVIDIA H100", Memory: 80 << 30, Free: true, Rate: state.PlaceRate{How: state.RateMeasured, PerSecond: 12.1, Low: 11, High: 13, Unit: "torch.backward"}},
				{Device: "GPU-0", Label: "0", Model: "NVIDIA A100", Holders: []string{forgedName}, Rate: state.PlaceRate{How: state.RateUnknown}},
				{Device: "GPU-2", Label: "2", Index: 2, Model: forgedName, Hold: &state.Hold{For: forgedName, UntilUnixNs: until}, Rate: state.PlaceRate{How: state.RateUnknown}}},
			Elsewhere: []state.PlaceElsewhere{{Model: "NVIDIA L4", Hosts: []string{"node7", forgedName}, Rate: state.PlaceRate{How: state.RatePredicted, PerSecond: 3, Low: 2, High: 4, Unit: "torch.backward"}}}}
		switch {
		case j.Image == "no-gpu":
			p, out.Why = state.PlacedJob{Job: j}, "no driver is installed"
		case j.Image == "no-free":
			p.Chosen, p.Why = []string{}, "no device is free"
		case j.Image == "no-right" && req.Hold:
			return out, &api.Error{Status: http.StatusForbidden, Text: "you may not change anything"}
		case j.GPUs == 2:
			p.Chosen = []string{"GPU-1", "GPU-2"}
		}
		out.Jobs = append(out.Jobs, p)
	}
	if len(req.Jobs) > 1 {
		out.Plan = &state.PlacePlan{Policy: req.Policy, Seconds: 5400, BoundSeconds: 5000, Starts: []state.PlaceStart{
			{Job: 1, Device: "GPU-1", Label: "1", Model: "NVIDIA H100", Seconds: 3600}, {Job: 0, Device: "GPU-1", Label: "1", Model: "NVIDIA H100", Start: 3600, Seconds: 1800}}}
	}
	return out, nil
}

// TestReadJobs: a list is JSON values one after the other, or a list in JSON or in YAML.
func TestReadJobs(t *testing.T) {
	want := []state.PlaceJob{{Name: "a", Image: "train", Args: []string{"--lr", "0.1"}, Steps: 500}, {Image: "eval", Count: 3}}
	for name, text := range map[string]string{
		"lines": "{\"name\":\"a\",\"image\":\"train\",\"args\":[\"--lr\",\"0.1\"],\"steps\":500}\n{\"image\":\"eval\",\"count\":3}\n",
		"JSON":  `[{"name":"a","image":"train","args":["--lr","0.1"],"steps":500},{"image":"eval","count":3}]`,
		"YAML":  "- {name: a, image: train, args: [--lr, \"0.1\"], steps: 500}\n- image: eval\n  count: 3\n",
	} {
		file := filepath.Join(t.TempDir(), "jobs")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{file, "-"} {
			got, err := readJobs(strings.NewReader(text), f)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s from %s: %v\n%s", name, f, err, diff)
			}
		}
	}
	for text, want := range map[string]string{
		`{"image":"a","colour":1}`:            "unknown field",
		`{"image":"a"} {"image":`:             "job 2",
		"- image: [":                          "yaml",
		"just words":                          "yaml",
		"- {image: a, args: 0.1}":             "job 1",
		"- {? [a] : b}":                       "",
		strings.Repeat("- image: a\n", 1<<13): "longer than",
	} {
		if got, err := readJobs(strings.NewReader(text), "-"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %+v, %v", text, got, err)
		}
	}
}
