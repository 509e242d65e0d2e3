package repair

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/runtime"
)

const second = int64(1e9)

func TestFoundAndRepaired(t *testing.T) {
	var c Backoff
	if s := c.See(1*second, false, ""); s != (Step{}) {
		t.Errorf("all is well: %+v", s)
	}
	if s := c.See(2*second, true, ""); s != (Step{Found: true, Repair: true}) || !c.Lost() {
		t.Errorf("lost: %+v", s)
	}
	if o := c.Done(2*second+5, ""); o != (Outcome{Repaired: true, TookNs: 5}) || c.Lost() {
		t.Errorf("repaired: %+v", o)
	}
	if s := c.See(3*second, false, ""); s != (Step{}) {
		t.Errorf("after it: %+v", s)
	}
}

func TestNotAllowed(t *testing.T) {
	var c Backoff
	if s := c.See(second, true, "paused"); s != (Step{Found: true, Obstacle: "paused"}) {
		t.Errorf("%+v", s)
	}
	if s := c.See(2*second, true, "paused"); s != (Step{}) {
		t.Errorf("told twice: %+v", s)
	}
	if s := c.See(3*second, true, ""); s != (Step{Repair: true}) {
		t.Errorf("allowed at last: %+v", s)
	}
	c = Backoff{}
	c.See(second, true, "paused")
	if s := c.See(2*second, false, "paused"); s != (Step{Returned: true}) {
		t.Errorf("somebody else repaired it: %+v", s)
	}
}

func TestFailuresBackOff(t *testing.T) {
	var c Backoff
	var at []int64
	said := 0
	for now := int64(0); now < 10*60*second; now += second {
		if s := c.See(now, true, ""); s.Repair {
			at = append(at, now/second)
			if o := c.Done(now, "refused"); o.Repaired {
				t.Fatal("it did not")
			} else if o.Obstacle != "" {
				said++
			}
		}
	}
	if diff := cmp.Diff([]int64{0, 1, 3, 7, 15, 31, 63, 123}, at[:8]); diff != "" {
		t.Errorf("tries at seconds (-want +got):\n%s", diff)
	}
	if said != 1 {
		t.Errorf("the same failure was told %d times", said)
	}
}

// TestFlapping: a writer that takes it away every second meets at most six repairs in
// any minute, and one word about it.
func TestFlapping(t *testing.T) {
	var c Backoff
	var repairs []int64
	told := 0
	for now := int64(0); now < 5*60*second; now += second {
		s := c.See(now, true, "")
		if s.Repair {
			repairs = append(repairs, now)
			c.Done(now, "")
		}
		if s.Obstacle != "" {
			told++
		}
	}
	if len(repairs) != 5*MaxPerMinute || told != 1 {
		t.Errorf("%d repairs in five minutes, told %d times", len(repairs), told)
	}
	c.See(400*second, false, "")
	if s := c.See(401*second, true, ""); !s.Repair {
		t.Errorf("after a quiet minute: %+v", s)
	}
	if c.said == Limited {
		t.Error("the next fight would not be told")
	}
}

// TestBackForAMoment: in a fight that was told of, a loss that follows a return says why it
// is left alone.
func TestBackForAMoment(t *testing.T) {
	var c Backoff
	now := int64(0)
	for range MaxPerMinute {
		now += second
		c.See(now, true, "")
		c.Done(now, "")
	}
	if s := c.See(now+1*second, true, ""); s != (Step{Found: true, Obstacle: Limited}) {
		t.Errorf("the seventh: %+v", s)
	}
	if s := c.See(now+2*second, false, ""); s != (Step{Returned: true}) {
		t.Errorf("back: %+v", s)
	}
	if s := c.See(now+3*second, true, ""); s != (Step{Found: true, Standing: Limited}) {
		t.Errorf("lost again: %+v", s)
	}
	if s := c.See(now+4*second, true, ""); s != (Step{}) {
		t.Errorf("told twice: %+v", s)
	}
}

// TestRate holds the bound under any course of events.
func TestRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Backoff
		var repairs []int64
		now := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			now += rapid.Int64Range(1, 20*second).Draw(t, "later")
			mayNot := rapid.SampledFrom([]string{"", "", "", "paused"}).Draw(t, "may not")
			s := c.See(now, rapid.Bool().Draw(t, "lost"), mayNot)
			if s.Repair && mayNot != "" {
				t.Fatal("repaired though it may not")
			}
			if s.Repair {
				repairs = append(repairs, now)
				c.Done(now, rapid.SampledFrom([]string{"", "refused"}).Draw(t, "outcome"))
			}
		}
		for i := MaxPerMinute; i < len(repairs); i++ {
			if repairs[i]-repairs[i-MaxPerMinute] < minuteNs {
				t.Fatalf("seven repairs within a minute: %v", repairs[i-MaxPerMinute:i+1])
			}
		}
	})
}

func TestRemember(t *testing.T) {
	a := runtime.DeviceRule{Kind: "c", Major: 195, Minor: 0, Access: "rw"}
	b := runtime.DeviceRule{Kind: "c", Major: 195, Minor: 255, Access: "rw"}
	had, changed := Remember(nil, []runtime.DeviceRule{a})
	if len(had) != 1 || !changed {
		t.Error(had, changed)
	}
	if had, changed = Remember(had, nil); len(had) != 1 || changed {
		t.Error("what is lost is forgotten", had, changed)
	}
	if had, changed = Remember(had, []runtime.DeviceRule{b, a}); len(had) != 2 || !changed {
		t.Error(had, changed)
	}
	every := runtime.DeviceRule{Kind: "c", Major: 195, Minor: runtime.AnyDevice, Access: "rwm"}
	if had, changed := Remember([]runtime.DeviceRule{every}, []runtime.DeviceRule{a, b}); len(had) != 1 || changed {
		t.Error("what is left of a rule is remembered beside it", had, changed)
	}
	if got := Names(append(had, a, b, a, b)); got != "c 195:0 rw, c 195:255 rw, c 195:0 rw, c 195:255 rw, 2 more" {
		t.Error(got)
	}
}
