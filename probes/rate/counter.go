package rate

const (
	// maxJump is the most steps that one report may add: beyond it stands another
	// number than a step's.
	maxJump = 1_000_000
	// restartRises is how many numbers must rise, all below the highest, before they
	// are a trainer that began again: ranks that share a log repeat numbers, and fall
	// behind by one or two.
	restartRises = 3
	// maxEveryNs is the longest span between two reports that is remembered: a job that
	// slept for a night would otherwise be waited for as long when its log ends.
	maxEveryNs = int64(300e9)
	// everyKeptNs is how long the longest span is kept without one as long: two epochs.
	everyKeptNs = int64(1800e9)
)

// counter makes a count that only grows of what a job says.
type counter struct {
	count    uint64
	lastNs   int64 // CLOCK_MONOTONIC; 0: nothing was said
	everyNs  int64 // longest span between two reports of the latest half an hour
	everyAt  int64 // when that one ended
	numbered bool
	highest  uint64
	low      uint64 // the latest number below the highest
	rises    int
}

// tick counts one step.
func (c *counter) tick(atNs int64) {
	c.count++
	c.reported(atNs)
}

// reported notes when something was counted. An evaluation after each epoch makes a log
// silent for much longer than between its lines: the longest span is kept for a time.
func (c *counter) reported(atNs int64) {
	if span := atNs - c.lastNs; c.lastNs > 0 && (span >= c.everyNs || atNs-c.everyAt > everyKeptNs) {
		c.everyNs, c.everyAt = min(max(span, 0), maxEveryNs), atNs
	}
	c.lastNs = max(c.lastNs, atNs)
}

// step takes a step's number. The first one says where the job is; others count
// by how far they went. A number that is not higher counts nothing.
func (c *counter) step(n uint64, atNs int64) {
	switch {
	case !c.numbered:
		c.numbered, c.highest = true, n
	case n > c.highest:
		if n-c.highest <= maxJump {
			c.count += n - c.highest
		}
		c.highest = n
	case n == c.highest:
		c.rises = 0
		return
	default:
		c.fell(n)
		return
	}
	c.rises = 0
	c.reported(atNs)
}

// fell takes a number below the highest.
func (c *counter) fell(n uint64) {
	if c.rises == 0 || n > c.low {
		c.rises++
	} else {
		c.rises = 1
	}
	c.low = n
	if c.rises > restartRises {
		c.highest, c.rises = n, 0
	}
}
