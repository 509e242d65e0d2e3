package main

import (
	"path"
	"slices"
	"strings"
)

// rules are what a module is held to. Patterns are those of path.Match, on
// paths below the module.
type rules struct {
	// layers gives, for a package, what of our own it may import. The first layer
	// with a matching pattern decides; a package that none matches is a finding.
	layers []layer
	// pure packages, and all of ours that they import, reach no world outside.
	pure []string
	// deny maps an import path (or a path with "/*" for everything below it) that
	// pure packages must not use to the reason.
	deny map[string]string
	// denyNames maps an import path to names in it that pure packages must not
	// mention; onlyNames allows no others.
	denyNames, onlyNames map[string][]string
	// shipped packages, with all that they import, must not link "testing".
	shipped []string
	// stateFree packages hold no mutable package-level variable and no init.
	stateExempt []string
	sizes       sizes
}

// layer is a set of packages and what they may import.
type layer struct {
	packages []string
	may      []string
	any      bool // may import everything of ours
	// subtree: the package's own first two path elements and below are allowed too:
	// runtime/docker may use runtime/docker/x, and so may its siblings.
	subtree bool
}

// trimtabRules is the shape of docs/design.md as data.
func trimtabRules() rules {
	return rules{
		layers: []layer{
			{packages: []string{"cmd/**"}, any: true},
			{packages: []string{"test/**", "tools/**", "packaging"}, any: true},
			{packages: []string{"tuner/**"}, may: []string{"tuner/**", "policies", "probes", "runtime"}},
			{packages: []string{"policies/**"}, may: []string{"policies", "probes", "runtime"}},
			{packages: []string{"policies"}, may: []string{"probes", "runtime"}},
			{packages: []string{"probes/**"}, may: []string{"probes", "runtime"}, subtree: true},
			{packages: []string{"runtime/**"}, may: []string{"runtime"}, subtree: true},
			{packages: []string{"probes", "runtime"}},
		},
		pure: []string{
			"runtime", "probes", "policies", "policies/**",
			"tuner/observe", "tuner/verdict", "tuner/trial", "tuner/model", "tuner/allocate", "tuner/guard", "tuner/control", "tuner/enrolment", "tuner/state", "tuner/budget", "tuner/checkpoint", "tuner/idle", "tuner/repair", "tuner/profiles", "tuner/identity", "tuner/account", "tuner/advice", "tuner/series",
			"tuner/place", "tuner/devices", "tuner/event",
			"test/lab/**", // the simulators: equal seeds, equal figures
			"tuner/observe/**", "tuner/verdict/**", "tuner/trial/**", "tuner/guard/**", "tuner/control/**", "tuner/allocate/**", "tuner/model/**", "tuner/enrolment/**", "tuner/budget/**", "tuner/checkpoint/**", "tuner/idle/**", "tuner/account/**",
		},
		deny: map[string]string{
			"os": "files and the environment", "os/*": "files and processes", "io/ioutil": "files",
			"net": "the network", "net/*": "the network",
			"syscall": "the kernel", "golang.org/x/sys/*": "the kernel",
			"log":         "it writes to the world; return what happened instead",
			"math/rand":   "its source is seeded at random; take a math/rand/v2 source as an argument",
			"crypto/rand": "unseeded randomness",
			"runtime":     "the number of CPUs and goroutines of this process",
			"plugin":      "code from files", "C": "cgo reaches everything",
		},
		denyNames: map[string][]string{
			"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"},
			"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
			"log/slog": {"Default", "SetDefault", "NewTextHandler", "NewJSONHandler", "Debug", "Info", "Warn", "Error", "Log", "LogAttrs",
				"DebugContext", "InfoContext", "WarnContext", "ErrorContext", "With"},
		},
		onlyNames: map[string][]string{
			"math/rand/v2": {"Rand", "Source", "New", "PCG", "NewPCG", "ChaCha8", "NewChaCha8", "Zipf", "NewZipf"},
		},
		shipped:     []string{"cmd/**"},
		stateExempt: []string{"test/**"},
		sizes: sizes{packages: []string{"tuner/observe", "tuner/trial", "tuner/allocate", "tuner/guard", "tuner/control"},
			lines: 8500, linesOfFunc: 50, fieldsOfOne: 25},
	}
}

// matches reports whether a path below the module fits one of the patterns: a
// plain path, or "dir/**" for everything below dir.
func matches(rel string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if dir, ok := strings.CutSuffix(p, "/**"); ok {
			return strings.HasPrefix(rel, dir+"/")
		}
		return rel == p
	})
}

// denied returns why pure packages must not import a path.
func (r rules) denied(importPath string) (reason string, denied bool) {
	if reason, ok := r.deny[importPath]; ok {
		return reason, true
	}
	for dir := path.Dir(importPath); dir != "."; dir = path.Dir(dir) {
		if reason, ok := r.deny[dir+"/*"]; ok {
			return reason, true
		}
	}
	return "", false
}

// allows reports whether package from may import package to, both of ours.
func (r rules) allows(from, to string) (known, allowed bool) {
	for _, l := range r.layers {
		if !matches(from, l.packages) {
			continue
		}
		top, _, _ := strings.Cut(from, "/")
		return true, l.any || matches(to, l.may) || (l.subtree && strings.HasPrefix(to, top+"/"))
	}
	return false, false
}
