package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/profiles/books"
	"github.com/trimtab/trimtab/tuner/state"
)

// OwnProfiles returns the known jobs that this host has measured: what other hosts' books are
// calibrated by.
func (l *Agent) OwnProfiles(ctx context.Context) (own []profiles.Known, err error) {
	err = l.do(ctx, func() { own = profiles.Own(l.control.Profiles().All()) })
	return own, err
}

// UseBooks puts other hosts' known jobs, prepared, in the place of those before. told is what
// became of their books.
func (l *Agent) UseBooks(ctx context.Context, foreign []profiles.Known, told []state.Book) error {
	return l.do(ctx, func() {
		l.control.Profiles().SetForeign(foreign, time.Now().UnixNano())
		l.known.books = told
	})
}

// BooksForgotten counts how often a host was forgotten. Its book is to be read anew then.
func (l *Agent) BooksForgotten() uint64 { return l.forgotten.Load() }

func (l *Agent) forgetHost(host string) []profiles.Known {
	if host == "" {
		return nil
	}
	l.forgotten.Add(1)
	delete(l.known.aside, host)
	return l.control.Profiles().ForgetHost(host)
}

// showKnown is the state of the store. A book that was set aside is told in the log once.
func (l *Agent) showKnown() state.Memory {
	store := l.control.Profiles()
	m := state.Memory{Known: store.Len(), Lost: l.known.lost, Foreign: store.Foreign(), Books: slices.Clone(l.known.books)}
	for i := range m.Books {
		b := &m.Books[i]
		if b.Reason != "" || !store.Aside(b.Host) {
			continue
		}
		b.Jobs, b.Reason = 0, string(books.SetAside)
		b.Text = fmt.Sprintf("first allocations taken from it failed: it is left out until `trimtab profiles forget --host %s`", b.Host)
		if !l.known.aside[b.Host] {
			if l.known.aside == nil {
				l.known.aside = map[string]bool{}
			}
			l.known.aside[b.Host] = true
			l.o.Log.Warn("a book of known jobs is set aside: it has misled", "host", b.Host, "file", b.File)
		}
	}
	return m
}
