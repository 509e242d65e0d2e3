//go:build sensitivity

package trial

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// trialOutcome is what a run of the acceptance table comes to: the worst row of each kind, in
// shares of its trials, and the longest median decision, seconds.
type trialOutcome struct {
	Kept     float64 `json:"kept"`     // without merit
	Returned float64 `json:"returned"` // of true gains
	Seconds  float64 `json:"seconds"`
}

const sensitivityTrials = 200

func runTable(k *policies.Constants) (out trialOutcome) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, row := range acceptance(rng) {
		var ended [5]float64
		var took []float64
		for range sensitivityTrials {
			j := row.make()
			j.rng = rng
			o, seconds := j.live(k)
			ended[o]++
			took = append(took, float64(seconds))
		}
		if row.better < 1 {
			out.Kept = max(out.Kept, ended[Better]/sensitivityTrials)
		}
		if row.worse < 1 {
			out.Returned = max(out.Returned, ended[Worse]/sensitivityTrials)
		}
		out.Seconds = max(out.Seconds, observe.Median(took))
	}
	return out
}

// TestSensitivity writes what each constant does to the acceptance table.
func TestSensitivity(t *testing.T) {
	out := map[string]trialOutcome{"=": runTable(policies.DefaultConstants())}
	fields := reflect.TypeOf(policies.Constants{})
	for i := range fields.NumField() {
		for sign, factor := range map[string]float64{"*": 2, "/": 0.5} {
			k := policies.DefaultConstants()
			f := reflect.ValueOf(k).Elem().Field(i)
			f.SetFloat(f.Float() * factor)
			out[sign+fields.Field(i).Name] = runTable(k)
		}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("SENSITIVITY_OUT"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}
