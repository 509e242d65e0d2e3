package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/tuner/config"
)

// snippet is what a page shows as code: one line of a block or of the text, or, as YAML, a
// block between empty lines.
type snippet struct {
	at    string // "page:line"
	text  string
	whole bool // of a block: to be typed as it stands
}

// pages are the README and all of docs, with its examples.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../docs/*/*/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			out[strings.TrimPrefix(name, "../../")] = string(text)
		}
	}
	return out
}

// codeOf splits a page into what stands between fences, each block up to an empty line, and spans
// of code in the text, which may go on in the next line.
func codeOf(page, text string) (blocks, spans []snippet) {
	const fence = "```"
	prose, in, was := []snippet{{}}, "", ' '
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", page, i+1)
		switch isFence := strings.HasPrefix(strings.TrimSpace(line), fence); {
		case isFence && in != "":
			in, was = "", ' '
		case isFence:
			in, was = strings.TrimSpace(line), ' '
		case line == "":
			was = ' '
		case in != "" && in != fence: // the fence names a language: the page's own test runs it, if any
		case in != "" && was == 'c':
			blocks[len(blocks)-1].text += "\n" + line
		case in != "":
			blocks, was = append(blocks, snippet{at, line, true}), 'c'
		case was == 'p':
			prose[len(prose)-1].text += " " + line
		default:
			prose, was = append(prose, snippet{at, line, false}), 'p'
		}
	}
	for _, p := range prose {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(p.text, -1) {
			spans = append(spans, snippet{p.at, m[1], false})
		}
	}
	return blocks, spans
}

// commandsOf are the calls of trimtab in a snippet, without what a page writes around
// them: prompts, comments, where the output goes, brackets of what may be left out, all
// alternatives but the first.
func commandsOf(s snippet) (out []string) {
	around, alternatives := regexp.MustCompile(`^\$ |(^|\s)#.*| > \S+$`), regexp.MustCompile(`\{([^|{}]*)\|[^{}]*\}`)
	for line := range strings.Lines(s.text) {
		line = around.ReplaceAllString(strings.TrimSpace(line), "")
		line = strings.NewReplacer("[", "", "]", "", "{", "", "}", "").Replace(alternatives.ReplaceAllString(line, "$1"))
		for _, part := range regexp.MustCompile(`&&|\||;`).Split(line, -1) {
			part = strings.TrimPrefix(strings.TrimSpace(part), "sudo ")
			if strings.HasPrefix(part, "trimtab ") {
				out = append(out, part)
			}
		}
	}
	return out
}

