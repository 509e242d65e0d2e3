package packaging

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// unknown is what Grafana's own SDK has no word for in a page, queries to Prometheus included. What has a
// default may be left out.
func unknown(page string) (out []string) {
	var d dashboard.Dashboard //lint:ignore SA1019 the pages are written in the first schema
	if err := d.UnmarshalJSONStrict([]byte(page)); err != nil {
		for line := range strings.Lines(err.Error()) {
			if !strings.Contains(line, "required field is missing") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out
}

// The dashboards are what Grafana's SDK reads, strictly.
func TestDashboardsFitGrafanasSDK(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for name := range dashboardFiles(t) {
		text := read(t, name)
		if wrong := unknown(text); len(wrong) > 0 {
			t.Errorf("%s: %q", name, wrong)
		}
		for right, wrong := range map[string]string{`"legendFormat"`: `"legend"`, `"gridPos"`: `"grid"`, `"colorMode"`: `"colourMode"`, `"includeAll": false`: `"includeAll": "no"`, `"schemaVersion": 39`: `"schemaVersion": "39"`} {
			if broken := strings.Replace(text, right, wrong, 1); broken != text && len(unknown(broken)) == 0 {
				t.Errorf("%s with %s for %s is read", name, wrong, right)
			}
		}
	}
}

// The dashboards are what Grafana's own schema says of a dashboard and of each kind of panel.
func TestDashboardsFitGrafanasSchema(t *testing.T) {
	modules, err := filepath.Abs("../.cache/grafana/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	compiler := filepath.Join(modules, ".bin", "tsc")
	if _, err := os.Stat(compiler); err != nil {
		t.Skip("needs Grafana's schema: scripts/npm.sh fetches it from the registry of npm")
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	pages := bytes.NewBufferString("import type {Page} from './page';\n")
	for i, name := range slices.Sorted(maps.Keys(dashboardFiles(t))) {
		fmt.Fprintf(pages, "// %s\nexport const page%d: Page = %s;\n", name, i, strings.TrimSpace(read(t, name)))
	}
	for name, text := range map[string]string{"page.ts": read(t, "testdata/grafana/page.ts"), "pages.ts": pages.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), compiler, "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler", "pages.ts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
