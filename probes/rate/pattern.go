package rate

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
)

// Label is the label by which a container asks for its log to be read.
const Label = "trimtab.rate.log"

const (
	maxPatternBytes = 512
	// maxInstructions bounds an expression such as (a{50}){20}, which is short and slow.
	maxInstructions = 2000
	stepGroup       = "step"
)

// pattern finds steps in lines.
type pattern struct {
	re    *regexp.Regexp
	group int // of the step's number; 0: there is none, each match is a step
}

// compile reads the label's value. The error says what is allowed.
func compile(text string) (pattern, error) {
	if len(text) > maxPatternBytes {
		return pattern{}, fmt.Errorf("label %s: %d bytes; allowed: an RE2 expression of up to %d", Label, len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, fmt.Errorf("label %s: %w; allowed: an RE2 expression such as step[ =](\\d+)", Label, err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(prog.Inst) > maxInstructions {
		return pattern{}, fmt.Errorf("label %s: the expression is too large; allowed: fewer and smaller repetitions", Label)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return pattern{}, fmt.Errorf("label %s: %w", Label, err)
	}
	p := pattern{re: re, group: min(1, re.NumSubexp())}
	if i := re.SubexpIndex(stepGroup); i >= 0 {
		p.group = i
	}
	return p, nil
}

// match counts a line.
func (p pattern) match(line []byte, c *counter, atNs int64) {
	m := p.re.FindSubmatchIndex(line)
	if m == nil {
		return
	}
	if from, to := m[2*p.group], m[2*p.group+1]; p.group > 0 && from >= 0 {
		if n, err := strconv.ParseUint(string(line[from:to]), 10, 64); err == nil {
			c.step(n, atNs)
			return
		}
	}
	if !c.numbered { // a line without a number, of a job that numbers its steps, is none
		c.tick(atNs)
	}
}
