package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reasonsOf are the reasons that docs/troubleshooting.md explains: what stands between quotes in the first column.
func reasonsOf(t *testing.T) (reasons []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| reason |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range regexp.MustCompile(`(?m)^\| (".*?") \|`).FindAllStringSubmatch(table, -1) {
		for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(row[1], -1) {
			reasons = append(reasons, m[1])
		}
	}
	if len(reasons) < 40 {
		t.Fatalf("%d reasons were found", len(reasons))
	}
	return reasons
}

// TestDocsReasons: the reasons that docs/troubleshooting.md explains are ones that today's code gives.
func TestDocsReasons(t *testing.T) {
	var code strings.Builder
	for _, folder := range []string{"../../tuner/*/*.go", "*.go"} {
		files, err := filepath.Glob(folder)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", folder, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				code.Write(text)
			}
		}
	}
	for _, reason := range reasonsOf(t) {
		for part := range strings.SplitSeq(reason, "…") {
			if !strings.Contains(code.String(), strings.TrimSpace(part)) {
				t.Errorf("nothing says %q", reason)
			}
		}
	}
}

// TestReasonsAreInDocs: what the code gives as the reason why nothing is changed is explained on that page.
func TestReasonsAreInDocs(t *testing.T) {
	var rows []*regexp.Regexp
	for _, reason := range reasonsOf(t) {
		rows = append(rows, regexp.MustCompile("^"+strings.ReplaceAll(regexp.QuoteMeta(reason), "…", ".*")+"$"))
	}
	verbs := regexp.MustCompile(`%[.0-9]*[a-z]`)
	given := reasonsGiven(t)
	if len(given) < 40 {
		t.Fatalf("%d reasons were found in the code: %q", len(given), given)
	}
	for _, reason := range given {
		shown := verbs.ReplaceAllString(reason, "…")
		if reason != "it is gone" && !slices.ContainsFunc(rows, func(row *regexp.Regexp) bool { return row.MatchString(shown) }) { // who is gone is not listed
			t.Errorf("docs/troubleshooting.md has no row of %q", shown)
		}
	}
}

// reasonsGiven are the texts of refusals, as far as they are written where one is made.
func reasonsGiven(t *testing.T) (given []string) {
	t.Helper()
	add := func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value != `""` {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			given = append(given, text)
		}
		return true
	}
	value := func(lit *ast.CompositeLit, key string) ast.Expr {
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if name, ok := kv.Key.(*ast.Ident); ok && name.Name == key {
					return kv.Value
				}
			}
		}
		return nil
	}
	for _, pattern := range []string{"../../tuner/guard/*.go", "../../tuner/control/*.go", "../../tuner/verdict/verdict.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil || strings.HasSuffix(file, "_test.go") {
				continue // the compiler says what is wrong
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.FuncDecl:
					if slices.Contains([]string{"fixed", "noPlan", "WhyNothing", "sharedTrial", "refuse"}, x.Name.Name) {
						ast.Inspect(x, add)
					}
				case *ast.ValueSpec:
					if x.Names[0].Name == "writing" {
						ast.Inspect(x, add)
					}
				case *ast.CompositeLit:
					if text := value(x, "Text"); text != nil && value(x, "Gate") != nil {
						ast.Inspect(text, add)
					}
				}
				return true
			})
		}
	}
	return given
}
