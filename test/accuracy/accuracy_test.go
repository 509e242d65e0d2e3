package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/built"
	"github.com/trimtab/trimtab/test/workload"
)

//trimtab:table a flag of this test
var update = flag.Bool("update", false, "write the floor anew")

const (
	recordings = "testdata/recordings"
	floorFile  = "testdata/accuracy.golden.json"
)

// pageHasCalibration: docs/accuracy.md shows what today's code makes of the recordings.
func pageHasCalibration(t *testing.T, bins [len(sureBounds)]Told) {
	t.Helper()
	page, err := os.ReadFile("../../docs/accuracy.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| confidence | verdicts | mean | right |\n|---|---|---|---|\n"
	for i, b := range bins {
		name := fmt.Sprintf("up to %.2f", sureBounds[i])
		if i == len(bins)-1 {
			name = fmt.Sprintf("above %.2f", sureBounds[i-1])
		} else if i > 0 {
			name = fmt.Sprintf("%.2f to %.2f", sureBounds[i-1], sureBounds[i])
		}
		want += fmt.Sprintf("| %s | %d | %.3f | %.3f |\n", name, b.N, b.Sum/float64(max(b.N, 1)), shareOf(b.Right, b.N))
	}
	want += fmt.Sprintf("\nThe two are %.3f apart in the mean.", offBy(bins))
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/accuracy.md has another table than today's:\n%s", want)
	}
}

// TestRecordedAccuracy runs the recordings of all jobs through today's code. It
// fails where accuracy falls: a case with fewer right windows than when the golden
// file was written, or one more wrong action. Where it rises, -update raises the
// floor. Record the jobs anew with `go run ./test/accuracy -record DIR`.
func TestRecordedAccuracy(t *testing.T) {
	cases, err := readCases(policies.DefaultConstants(), recordings)
	if err != nil {
		t.Fatal(err)
	}
	now := floorOf(cases)
	if *update {
		if err := now.write(floorFile); err != nil {
			t.Fatal(err)
		}
	}
	floor, err := readFloor(floorFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, fall := range floor.fallen(now) {
		t.Error(fall)
	}
	for name := range now {
		if _, ok := floor[name]; !ok {
			t.Errorf("%s has no floor: run this test with -update", name)
		}
	}
	if better := now.fallen(floor); len(better) > 0 {
		t.Logf("better than the floor in %d cases: run this test with -update to hold them", len(better))
	}
	all := sum(cases)
	t.Log(all.line())
	// What -update cannot lower: the goals, and a recording of each job.
	if all.Class < 0.98 || all.Cause < 0.95 || all.WrongActions > 0 || all.RateErrorP95 > 0.03 || all.DetectP95S > 5 {
		t.Errorf("below the goals: %s", all.line())
	}
	if off := offBy(calibration(cases)); off > 0.05 {
		t.Errorf("of verdicts given with confidence p a share is right that is %.3f from p in the mean", off)
	}
	pageHasCalibration(t, calibration(cases))
	recorded := map[string]bool{}
	for _, c := range cases {
		recorded[c.Job] = true
	}
	for _, f := range families() {
		for _, j := range f.Jobs {
			if !recorded[j.Name] {
				t.Errorf("%s has no recording: go run ./test/accuracy -only %[1]s -record %s", j.Name, recordings)
			}
		}
	}
}

// TestFloorHolds: each way to be worse is found, and being better is none.
func TestFloorHolds(t *testing.T) {
	good := FloorCase{Truth: "input/throttled", Said: map[Label]int{"input/throttled": 9, "unknown": 1}, Right: 9, Windows: 10, Detected: true, DetectS: 4, RateError: 0.02, Readings: 4, Knee: 1, KneeRight: true}
	for name, worse := range map[string]func(*FloorCase){
		"fewer right":    func(c *FloorCase) { c.Right = 8 },
		"more wrong":     func(c *FloorCase) { c.Windows = 11 },
		"not found":      func(c *FloorCase) { c.Detected = false },
		"found later":    func(c *FloorCase) { c.DetectS = 7 },
		"a rate off":     func(c *FloorCase) { c.RateError = 0.04 },
		"no rate":        func(c *FloorCase) { c.RateError, c.Readings = 0, 1 },
		"a wrong action": func(c *FloorCase) { c.WrongActions = 1 },
		"a wrong knee":   func(c *FloorCase) { c.KneeRight = false },
		"no windows":     func(c *FloorCase) { *c = FloorCase{} },
	} {
		c := good
		worse(&c)
		if got := (Floor{"j": good}).fallen(Floor{"j": c}); len(got) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
	better := good
	better.Right, better.Windows, better.DetectS, better.RateError = 20, 20, 6, 0.025 // within what a window more or less makes
	missed := good
	missed.Detected, missed.DetectS, missed.RateError, missed.Readings = false, 0, 0, 0
	if got := (Floor{"j": missed}).fallen(Floor{"j": good}); len(got) > 0 {
		t.Errorf("found for the first time is said to be worse: %v", got)
	}
	if got := (Floor{"j": good}).fallen(Floor{"j": better, "new": good}); len(got) > 0 {
		t.Errorf("better is said to be worse: %v", got)
	}
}

// fromRoot runs a line of docs/accuracy.md where a reader does, and returns what it printed.
func fromRoot(t *testing.T, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("$ %s\n%v\n%s", line, err, out)
	}
	return string(out)
}

// TestList: the command that docs/accuracy.md begins with names each job.
func TestList(t *testing.T) {
	out := fromRoot(t, "go run ./test/accuracy -list")
	for _, f := range families() {
		for _, j := range f.Jobs {
			if !strings.Contains(out, "  "+j.Name+" ") {
				t.Errorf("%s is not listed", j.Name)
			}
		}
	}
}

// TestOneJobLive runs one job under a real daemon, as docs/accuracy.md has it. Judged again from its recording,
// it is the same case. Whether the verdict is right is not asked: a busy machine may have other truths.
func TestOneJobLive(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the daemon loads BPF programs")
	}
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	binary, err := built.Trimtab(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	recorded := filepath.Join(dir, "recorded")
	cases := func(line string) (out struct{ Cases []Case }) {
		file := filepath.Join(t.TempDir(), "cases.json")
		said := fromRoot(t, strings.NewReplacer("DIR", recorded, "FILE", file).Replace(line))
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &out)
		}
		if err != nil {
			t.Fatalf("$ %s\n%v\n%s", line, err, said)
		}
		return out
	}
	live := cases("go run ./test/accuracy -only starved -neighbour=false -seconds 0.3 -record DIR -json FILE" + " -trimtab " + binary)
	if len(live.Cases) != 1 || live.Cases[0].Job != "starved" || live.Cases[0].Phase != "alone" || live.Cases[0].Truth.Is != "input/throttled" {
		t.Errorf("one job alone: %+v", live.Cases)
	}
	if diff := cmp.Diff(live, cases("go run ./test/accuracy -replay DIR -json FILE")); diff != "" {
		t.Errorf("its recording is judged otherwise:\n%s", diff)
	}
}

