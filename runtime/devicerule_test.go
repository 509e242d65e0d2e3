package runtime

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDeviceRuleText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := DeviceRule{Kind: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "kind"), Major: rapid.IntRange(AnyDevice, 4095).Draw(t, "major"),
			Minor: rapid.IntRange(AnyDevice, 1<<20-1).Draw(t, "minor"), Access: rapid.SampledFrom([]string{"r", "rw", "rwm", "m"}).Draw(t, "access")}
		text, err := json.Marshal([]DeviceRule{want})
		if err != nil {
			t.Fatal(err)
		}
		var got []DeviceRule
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]DeviceRule{want}, got); diff != "" {
			t.Error(diff)
		}
	})
	for _, bad := range []string{"", "c", "c 195:0", "x 195:0 rw", "c 195 rw", "c -2:0 rw", "c 195:0 rx", "c 195:0 rw m", "ab 1:1 r", "c 1:1048576 r", "c 1:2:3 r"} {
		if r, err := ParseDeviceRule(bad); err == nil {
			t.Errorf("%q was read as %v", bad, r)
		}
	}
}

func TestDeviceRuleContains(t *testing.T) {
	for _, tc := range []struct {
		rule, other string
		want        bool
	}{
		{"c 195:* rwm", "c 195:0 rw", true}, {"c 195:0 rw", "c 195:0 rw", true}, {"a *:* rwm", "b 8:0 m", true}, {"c *:* wr", "c 195:* rw", true},
		{"c 195:0 rw", "c 195:* rw", false}, {"c 195:0 rw", "c 195:0 rwm", false}, {"c 195:* rw", "b 195:0 rw", false}, {"c 195:* rw", "c 196:0 rw", false},
	} {
		r, err := ParseDeviceRule(tc.rule)
		if err != nil {
			t.Fatal(err)
		}
		other, err := ParseDeviceRule(tc.other)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Contains(other); got != tc.want {
			t.Errorf("%s contains %s: %v", tc.rule, tc.other, got)
		}
	}
}

func TestDeviceRuleCovers(t *testing.T) {
	for _, tc := range []struct {
		rule string
		want bool // 195:255, read and written
	}{
		{"c 195:255 rw", true}, {"c 195:* rwm", true}, {"a *:* rwm", true}, {"c *:* rwm", true},
		{"c *:* m", false}, {"b 195:255 rwm", false}, {"c 195:0 rwm", false}, {"c 195:255 r", false}, {"c 194:* rwm", false},
	} {
		r, err := ParseDeviceRule(tc.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Covers(195, 255); got != tc.want {
			t.Errorf("%s: %v", tc.rule, got)
		}
	}
}
