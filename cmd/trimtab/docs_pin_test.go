package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// spells reports whether a line of a test has each word of a command, in its order: what lies between
// them is the test's own. Its quotes and commas do not count, nor do the page's placeholders.
func spells(text, command string) bool {
	plain := strings.NewReplacer(`"`, " ", `'`, " ", ",", " ", "`", " ", "+", " ")
	text = strings.ToLower(plain.Replace(text))
	words := strings.FieldsFunc(plain.Replace(strings.TrimPrefix(command, "trimtab ")), func(r rune) bool { return r == ' ' || r == '*' })
	for _, word := range words {
		if regexp.MustCompile(`^([A-Z]+|…|-)$`).MatchString(word) {
			continue
		}
		_, rest, found := strings.Cut(text, strings.ToLower(word))
		if !found {
			return false
		}
		text = rest
	}
	return len(words) > 0
}

// runsRecipe reports whether make, asked for a target, would run the very script that a test runs.
func runsRecipe(t *testing.T, text, command string) bool {
	t.Helper()
	if !strings.HasPrefix(command, "make ") {
		return false
	}
	out, err := dryMake(t, command)
	script := strings.Trim(text, `"./`)
	return err == nil && strings.HasSuffix(script, ".sh") && strings.Contains(string(out), script)
}

// dryMake has make say what it would do: the target and its variables are there.
func dryMake(t *testing.T, line string) ([]byte, error) {
	t.Helper()
	line, _, _ = strings.Cut(line, " && ")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "make --dry-run "+strings.TrimPrefix(line, "make "))
	cmd.Dir = "../.."
	return cmd.CombinedOutput()
}

// isThere looks up what is not run here: a target, a program or tests of the checkout. Of others' programs
// it knows nothing.
func isThere(t *testing.T, line string) error {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(line, "'", ""))
	switch {
	case words[0] == "make":
		if out, err := dryMake(t, line); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	case strings.HasPrefix(line, "go run "):
		if code := codeIn(words[2], "*.go"); !strings.Contains(code, "\nfunc main() {") {
			return fmt.Errorf("%s is no program", words[2])
		}
	case strings.HasPrefix(line, "go test "):
		return testsAreThere(words[2:])
	}
	return nil
}

// testsAreThere: each package has a test, or a benchmark, of the name that is asked for, and the flags that are set.
func testsAreThere(words []string) error {
	asked := map[string]string{}
	var packages []string
	for i := 0; i < len(words); i++ {
		switch name, isFlag := strings.CutPrefix(words[i], "-"); {
		case strings.HasPrefix(words[i], "./"):
			packages = append(packages, words[i])
		case !isFlag:
			return fmt.Errorf("%q is neither a package nor a flag's", words[i])
		case name == "v":
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "./"):
			i++
			asked[name] = words[i]
		default:
			asked[name] = ""
		}
	}
	if len(packages) == 0 {
		return errors.New("no package is named")
	}
	for _, p := range packages {
		code := codeIn(p, "*_test.go")
		for name, value := range asked {
			switch name {
			case "count", "cpu", "benchtime":
			case "run", "bench":
				kind := map[string]string{"run": "Test", "bench": "Benchmark"}[name]
				if first, _, _ := strings.Cut(value, "/"); value == "" || !hasOne(code, kind, first) && !(name == "run" && asked["bench"] != "") {
					return fmt.Errorf("%s has no %s %q", p, kind, value)
				}
			default:
				if !regexp.MustCompile(`flag\.\w+\("` + regexp.QuoteMeta(name) + `"`).MatchString(code) {
					return fmt.Errorf("%s has no flag -%s", p, name)
				}
			}
		}
		if !hasOne(code, "Test", ".") {
			return fmt.Errorf("%s has no tests", p)
		}
	}
	return nil
}

// hasOne reports whether code has a function of a kind whose name fits a pattern.
func hasOne(code, kind, pattern string) bool {
	fits, err := regexp.Compile(pattern)
	for _, m := range regexp.MustCompile(`(?m)^func (`+kind+`\w*)\(`).FindAllStringSubmatch(code, -1) {
		if err == nil && fits.MatchString(m[1]) {
			return true
		}
	}
	return false
}

// codeIn is the code of a package of the checkout.
func codeIn(folder, pattern string) string {
	files, _ := filepath.Glob(filepath.Join("../..", folder, pattern)) // the pattern is good
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			code.Write(text)
		}
	}
	return code.String()
}