// takes says what this version has against a command line; nothing of it is run.
func takes(line string, whole bool) error {
	cmd, rest, err := newRoot().Find(strings.Fields(line)[1:])
	if err != nil {
		return err
	}
	if !cmd.HasParent() {
		return fmt.Errorf("no such command")
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if args := cmd.Flags().Args(); !cmd.Runnable() && len(args) > 0 {
		return fmt.Errorf("%s has no %s", cmd.CommandPath(), args[0])
	}
	if !whole {
		return nil // named, not spelled out
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// TestDocsCommands: each command line of the pages names commands and flags that there are,
// and in blocks as many arguments as they take.
func TestDocsCommands(t *testing.T) {
	seen := 0
	for page, text := range pages(t) {
		blocks, spans := codeOf(page, text)
		for _, s := range append(blocks, spans...) {
			for _, line := range commandsOf(s) {
				seen++
				if err := takes(line, s.whole); err != nil {
					t.Errorf("%s: %s: %v", s.at, line, err)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d command lines were found: the pages have more", seen)
	}
	for _, wrong := range []string{"trimtab ps --never", "trimtab nothing", "trimtab config check a b", "trimtab config never", "trimtab"} {
		if takes(wrong, true) == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}

// TestDocsMakeTargets: the Makefile has what the pages tell people to make.
func TestDocsMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`^make ([a-z][a-z-]+)`)
	for page, text := range pages(t) {
		blocks, spans := codeOf(page, text)
		for _, s := range append(blocks, spans...) {
			for line := range strings.Lines(s.text) {
				if m := call.FindStringSubmatch(line); m != nil && !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("%s: the Makefile has no %s", s.at, m[1])
				}
			}
		}
	}
}

// TestDocsPackages: docs/demo.md names each package that the set-up installs.
func TestDocsPackages(t *testing.T) {
	script, err := os.ReadFile("../../scripts/setup-host.sh")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/demo.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^\s*want \S+ (?:"([^"]+)"|(\S+))|missing="\$missing ([a-z0-9-]+)"`).FindAllStringSubmatch(string(script), -1)
	for _, m := range named {
		for name := range strings.FieldsSeq(m[1] + m[2] + m[3]) {
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/demo.md does not name %s", name)
			}
		}
	}
	if len(named) < 30 {
		t.Errorf("%d packages were found: there are more", len(named))
	}
}

// keys are the top-level ones of the config.
func keys(t *testing.T) []string {
	t.Helper()
	all := map[string]any{}
	if err := yaml.Unmarshal([]byte(config.Example), &all); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(all))
}

// isGood checks a config as `trimtab config check` does.
func isGood(t *testing.T, at, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trimtab.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, warnings, err := config.Load(file, ""); err != nil || len(warnings) > 0 {
		t.Errorf("%s: %v %v\n%s", at, err, warnings, text)
	}
}

// TestDocsConfig: whatever in the pages begins as a config does is one that the daemon takes.
func TestDocsConfig(t *testing.T) {
	known, first := keys(t), regexp.MustCompile(`^([a-z][A-Za-z]*):( |\n|$)`)
	others := []string{"accuracy", "zoo", "input", "trimtab"} // a program's output, a verdict, an error's begin
	seen := 0
	for page, text := range pages(t) {
		blocks, spans := codeOf(page, text)
		for _, s := range append(blocks, spans...) {
			m := first.FindStringSubmatch(s.text)
			switch {
			case m == nil || slices.Contains(others, m[1]) || !s.whole && strings.HasSuffix(s.text, ":"): // a key that is named alone
			case !slices.Contains(known, m[1]):
				t.Errorf("%s: %s is no key of the config", s.at, m[1])
			default:
				seen++
				isGood(t, s.at, s.text)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d snippets were found: the pages have more", seen)
	}
}

// TestAnsibleTasks: the tasks of docs/install.md are what Ansible reads as such, call what
// there is, and write a config that is good.
func TestAnsibleTasks(t *testing.T) {
	files := ansibleFiles(t)
	var tasks, handlers []map[string]any
	var defaults struct {
		Config map[string]any `yaml:"trimtab_config"`
	}
	for name, into := range map[string]any{"tasks/main.yml": &tasks, "handlers/main.yml": &handlers, "defaults/main.yml": &defaults} {
		if err := yaml.Unmarshal([]byte(files[name]), into); err != nil || files[name] == "" {
			t.Fatalf("%s: %v\n%s", name, err, files[name])
		}
	}
	text, err := yaml.Marshal(defaults.Config)
	if err != nil || len(defaults.Config) == 0 {
		t.Fatalf("trimtab_config: %v, %v", defaults.Config, err)
	}
	isGood(t, "trimtab_config", string(text))
	handled := map[any]bool{}
	for _, h := range handlers {
		handled[h["name"]] = true
	}
	checked := 0
	for _, task := range append(tasks, handlers...) {
		module := moduleOf(t, task)
		if to, ok := task["notify"]; ok && !handled[to] {
			t.Errorf("%v notifies %v, which is no handler", task["name"], to)
		}
		options, _ := task[module].(map[string]any)
		line, _ := options["validate"].(string)
		if module == "ansible.builtin.command" {
			line, _ = task[module].(string)
		}
		if line != "" {
			checked++
			if err := takes(line, true); err != nil {
				t.Errorf("%v: %s: %v", task["name"], line, err)
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d command lines in the tasks, want the config's check and doctor", checked)
	}
}

// moduleOf finds the one module of a task; all else is what any task may have.
func moduleOf(t *testing.T, task map[string]any) (module string) {
	t.Helper()
	words := []string{"name", "notify", "register", "changed_when", "failed_when"}
	for key := range task {
		switch {
		case slices.Contains(words, key):
		case strings.HasPrefix(key, "ansible.builtin.") && module == "":
			module = key
		default:
			t.Errorf("%v: %s is neither a word of a task nor its module", task["name"], key)
		}
	}
	if module == "" || task["name"] == nil {
		t.Errorf("%v: no name, or no module", task)
	}
	return module
}

// ansibleFiles are the files of the page's block, by the comments that name them.
func ansibleFiles(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	out, file, fenced := map[string]string{}, "", false
	for line := range strings.Lines(string(text)) {
		name, named := strings.CutPrefix(strings.TrimSpace(line), "# ")
		switch {
		case strings.HasPrefix(line, "```"):
			file, fenced = "", !fenced
		case fenced && named && strings.HasSuffix(name, ".yml"):
			file = name
		case file != "":
			out[file] += line
		}
	}
	return out
}

// TestCitations: pages and laws that comments name are there.
func TestCitations(t *testing.T) {
	design, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	page, law := regexp.MustCompile(`[\w./-]*\w\.md\b`), regexp.MustCompile(`\(law: ([^)]+)\)|\blaw \\?"([^"\\]+)`)
	pages, laws := 0, 0
	err = filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == ".cache" || name == ".git" || name == "node_modules" || name == "rivals") { // rivals cite their own
			return filepath.SkipDir
		}
		if !regexp.MustCompile(`\.(go|c|h|sh)$|^Makefile$`).MatchString(d.Name()) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			mark := "//"
			if strings.HasSuffix(path, ".sh") || d.Name() == "Makefile" {
				mark = "#"
			}
			_, comment, found := strings.Cut(line, mark)
			if !found {
				continue
			}
			for _, name := range page.FindAllString(comment, -1) {
				if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
					if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err != nil {
						t.Errorf("%s cites %s, which is not there", path, name)
					}
				}
				pages++
			}
			for _, m := range law.FindAllStringSubmatch(comment, -1) {
				if name := m[1] + m[2]; !strings.Contains(string(design), "| "+name+" |") {
					t.Errorf("%s cites the law %q, which docs/design.md does not have", path, name)
				}
				laws++
			}
		}
		return nil
	})
	if err != nil || pages < 10 || laws < 15 {
		t.Errorf("%d pages and %d laws are cited, %v: there are more", pages, laws, err)
	}
}

// TestLinks: what the pages link to is there, and what an installed page links to is installed.
func TestLinks(t *testing.T) {
	seen, inPackages := 0, installedDocs(t)
	for page, text := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			seen++
			to := filepath.Join(filepath.Dir(page), m[1])
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
			if inPackages(page) && !inPackages(to) {
				t.Errorf("%s links to %s, which packages do not install", page, m[1])
			}
		}
	}
	if seen < 60 {
		t.Errorf("%d links were found: the pages have more", seen)
	}
	if !inPackages("docs/config.md") || inPackages("docs/examples/policy.patch") || inPackages("README.md") {
		t.Error("what packages install was not read rightly")
	}
}

// installedDocs tells what of docs the packages bring, by the list that is held to them.
func installedDocs(t *testing.T) func(file string) bool {
	t.Helper()
	list, err := os.ReadFile("../../packaging/testdata/deb.list")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^-\S+ /usr/share/doc/trimtab/(\S+)$`).FindAllStringSubmatch(string(list), -1)
	return func(file string) bool {
		name, inDocs := strings.CutPrefix(file, "docs/")
		return inDocs && slices.ContainsFunc(found, func(m []string) bool {
			fits, err := filepath.Match(m[1], name)
			return err == nil && fits
		})
	}
}
