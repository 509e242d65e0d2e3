package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/tuner/config"
)

// asker asks the code that reads configs what it has against values.
type asker struct{ dir string }

func newAsker() (asker, error) {
	dir, err := os.MkdirTemp("", "configdoc")
	return asker{dir}, err
}

func (a asker) close() { _ = os.RemoveAll(a.dir) } // nothing in it is needed

// wrong are values that some key or other does not take.
func wrong(kind reflect.Type) []string {
	switch kind.Kind() {
	case reflect.Slice:
		return []string{`[]`, `["?"]`}
	case reflect.Map:
		return []string{`{"?": "?"}`}
	case reflect.Bool:
		return nil
	}
	return []string{`"?"`, "-1", "0", "1", "0s", "1ns", "99999h", "1e9", "1000000000"}
}

// ask gathers what is said to be allowed.
func (a asker) ask(k key) (string, error) {
	var out []string
	for _, value := range wrong(k.kind) {
		file := filepath.Join(a.dir, "trimtab.yaml")
		if err := os.WriteFile(file, []byte(nested(k.name, value)), 0o600); err != nil {
			return "", err
		}
		_, _, err := config.Load(file, "")
		for _, p := range config.Problems(err) {
			at := regexp.MustCompile(`\[1\]`).ReplaceAllString(p.Key, "[]")
			if said := allowedBy(p.Text); said != "" && (at == k.name || at == k.name+"[]" || strings.HasPrefix(k.name, at+".")) && !slices.ContainsFunc(out, func(s string) bool { return strings.HasPrefix(s, said) }) {
				out = append(out, said)
			}
		}
	}
	if len(out) > 1 && regexp.MustCompile(`^(times|amounts of memory) `).MatchString(out[0]) {
		out = out[1:] // how it is written stands above all tables
	}
	return strings.Join(out, "; "), nil
}

// allowedBy takes from a problem what would be none.
func allowedBy(problem string) string {
	if m := regexp.MustCompile(`(?s)allowed (?:are|is) (.*)$`).FindStringSubmatch(problem); m != nil {
		said := m[1]
		if list := regexp.MustCompile(`^\[([^\]]*)\]`).FindStringSubmatch(said); list != nil {
			said = strings.Join(strings.Fields(list[1]), ", ") + said[len(list[0]):]
		}
		return regexp.MustCompile(`\b(\d+[hm])(?:0m)?0s\b`).ReplaceAllString(said, "$1")
	}
	return regexp.MustCompile(`an absolute path.*$`).FindString(problem)
}

// nested writes a key as a file: {a: {b: value}}.
func nested(name, value string) string {
	parts := strings.Split(name, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		part, isRule := strings.CutSuffix(parts[i], "[]")
		if isRule {
			value = fmt.Sprintf(`[{name: "*", %s]`, strings.TrimPrefix(value, "{"))
		}
		value = fmt.Sprintf("{%s: %s}", part, value)
	}
	return value
}