// TestFloorIsWrittenAnew: it is, where that is asked for. A mount that only the command sees puts an
// empty one in the place of the checkout's.
func TestFloorIsWrittenAnew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a file")
	}
	written := filepath.Join(t.TempDir(), "floor.json")
	if err := os.WriteFile(written, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fromRoot(t, "unshare --mount sh -c 'mount --bind "+written+" test/accuracy/"+floorFile+" && "+"go test ./test/accuracy -run Recorded -update"+"'")
	got, err := readFloor(written)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readFloor(floorFile)
	if err != nil {
		t.Fatal(err)
	}
	if fallen := want.fallen(got); len(fallen) > 0 || len(got) != len(want) {
		t.Errorf("%d cases, want %d: %q", len(got), len(want), fallen)
	}
}

// TestCatalogue holds what the suite promises: enough jobs and families, some set
// aside, every class and cause, and those that are acted on in three families.
func TestCatalogue(t *testing.T) {
	jobs, heldOut := map[string]bool{}, 0
	covered := map[Label]map[string]bool{}
	for _, f := range families() {
		if f.HeldOut {
			heldOut++
			if !strings.Contains(f.Why, "set aside") {
				t.Errorf("family %s does not say why it is set aside", f.Name)
			}
		}
		for _, j := range f.Jobs {
			if jobs[j.Name] {
				t.Errorf("two jobs are named %s", j.Name)
			}
			jobs[j.Name] = true
			if j.Why == "" || len(j.Parts) == 0 || len(j.Phases) == 0 {
				t.Errorf("job %s lacks a reason, parts or phases", j.Name)
			}
			lone, beside := false, false
			for _, p := range j.Phases {
				lone, beside = lone || p.Neighbour == nobody, beside || p.Neighbour != nobody
				checkTruth(t, j.Name, p.Truth)
				if covered[p.Truth.Is] == nil {
					covered[p.Truth.Is] = map[string]bool{}
				}
				covered[p.Truth.Is][f.Name] = true
			}
			if (lone && beside) != (j.WhyNever == "") {
				t.Errorf("job %s: alone %v, beside a neighbour %v, and the reason is %q", j.Name, lone, beside, j.WhyNever)
			}
		}
	}
	if len(jobs) < 30 || len(families()) < 10 || heldOut < 3 {
		t.Errorf("%d jobs in %d families, %d set aside: want at least 30, 10, 3", len(jobs), len(families()), heldOut)
	}
	for _, l := range allLabels() {
		if len(covered[l]) == 0 {
			t.Errorf("no job is %s", l)
		}
	}
	for _, l := range []Label{"input/throttled", "input/contended", "input/cache", "compute/host", "memory/reclaim", "memory/risk"} {
		if len(covered[l]) < 3 {
			t.Errorf("%s, which is acted on, is in %d families only: want 3", l, len(covered[l]))
		}
	}
}

func allLabels() []Label {
	return []Label{
		"input/throttled", "input/contended", "input/storage", "input/remote", "input/cache", "input/workers",
		"compute/device", "compute/shared", "compute/host", "compute/clocks", "communication/network", "communication/straggler",
		"memory/reclaim", "memory/risk", "balanced", "idle", "interactive", "unknown",
	}
}

func checkTruth(t *testing.T, job string, truth Truth) {
	t.Helper()
	for _, l := range append([]Label{truth.Is}, truth.Also...) {
		ok := false
		for _, known := range allLabels() {
			ok = ok || l == known
		}
		if !ok {
			t.Errorf("job %s: %q is no class and cause of the design", job, l)
		}
	}
}
