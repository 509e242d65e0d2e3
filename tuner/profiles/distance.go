package profiles

import "math"

// Ranges hold, for each attribute, how far apart known jobs lie on the logarithmic
// scale: that far is wholly different.
type Ranges [NumAttributes]float64

// A factor of 3 is wholly different at the least, so that two known jobs that are
// all but equal do not make a third look alien; a factor of 16 at the most, so that
// one odd job does not make all others look alike.
const (
	minRange = 1.0986122886681098 // ln 3
	maxRange = 2.772588722239781  // ln 16
)

// RangesOf measures the ranges over some prints.
func RangesOf(prints ...*Print) Ranges {
	var low, high Ranges
	var seen [NumAttributes]bool
	for _, p := range prints {
		for a := range NumAttributes {
			if p.has&(1<<a) == 0 {
				continue
			}
			l := float64(p.logs[a])
			if !seen[a] {
				seen[a], low[a], high[a] = true, l, l
			}
			low[a], high[a] = min(low[a], l), max(high[a], l)
		}
	}
	var out Ranges
	for a := range out {
		out[a] = min(max(high[a]-low[a], minRange), maxRange)
	}
	return out
}

// Likeness is how two prints compare.
type Likeness struct {
	// Distance is the mean difference of what both have, 0 (alike) to 1.
	Distance float64 `json:"distance"`
	// Compared is the share of what either has, by weight, that both have.
	Compared float64 `json:"compared"`
	// Attributes is how many measured attributes both have.
	Attributes int `json:"attributes"`
}

// Compare takes the weighted mean of the attributes' differences: numbers on the
// logarithmic scale over their range, names equal or not. An attribute that either
// lacks is left out. Where steps are counted in different units nothing compares.
func Compare(a, b Print, ranges Ranges) Likeness { return compare(&a, &b, &ranges) }

func compare(a, b *Print, ranges *Ranges) Likeness {
	out := Likeness{Distance: 1}
	if a.Unit != b.Unit || a.Unit == "" {
		return out
	}
	var sum, compared, either float64
	oneDevice := a.Device == b.Device
	for at := range NumAttributes {
		how := &attributes[at]
		if how.weight == 0 || how.device && !oneDevice {
			continue
		}
		hasX, hasY := a.has&(1<<at) != 0, b.has&(1<<at) != 0
		if hasX || hasY {
			either += how.weight
		}
		if !hasX || !hasY {
			continue
		}
		compared += how.weight
		out.Attributes++
		sum += how.weight * min(1, math.Abs(float64(a.logs[at]-b.logs[at]))/ranges[at])
	}
	if a.Image != "" && b.Image != "" {
		compared += imageWeight
		either += imageWeight
		if a.Image != b.Image {
			sum += imageWeight
		}
	}
	if compared <= 0 || out.Attributes < minAttributes {
		return out
	}
	out.Distance, out.Compared = sum/compared, compared/either
	return out
}

// minAttributes is the least that two prints must both have to compare at all.
const minAttributes = 5
