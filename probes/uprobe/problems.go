package uprobe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
)

// maxProblems bounds what is remembered for one container, since a container can
// make as many as it likes.
const maxProblems = 8

// problems keeps what went wrong, each reason once for a container.
type problems struct {
	byContainer map[string]map[string]bool
	unsaid      []error
}

func newProblems() problems { return problems{byContainer: map[string]map[string]bool{}} }

// add remembers a problem; text that names a process or a file would make each a new one.
func (p *problems) add(key, what string, err error) {
	text := fmt.Sprintf("%s: %s", what, reason(err))
	have := p.byContainer[key]
	if have == nil {
		have = map[string]bool{}
		p.byContainer[key] = have
	}
	if have[text] || len(have) >= maxProblems {
		return
	}
	have[text] = true
	p.unsaid = append(p.unsaid, fmt.Errorf("uprobes: container %s: %s: %w", key, what, err))
}

// reason is an error without its subject, and with its mend.
func reason(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "permission denied: needs CAP_SYS_PTRACE, and before Linux 6.10 CAP_SYS_ADMIN"
	case errors.Is(err, os.ErrNotExist):
		return "no such file"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	text := err.Error()
	return text[:min(len(text), 200)]
}

// of lists a container's problems, sorted.
func (p *problems) of(key string) []string {
	return slices.Sorted(maps.Keys(p.byContainer[key]))
}

// fresh returns the problems that were not yet returned.
func (p *problems) fresh() error {
	err := errors.Join(p.unsaid...)
	p.unsaid = nil
	return err
}

func (p *problems) forget(key string) { delete(p.byContainer, key) }
