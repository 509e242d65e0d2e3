package budget

// maxShed bounds the thinning: beyond it windows of five steps take too long to
// be of use, and the OverBudget alert asks a person.
const maxShed = 4

const (
	// shedAt is the share of the budget of CPU from which on readings are taken less often:
	// before it is exceeded (law: own budget). It is held against the mean of shedOver stretches of ten
	// seconds: a container that begins costs some 0.15 s of CPU for its libraries once [measured], and
	// just then its verdict must not come half as fast.
	shedAt   = 0.9
	shedOver = 3
	// shedNow times the budget in one stretch is no container that begins.
	shedNow = 3
	// shedLess of the budget in one stretch lets readings come more often again.
	shedLess = 0.33
)

// Shedder decides every how many ticks trimtab reads, from its use of CPU in one stretch
// after the other. The zero value reads at each tick.
type Shedder struct {
	every  int
	recent []float64 // uses since every was set, CPUs, at most shedOver
}

// Every is every how many ticks to read.
func (s *Shedder) Every() int { return max(1, s.every) }

// Next takes in a stretch, use and budget in CPUs, and reports whether that changed Every.
func (s *Shedder) Next(use, budget float64) bool {
	before := max(1, s.every)
	s.every = before
	if s.recent = append(s.recent, use); len(s.recent) > shedOver {
		s.recent = s.recent[1:]
	}
	var mean float64
	for _, u := range s.recent {
		mean += u / float64(len(s.recent))
	}
	switch {
	case use > shedNow*budget || len(s.recent) == shedOver && mean > shedAt*budget:
		s.every = min(2*before, maxShed)
	case use < shedLess*budget:
		s.every = max(before/2, 1)
	}
	if s.every != before {
		s.recent = nil
	}
	return s.every != before
}
