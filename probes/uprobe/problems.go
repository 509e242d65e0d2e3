package uprobe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// maxProblems bounds what is remembered for one container, since a container can
// make as many as it likes.
const maxProblems = 8

// problemLasts is how long a problem shows that is not met again; looks are never
// further apart than maxLookAgain and a scan.
const problemLasts = time.Minute

// problems keeps what went wrong, each reason once for a container.
type problems struct {
	byContainer map[string]map[string]time.Time // when last met
	unsaid      []error
}

func newProblems() problems { return problems{byContainer: map[string]map[string]time.Time{}} }

// add remembers a problem, each of those joined in it alone; text that names a
// process or a file would make each a new one.
func (p *problems) add(key, what string, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			p.add(key, what, err)
		}
		return
	}
	text := fmt.Sprintf("%s: %s", what, reason(err))
	have := p.byContainer[key]
	if have == nil {
		have = map[string]time.Time{}
		p.byContainer[key] = have
	}
	_, known := have[text]
	if !known && len(have) >= maxProblems {
		maps.DeleteFunc(have, func(_ string, met time.Time) bool { return time.Since(met) >= problemLasts })
	}
	if !known && len(have) >= maxProblems {
		return
	}
	have[text] = time.Now()
	if known {
		return
	}
	p.unsaid = append(p.unsaid, fmt.Errorf("uprobes: container %s: %s: %w", key, what, err))
}

// reason is an error without its subject, and with its fix.
func reason(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "permission denied: needs CAP_SYS_PTRACE, and before Linux 6.10 CAP_SYS_ADMIN"
	case errors.Is(err, os.ErrNotExist):
		return "no such file"
	}
	for inner := err; inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	text := err.Error()
	return text[:min(len(text), 200)]
}

// of lists a container's problems of late, sorted.
func (p *problems) of(key string) []string {
	var out []string
	for text, met := range p.byContainer[key] {
		if time.Since(met) < problemLasts {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// fresh returns the problems that were not yet returned.
func (p *problems) fresh() error {
	err := errors.Join(p.unsaid...)
	p.unsaid = nil
	return err
}

func (p *problems) forget(key string) { delete(p.byContainer, key) }
