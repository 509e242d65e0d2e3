package enrolment_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/enrolment"
)

// row is one of the table of docs/labels.md.
type row struct{ label, values, without string }

func rows(t *testing.T) (out []row) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if label, ok := strings.CutPrefix(cells[0], "| `trimtab."); ok && len(cells) == 3 {
			out = append(out, row{"trimtab." + strings.TrimSuffix(label, "`"), cells[1], strings.TrimSpace(strings.TrimSuffix(cells[2], "|"))})
		}
	}
	return out
}

// problems are what trimtab has against a label's value.
func problems(label, value string) string {
	c := runtime.Container{Name: "train", Labels: map[string]string{label: value}}
	return strings.Join(enrolment.Settle(c, config.Default().Rules(), nil, enrolment.Host{}).Problems, "\n")
}

// TestDocsNameEveryLabel: the table of docs/labels.md has those that are read, each once, and no other.
func TestDocsNameEveryLabel(t *testing.T) {
	var have []string
	for _, r := range rows(t) {
		have = append(have, r.label)
	}
	want := enrolment.LabelNames()
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("docs/labels.md has rows of\n%q, and read are\n%q", have, want)
	}
}

// TestDocsNameEveryValue: each value that a row names is accepted, and where a refusal lists all that
// are, the row names them.
func TestDocsNameEveryValue(t *testing.T) {
	quoted, listed := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`allowed are ((?:[\w-]+, )+[\w-]+)$`)
	lists := 0
	for _, r := range rows(t) {
		var named []string
		for _, m := range quoted.FindAllStringSubmatch(r.values, -1) {
			if v := m[1]; !strings.Contains(v, ":") && !slices.Contains(enrolment.LabelNames(), v) { // keys of the config, other labels
				named = append(named, v)
			}
		}
		for _, v := range named {
			if text := problems(r.label, v); text != "" {
				t.Errorf("%s: docs/labels.md names %s: %s", r.label, v, text)
			}
		}
		if m := listed.FindStringSubmatch(problems(r.label, "?")); m != nil {
			lists++
			for v := range strings.SplitSeq(m[1], ", ") {
				if !slices.Contains(named, v) {
					t.Errorf("%s: %s is accepted, and docs/labels.md names %q", r.label, v, named)
				}
			}
		}
	}
	if lists < 6 {
		t.Errorf("%d labels list what is allowed: mode, enable, knobs, class, loans and the signal do", lists)
	}
}

// TestDocsTellWhatHoldsWithoutALabel: the last column is what a container without labels has on a host
// without a config.
func TestDocsTellWhatHoldsWithoutALabel(t *testing.T) {
	e := enrolment.Settle(runtime.Container{Name: "train"}, config.Default().Rules(), nil, config.Default().Host(16, 64<<30))
	class := enrolment.ClassGuaranteed
	if e.BestEffort {
		class = enrolment.ClassBestEffort
	}
	if e.Team != "" || e.Job != "" {
		t.Errorf("team %q, job %q without a label", e.Team, e.Job)
	}
	want := map[string]string{"trimtab.mode": "`" + string(e.Mode) + "`", "trimtab.knobs": "`" + strings.Join(e.Knobs, "`, `") + "`", "trimtab.importance": fmt.Sprint(e.Importance),
		"trimtab.loans": "`" + string(e.Loans) + "`", "trimtab.class": "`" + class + "`", "trimtab.team": "none", "trimtab.gpu.signal": "no signal"}
	bounds := map[string]string{"trimtab.importance": fmt.Sprintf("%d to %d:", enrolment.MinImportance, enrolment.MaxImportance)}
	for _, r := range rows(t) {
		without, _, _ := strings.Cut(r.without, " (")
		without, _, _ = strings.Cut(without, ", if ")
		if text, ok := want[r.label]; ok && without != text {
			t.Errorf("%s: without it docs/labels.md says %q, and it is %s", r.label, r.without, text)
		}
		if !strings.HasPrefix(r.values, bounds[r.label]) {
			t.Errorf("%s: docs/labels.md says %q, and allowed are %s", r.label, r.values, bounds[r.label])
		}
	}
}
