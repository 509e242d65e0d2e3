package rate

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCounterOfNumbers(t *testing.T) {
	for name, tc := range map[string]struct {
		numbers []uint64
		want    uint64
	}{
		"one says where it is":         {[]uint64{500}, 0},
		"each step":                    {[]uint64{1, 2, 3}, 2},
		"every hundredth":              {[]uint64{100, 200, 300}, 200},
		"said twice":                   {[]uint64{1, 1, 2, 2}, 1},
		"a rank behind":                {[]uint64{5, 4, 6, 5, 5, 5, 7, 6, 8}, 3},
		"eight ranks in one log":       {[]uint64{5, 5, 5, 4, 5, 5, 4, 5, 6, 6, 5, 5, 5, 6, 6}, 1},
		"a trainer that begins again":  {[]uint64{100, 110, 0, 10, 20, 30, 40, 50}, 10 + 20},
		"again, from its checkpoint":   {[]uint64{100, 110, 101, 102, 103, 104, 105, 106}, 10 + 2},
		"a jump that is another thing": {[]uint64{1, 2, 1 << 40, 1<<40 + 1}, 1 + 1},
		"the largest number":           {[]uint64{1<<64 - 2, 1<<64 - 1}, 1},
	} {
		var c counter
		for i, n := range tc.numbers {
			c.step(n, int64(i+1))
		}
		if c.count != tc.want {
			t.Errorf("%s: %d steps, want %d", name, c.count, tc.want)
		}
	}
}

// Whatever a job says, its count only grows and by at most maxJump at a time.
func TestCounterOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c counter
		for i := range 50 {
			was := c
			c.step(rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64()).Draw(t, "n"), int64(i))
			if c.count < was.count || c.count-was.count > maxJump || c.lastNs < was.lastNs {
				t.Fatalf("from %+v to %+v", was, c)
			}
		}
	})
}

// TestLongestSpan: an evaluation's silence is expected after an epoch of many reports, and forgotten
// half an hour after the last one; a night is never waited for.
func TestLongestSpan(t *testing.T) {
	var c counter
	at := int64(1e9)
	report := func(afterS float64) int64 {
		at += int64(afterS * 1e9)
		c.step(uint64(at), at)
		return c.everyNs
	}
	if first := report(0); first != 0 {
		t.Errorf("one report is no span, got %d", first)
	}
	for epoch := range 3 {
		for range 300 {
			report(1)
		}
		if epoch > 0 && c.everyNs != 60e9 {
			t.Errorf("before the end of epoch %d a silence of %.0f s is expected, want 60", epoch, float64(c.everyNs)/1e9)
		}
		report(60)
	}
	for range 1800 {
		report(1)
	}
	if c.everyNs != 60e9 {
		t.Errorf("within half an hour 60 s became %d", c.everyNs)
	}
	report(1)
	if c.everyNs != 1e9 {
		t.Errorf("after more than half an hour %d is expected, want 1 s", c.everyNs)
	}
	if got := report(40000); got != maxEveryNs {
		t.Errorf("a night is expected again: %d", got)
	}
}

func TestPatterns(t *testing.T) {
	const line = "epoch 3 step 120/4000 loss 0.5"
	for name, tc := range map[string]struct {
		expression string
		lines      []string
		want       uint64
	}{
		"first group":            {`step (\d+)`, []string{line, "step 130"}, 10},
		"named group":            {`epoch (\d+) step (?P<step>\d+)`, []string{line, "epoch 3 step 125"}, 5},
		"no group: each match":   {`^step`, []string{"step", "step 7", "epoch"}, 2},
		"a group that is a word": {`(step) done`, []string{"step done", "step done"}, 2},
		"no match":               {`batch (\d+)`, []string{line}, 0},
		"a number or none":       {`step (\d+)?`, []string{"step 1", "step ", "step 2"}, 1},
		"too large a number":     {`step (\d+)`, []string{"step 1", "step 99999999999999999999999", "step 2"}, 1},
	} {
		p, err := compile(tc.expression)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var c counter
		for i, l := range tc.lines {
			p.match([]byte(l), &c, int64(i+1))
		}
		if c.count != tc.want {
			t.Errorf("%s: %d steps, want %d", name, c.count, tc.want)
		}
	}
}

func TestPatternsRefused(t *testing.T) {
	for _, bad := range []string{`step (\d+`, `(?<=step )\d+`, `(a)\1`, strings.Repeat("a", maxPatternBytes+1), `((a{50}){50}){50}`, `(x{100}){20}`} {
		if _, err := compile(bad); err == nil || !strings.Contains(err.Error(), "allowed") || !strings.Contains(err.Error(), Label) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

func TestMessages(t *testing.T) {
	for text, want := range map[string]struct {
		n            uint64
		numbered, ok bool
	}{
		"step": {0, false, true}, "step\n": {0, false, true}, "step=0": {0, true, true}, "step=123\n": {123, true, true},
		"": {}, "step=": {numbered: true}, "step=-1": {numbered: true}, "step=1e3": {numbered: true}, "steps": {}, "loss=3": {}, "step 3": {},
		"step=18446744073709551615": {1<<64 - 1, true, true}, "step=" + strings.Repeat("9", 250): {1<<64 - 1, true, false},
		"step=" + strings.Repeat("0", 252): {},
	} {
		n, numbered, ok := parseMessage([]byte(text))
		if n != want.n && want.ok || numbered != want.numbered || ok != want.ok {
			t.Errorf("%.20q: %d %v %v", text, n, numbered, ok)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte("step=1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, ok := parseMessage(b); ok && !strings.HasPrefix(strings.TrimSpace(string(b)), "step") {
			t.Errorf("%q was taken", b)
		}
	})
}

// TestSenderOfANewContainer: a container that is known a moment after its first datagram loses no more
// than that one, and who was found is not looked for again.
func TestSenderOfANewContainer(t *testing.T) {
	asked, key := 0, ""
	l := &listener{known: map[int32]sender{}, owner: func(int32) string { asked++; return key }}
	now := time.Now()
	if got := l.containerOf(7, now); got != "" {
		t.Errorf("before it is known: %q", got)
	}
	key = "a"
	for range 3 {
		if got := l.containerOf(7, now.Add(time.Millisecond)); got != "a" {
			t.Errorf("once it is known: %q", got)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
