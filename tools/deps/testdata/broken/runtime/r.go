// Package runtime keeps state.
package runtime

import (
	_ "embed"
	"errors"
	"regexp"
)

// Allowed.
var (
	ErrGone = errors.New("gone")
	digits  = regexp.MustCompile(`\d+`)
	_       = digits
	key     = []byte("k")
)

//go:embed r.go
var source string

// names is a table.
//
//trimtab:table never written
var names = []string{"a"}

//trimtab:table
var noReason = []string{"b"}

var counter int

func init() { counter = len(source) + len(names) + len(noReason) + len(key) }
