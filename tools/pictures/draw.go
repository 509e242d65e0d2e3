package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

func quota(r reading) (float64, bool) { return r.quota, r.quota > 0 }
func owner(r reading) (float64, bool) { return r.own, r.own > 0 }
func used(r reading) (float64, bool)  { return r.used, r.at > 0 } // of the first reading nothing is known
func rate(r reading) (float64, bool)  { return r.rate, r.rate > 0 }
func stopped(r reading) (float64, bool) {
	return 100 * r.stopped, r.parts.WallNs > 0
}

func highest(points ...[]point) (most float64) {
	for _, p := range slices.Concat(points...) {
		if p.known {
			most = max(most, p.y)
		}
	}
	return most
}

// change is an instant at which the quota moved.
type change struct {
	at       float64
	from, to reading
}

func (c *course) changes() (out []change) {
	for i := 1; i < len(c.readings); i++ {
		if a, b := c.readings[i-1], c.readings[i]; a.quota != b.quota {
			out = append(out, change{b.at, a, b})
		}
	}
	return out
}

// word says what a change of the quota was.
func (ch change) word() string {
	switch {
	case ch.to.quota == 0:
		return "its owner lifts the quota"
	case ch.from.quota == 0:
		return "its owner sets one"
	case ch.to.lent > ch.from.lent:
		return "lent"
	case ch.to.lent < ch.from.lent:
		return "called in"
	}
	return "its owner changes it"
}

// cpuPanel shows what a container may use and does use.
func (c *course) cpuPanel(on *canvas) *panel {
	q, o, u := c.line(quota), c.line(owner), c.line(used)
	p := on.panel("CPUs", highest(q, o, u))
	p.area(o, q)
	p.line("owner", "its owner's quota", o, true)
	p.line("two", "its quota", q, true)
	p.line("one", "used", u, false)
	p.name("lent", "lent")
	return p
}

func (c *course) mark(on *canvas) (said []string) {
	before, row, last := -1e9, 0, ""
	for _, ch := range c.changes() {
		if row = 0; ch.at-before < on.most/8 {
			row = 1
		}
		word := ch.word()
		if word == "called in" && last == word {
			continue // the rest of it
		}
		last = word
		on.event(ch.at, word, row)
		said = append(said, fmt.Sprintf("At %.0f s %s: %s.", ch.at, word, quotaText(ch)))
		before = ch.at
	}
	return said
}

func quotaText(ch change) string {
	text := func(cpus float64) string {
		if cpus == 0 {
			return "no limit"
		}
		return fmt.Sprintf("%.2f CPUs", cpus)
	}
	return text(ch.from.quota) + " to " + text(ch.to.quota)
}

// drawLoan shows a loan's life: what its quota stops, what it uses, and how fast it goes.
func drawLoan(name, title string) func(string) (string, error) {
	return func(recording string) (string, error) {
		c, err := read(recording, name)
		if err != nil {
			return "", err
		}
		on := newCanvas(title, c.end())
		on.y += 2 * lineHigh
		c.cpuPanel(on)
		on.panel("Share of its time that its quota stops it, %", 100).line("one", "stopped", c.line(stopped), true)
		r := c.line(rate)
		on.panel("Rate, passes a second", highest(r)).line("one", "rate", r, false)
		said := c.mark(on)
		on.axis()
		return on.svg(title, "Over time: CPUs used and the quota, the share of time that the quota stops the job, and its rate. "+strings.Join(said, " ")), nil
	}
}

// drawRecall shows who wants the CPUs back.
func drawRecall(name, neighbour, title string) func(string) (string, error) {
	return func(recording string) (string, error) {
		c, err := read(recording, name)
		if err != nil {
			return "", err
		}
		n, err := read(recording, neighbour)
		if err != nil {
			return "", err
		}
		on := newCanvas(title, c.end())
		on.y += 2 * lineHigh
		c.cpuPanel(on)
		on.panel("Share of its time that its quota stops it, %", 100).line("one", "stopped", c.line(stopped), true)
		u := n.line(func(r reading) (float64, bool) { return r.used, r.used > 0 })
		on.panel("CPUs of the neighbour", highest(u)).line("one", "used", u, false)
		said := c.mark(on)
		on.axis()
		return on.svg(title, "Over time: CPUs used and the quota, the share of time that the quota stops the job, and what its neighbour uses. "+strings.Join(said, " ")), nil
	}
}

// drawTrial shows the turns of a trial, and what they prove.
func drawTrial(name, title string) func(string) (string, error) {
	return func(recording string) (string, error) {
		c, err := read(recording, name)
		if err != nil {
			return "", err
		}
		if len(c.trials) == 0 {
			return "", fmt.Errorf("no trial of %s ended", name)
		}
		t := c.trials[0]
		ended := c.seconds(t.EndedUnixNs)
		c.readings = slices.DeleteFunc(c.readings, func(r reading) bool { return r.at > ended })
		ch := t.Changes[slices.IndexFunc(t.Changes, func(ch policies.Change) bool { return ch.Name == name })]
		changed := c.spans(func(r reading) bool { return r.values[ch.Knob] != ch.From })
		on := newCanvas(title+": "+ch.Knob.Text(ch.From, ch.To), c.end())
		r := c.line(rate)
		p := on.panel("Rate a second; shaded: with the change", highest(r))
		p.shade(changed)
		p.line("one", "rate", r, false)
		p.name("lent", "with the change")
		on.axis()
		on.y += lineHigh
		on.interval(t)
		return on.svg(title, fmt.Sprintf("%s, made %d times and reverted between. The rate changes by %s. Outcome: %s.", ch.Knob.Text(ch.From, ch.To), len(changed), bounds(t), outcomeWord(t))), nil
	}
}

