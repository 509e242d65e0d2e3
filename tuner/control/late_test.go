package control

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// TestLateRankIsOfTheJob: the rank whose device does not spin is named to one of the same job, and to
// no other. What the devices say of it is tuner/verdict's business.
func TestLateRankIsOfTheJob(t *testing.T) {
	for job, want := range map[string]bool{"llm": true, "another": false, "": false} {
		c := started()
		add := func(key, job string, tgid int32, sms float64) *containerState {
			s := &containerState{key: key, obs: &observe.State{}}
			s.c.Name, s.c.Enrolment = key, policies.Enrolment{Job: job}
			w := &observe.Window{EndNs: 2e9, Processes: []observe.Process{{TGID: tgid, Calls: 30, Ranks: 2}}}
			w.Devices = []observe.Device{{UUID: key, Samples: 10, Duty: 0.98, Activities: 2, SM: sms, PIDs: []int32{tgid}}}
			s.obs.Latest = observe.Reading{Window: w, Ranks: 1, Root: tgid, Rate: policies.Rate{Ticks: 10}, Peers: []observe.Peer{{Root: tgid, Exchanges: true}}}
			s.obs.Latest.Exchanges = true
			c.all = append(c.all, s)
			return s
		}
		waits := add("waits", job, 1, 0.13)
		add("works", "llm", 2, 0.95)
		r := waits.obs.Latest
		c.neighbourhood(waits, &r)
		if got := r.Late != nil && r.Late.Name == "works, process 2"; got != want {
			t.Errorf("job %q: %+v, want the late rank named: %v", job, r.Late, want)
		}
	}
}
