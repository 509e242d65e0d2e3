package rate

const (
	// maxJump is the most steps that one report may add: beyond it stands another
	// number than a step's.
	maxJump = 1_000_000
	// restartRises is how many numbers must rise, all below the highest, before they
	// are a trainer that began again: ranks that share a log repeat numbers, and fall
	// behind by one or two.
	restartRises = 3
)

// counter makes a count that only grows of what a job says.
type counter struct {
	count    uint64
	lastNs   int64 // CLOCK_MONOTONIC; 0: nothing was said
	numbered bool
	highest  uint64
	low      uint64 // the latest number below the highest
	rises    int
}

// tick counts one step.
func (c *counter) tick(atNs int64) {
	c.count++
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
	c.lastNs = max(c.lastNs, atNs)
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