func bounds(t state.Trial) string {
	return fmt.Sprintf("%+.0f %%, between %+.0f and %+.0f %%", 100*(t.Ratio-1), 100*(t.Low-1), 100*(t.High-1))
}

// interval draws what a trial proves, against nothing.
func (c *canvas) interval(t state.Trial) {
	most := niceTop(100 * max(t.High-1, 1-t.Low))
	least := -min(most, 100) // no rate falls by more
	x := func(percent float64) float64 { return left + (right-left)*(percent-least)/(most-least) }
	c.text(left, c.y, "soft", "Change of the rate, with its bounds")
	y := c.y + 28
	c.add(`<path class="grid" d="M%d %.1fH%d"/>`, left, y+16, right)
	for _, v := range []float64{least, 0, most / 2, most} {
		c.add(`<path class="grid" d="M%.1f %.1fv5"/>`, x(v), y+16)
		c.add(`<text x="%.1f" y="%.1f" class="soft" text-anchor="middle">%.0f %%</text>`, x(v), y+34, v)
	}
	c.add(`<path class="mark" d="M%.1f %.1fV%.1f"/>`, x(0), y-14, y+16)
	c.add(`<path class="one" d="M%.1f %.1fH%.1fM%.1f %.1fv12M%.1f %.1fv12"/>`, x(100*(t.Low-1)), y, x(100*(t.High-1)), x(100*(t.Low-1)), y-6, x(100*(t.High-1)), y-6)
	c.add(`<circle class="fill-one" cx="%.1f" cy="%.1f" r="5"/>`, x(100*(t.Ratio-1)), y)
	c.text(nameColumn, y+4, "", outcomeWord(t))
	c.y = y + 16 + underAxis
}

func outcomeWord(t state.Trial) string {
	if t.Outcome == state.OutcomeKept {
		return "all above zero: kept"
	}
	return "on both sides: reverted"
}

// drawStep shows a step before the first loan and at the end, in milliseconds.
func drawStep(name, title string) func(string) (string, error) {
	return func(recording string) (string, error) {
		c, err := read(recording, name)
		if err != nil {
			return "", err
		}
		var before, after reading
		for _, r := range c.readings {
			if r.rate > 0 && r.lent == 0 && after.rate == 0 {
				before = r
			}
			if r.rate > 0 && r.lent > 0 {
				after = r
			}
		}
		if before.rate == 0 || after.rate == 0 {
			return "", fmt.Errorf("the rate of %s is not known both before and after", name)
		}
		on := newCanvas(title, 1000/before.rate)
		said := []string{on.bar("before", before), on.bar("after", after)}
		on.key(before, after)
		return on.svg(title, strings.Join(said, " ")), nil
	}
}

// stepParts are the parts that the picture tells apart, in its order; all else is together.
func stepParts() []struct {
	class, name string
	parts       []policies.Part
} {
	return []struct {
		class, name string
		parts       []policies.Part
	}{
		{"a", "computing", []policies.Part{policies.PartCompute}},
		{"c", "waiting for its device", []policies.Part{policies.PartDevice}},
		{"b", "stopped by its quota, it or its loaders", []policies.Part{policies.PartThrottled, policies.PartInputThrottled}},
		{"d", "all else", nil},
	}
}

// split are a step's milliseconds by stepParts.
func split(r reading) (out []float64) {
	whole := 1000 / r.rate
	rest := whole
	for _, p := range stepParts() {
		ms := 0.0
		for _, part := range p.parts {
			ms += whole * r.parts.Share(part)
		}
		if p.parts == nil {
			ms = rest
		}
		rest -= ms
		out = append(out, ms)
	}
	return out
}

// bar draws a step, and says what it shows.
func (c *canvas) bar(word string, r reading) string {
	const high = 30
	c.end(left-6, c.y+high/2+4, "", word)
	at, said := 0.0, []string{}
	for i, ms := range split(r) {
		p := stepParts()[i]
		c.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`, p.class, c.x(at), c.y, c.x(at+ms)-c.x(at), high)
		at += ms
		said = append(said, fmt.Sprintf("%s %.0f ms", p.name, ms))
	}
	c.text(c.x(at)+8, c.y+high/2+4, "", fmt.Sprintf("%.0f ms, %.2g CPUs", 1000/r.rate, r.quota))
	c.y += high + 14
	return fmt.Sprintf("A step %s: %.0f ms on a quota of %.2g CPUs: %s.", word, 1000/r.rate, r.quota, strings.Join(said, ", "))
}

// key names the colours, with the milliseconds of both.
func (c *canvas) key(before, after reading) {
	was, is := split(before), split(after)
	for i, p := range stepParts() {
		c.add(`<rect class="%s" x="%d" y="%.1f" width="12" height="12"/>`, p.class, left, c.y)
		c.text(left+20, c.y+10, "", fmt.Sprintf("%s: %.0f ms, then %.0f ms", p.name, was[i], is[i]))
		c.y += lineHigh + 4
	}
}
