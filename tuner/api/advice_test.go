package api_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestAdvice: the list, one container's part of it, and the same in each container's own field,
// after what a policy said; the published snapshot stays as it is.
func TestAdvice(t *testing.T) {
	s := snapshot()
	s.UnixNs, s.Node = 7200e9, policies.Node{CPUs: 8}
	for i := range 2 {
		lent(&s.Containers[i])
		s.Containers[i].Advice = []string{"a policy's words"}
	}
	b := &fake{snapshot: s}
	c := client.New(start(t, b))
	all, err := c.Advice(t.Context(), "")
	if err != nil || all.UnixNs != s.UnixNs || len(all.Advice) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	one, err := c.Advice(t.Context(), "odd name/../?")
	if diff := cmp.Diff(all.Advice[1:], one.Advice); diff != "" || err != nil || one.Advice[0].What != advice.CPUQuota {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err := c.Container(t.Context(), "a")
	if err != nil || len(got.Advice) != 2 || got.Advice[0] != "a policy's words" || !strings.Contains(got.Advice[1], "--cpus=1.75") {
		t.Errorf("a container's advice: %q, %v", got.Advice, err)
	}
	if list, err := c.Containers(t.Context()); err != nil || !cmp.Equal(list.Containers[0].Advice, got.Advice) || len(list.Containers[2].Advice) != 0 {
		t.Errorf("in the list: %q, %v", list.Containers[0].Advice, err)
	}
	if list, err := c.Containers(t.Context()); err != nil || list.Containers[0].Why != "" || list.Containers[2].Why != s.Containers[2].Reason() {
		t.Errorf("why nothing is changed: %q where something is, else %q, %v", list.Containers[0].Why, list.Containers[2].Why, err)
	}
	if len(s.Containers[0].Advice) != 1 || s.Containers[0].Why != "" {
		t.Errorf("the snapshot was written to: %q", s.Containers[0].Advice)
	}
	var e *api.Error
	if _, err := c.Advice(t.Context(), "none"); !errors.As(err, &e) || e.Status != http.StatusNotFound {
		t.Errorf("of no container: %v", err)
	}
	b.snapshot = &state.Snapshot{}
	if none, err := c.Advice(t.Context(), ""); err != nil || none.Advice == nil || len(none.Advice) != 0 {
		t.Errorf("a list, never null: %+v, %v", none, err)
	}
}

// lent gives a container a loan that settled an hour ago.
func lent(c *state.Container) {
	c.Changed, c.Original, c.Now = []runtime.Knob{runtime.KnobCPUQuota}, runtime.Values{runtime.KnobCPUQuota: "100000 100000"}, runtime.Values{runtime.KnobCPUQuota: "175000 100000"}
	c.Loan, c.Gain, c.HasGain, c.Doubt = &state.Loan{Own: 1, CPUs: 0.75, Settled: true, SinceUnixNs: 3600e9}, 0.6, true, false
}
