package packaging

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/test/composetest"
)

// Grafana's provisioning files, with the keys of its manual that ours use. Grafana ignores others.
type (
	dataSources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name      string `yaml:"name"`
			UID       string `yaml:"uid"`
			Type      string `yaml:"type"`
			Access    string `yaml:"access"`
			URL       string `yaml:"url"`
			IsDefault bool   `yaml:"isDefault"`
		} `yaml:"datasources"`
	}
	providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name    string `yaml:"name"`
			Folder  string `yaml:"folder"`
			Type    string `yaml:"type"`
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
)

// monitoring is what compose/ holds, below a folder laid out as packaging/ is.
type monitoring struct {
	root    string // absolute
	compose *types.Project
	sources dataSources
	pages   providers
}

// strictly reads a YAML file; a key that the type lacks is an error.
func strictly(path string, into any) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	d := yaml.NewDecoder(file)
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// problems is all that is wrong, by what each file says of the others. Compose's own library reads its file. What
// Grafana does with its own no test here can see.
func problems(ctx context.Context, root string) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	root, err := filepath.Abs(root)
	if err != nil {
		return []string{err.Error()}
	}
	m := monitoring{root: root}
	if m.compose, err = composetest.Load(ctx, filepath.Join(root, "compose", "compose.yaml")); err != nil {
		return []string{err.Error()}
	}
	for path, into := range map[string]any{"provisioning/datasources/prometheus.yaml": &m.sources, "provisioning/dashboards/trimtab.yaml": &m.pages} {
		if err := strictly(filepath.Join(root, "compose", path), into); err != nil {
			say("%v", err)
		}
	}
	for name, s := range m.compose.Services {
		if !regexp.MustCompile(`^[a-z0-9/.-]+:v?[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(s.Image) {
			say("%s: the image %q has no version", name, s.Image)
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				say("%s: %v", name, err)
			}
		}
	}
	m.checkSources(say)
	m.checkPages(say)
	return out
}

// at is the file or folder of this host that a service sees at a path; "": none is mounted there.
func (m monitoring) at(service, path string) string {
	for _, v := range m.compose.Services[service].Volumes {
		if v.Type == types.VolumeTypeBind && v.Target == path {
			return v.Source
		}
	}
	return ""
}

// checkSources: Grafana finds the files, and by them the Prometheus that is beside it.
func (m monitoring) checkSources(say func(string, ...any)) {
	if at := m.at("grafana", "/etc/grafana/provisioning"); at != filepath.Join(m.root, "compose", "provisioning") {
		say("Grafana looks into /etc/grafana/provisioning, where %q is mounted", at)
	}
	if m.sources.APIVersion != 1 || m.pages.APIVersion != 1 || len(m.sources.Datasources) != 1 {
		say("version %d and %d, %d data sources", m.sources.APIVersion, m.pages.APIVersion, len(m.sources.Datasources))
		return
	}
	s := m.sources.Datasources[0]
	if s.Type != "prometheus" || s.Access != "proxy" || !s.IsDefault || s.UID == "" {
		say("the data source is %+v", s)
	}
	u, err := url.Parse(s.URL)
	services := m.compose.Services
	if err != nil || u.Scheme != "http" || !slices.Contains(services["prometheus"].Command, "--web.listen-address="+u.Host) {
		say("the data source is at %q, and Prometheus listens as %q says", s.URL, services["prometheus"].Command)
	}
	if services["prometheus"].NetworkMode != "host" || services["grafana"].NetworkMode != "host" {
		say("127.0.0.1 is not the same for both")
	}
}

// checkPages: the provider's folder holds each page, and what a page asks is defined in it, of the data
// source that is there.
func (m monitoring) checkPages(say func(string, ...any)) {
	if len(m.pages.Providers) != 1 || m.pages.Providers[0].Type != "file" || m.pages.Providers[0].Name == "" {
		say("providers: %+v", m.pages.Providers)
		return
	}
	folder := m.pages.Providers[0].Options.Path
	names, err := filepath.Glob(filepath.Join(m.at("grafana", folder), "*.json"))
	if at := m.at("grafana", folder); at == "" || err != nil || len(names) != 3 {
		say("the provider's folder %s is %q, which holds the pages %q", folder, at, names)
	}
	uids := map[string]string{}
	for _, name := range names {
		var page map[string]any
		text, err := fs.ReadFile(os.DirFS(filepath.Dir(name)), filepath.Base(name))
		if err == nil {
			err = json.Unmarshal(text, &page)
		}
		if err != nil {
			say("%s: %v", name, err)
			continue
		}
		uid, _ := page["uid"].(string)
		if other, taken := uids[uid]; uid == "" || len(uid) > 40 || taken {
			say("%s: its uid is %q, as of %q", name, uid, other)
		}
		uids[uid] = name
		if page["id"] != nil {
			say("%s has an id, which is the database's", name)
		}
		m.checkAsked(func(format string, args ...any) { say("%s: "+format, append([]any{filepath.Base(name)}, args...)...) }, page)
	}
}

// builtIn are variables that Grafana defines.
//
//trimtab:table names of Grafana's
var builtIn = []string{"__rate_interval", "__range", "__interval", "__value", "__data", "__field", "__all"}

// checkAsked holds the variables and data sources of one page.
func (m monitoring) checkAsked(say func(string, ...any), page map[string]any) {
	defined := slices.Clone(builtIn)
	templating, _ := page["templating"].(map[string]any)
	list, _ := templating["list"].([]any)
	for _, v := range list {
		variable, _ := v.(map[string]any)
		name, _ := variable["name"].(string)
		defined = append(defined, name)
		if variable["type"] == "datasource" && variable["query"] != m.sources.Datasources[0].Type {
			say("$%s is of data sources of type %v", name, variable["query"])
		}
	}
	walk(page, func(key string, value any) {
		if source, is := value.(map[string]any); is && key == "datasource" {
			uid, kind := source["uid"], source["type"]
			if own := uid == "-- Grafana --" && kind == "grafana"; !own && (kind != m.sources.Datasources[0].Type || uid != "${datasource}" && uid != m.sources.Datasources[0].UID) {
				say("asks the data source %v", source)
			}
		}
		text, _ := value.(string)
		for _, found := range regexp.MustCompile(`\$(?:\{(\w+)[^}]*\}|(\w+))`).FindAllStringSubmatch(text, -1) {
			if name := found[1] + found[2]; !slices.Contains(defined, name) {
				say("%q: $%s is not defined", text, name)
			}
		}
	})
}

// walk calls do with each value of a page, and its key, if it is in an object.
func walk(value any, do func(key string, value any)) {
	switch v := value.(type) {
	case map[string]any:
		for key, value := range v {
			do(key, value)
			walk(value, do)
		}
	case []any:
		for _, value := range v {
			do("", value)
			walk(value, do)
		}
	}
}

// TestProvisioning: compose's mounts, Grafana's provisioning and the pages fit each other.
func TestProvisioning(t *testing.T) {
	for _, p := range problems(t.Context(), ".") {
		t.Error(p)
	}
}

// TestProvisioningThatDoesNotFitIsTold: each thing that is held, broken.
func TestProvisioningThatDoesNotFitIsTold(t *testing.T) {
	for _, tt := range []struct{ file, old, broken, told string }{
		{"compose/compose.yaml", "network_mode: host\n    environment", "network: host\n    environment", "services.grafana.network"},
		{"compose/compose.yaml", "image: grafana/grafana:11.4.0", "image: grafana/grafana", "has no version"},
		{"compose/compose.yaml", "- grafana:/var", "- graphana:/var", "undefined volume graphana"},
		{"compose/compose.yaml", "127.0.0.1:9090", "127.0.0.1:9091", "Prometheus listens"},
		{"compose/compose.yaml", "restart: unless-stopped", "restart: [always]", "services.prometheus.restart must be a string"},
		{"compose/compose.yaml", "../alerts/trimtab.rules.yml", "../alerts/rules.yml", "no such file"},
		{"compose/compose.yaml", "../grafana:/var/lib/grafana/dashboards", "../grafana:/var/lib/grafana/boards", "the provider's folder"},
		{"compose/compose.yaml", "../grafana:/var", "../alerts:/var", "the provider's folder"},
		{"compose/compose.yaml", ":/etc/grafana/provisioning", ":/etc/grafana/provision", "Grafana looks into"},
		{"compose/compose.yaml", "network_mode: host\n    environment", "environment", "is not the same for both"},
		{"compose/provisioning/datasources/prometheus.yaml", "isDefault", "default", "not found in type"},
		{"compose/provisioning/datasources/prometheus.yaml", "type: prometheus", "type: loki", "the data source is"},
		{"compose/provisioning/dashboards/trimtab.yaml", "path: /var/lib/grafana/dashboards", "path: /etc/dashboards", "the provider's folder"},
		{"compose/provisioning/dashboards/trimtab.yaml", "type: file", "type: url", "providers: "},
		{"grafana/trimtab.json", `"uid": "${datasource}"`, `"uid": "P1809F7CD0C75ACF3"`, "asks the data source"},
		{"grafana/trimtab.json", `"uid": "-- Grafana --"`, `"uid": "-- Graphana --"`, "asks the data source"},
		{"grafana/trimtab-job.json", `"container:$container"`, `"container:$job"`, "$job is not defined"},
		{"grafana/trimtab.json", `"name": "team"`, `"name": "teams"`, "$team is not defined"},
		{"grafana/trimtab.json", `"query": "prometheus"`, `"query": "loki"`, "is of data sources of type"},
		{"grafana/trimtab-job.json", `"uid": "trimtab-job"`, `"uid": "trimtab-fleet"`, "its uid is"},
		{"grafana/trimtab-job.json", `"uid": "trimtab-job"`, `"id": 7, "uid": "trimtab-job"`, "the database's"},
	} {
		root := t.TempDir()
		for _, dir := range []string{"compose", "grafana", "alerts"} {
			if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(root, tt.file)
		text := read(t, file)
		if !strings.Contains(text, tt.old) {
			t.Errorf("%s has no %q", tt.file, tt.old)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(text, tt.old, tt.broken, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(problems(t.Context(), root), "\n"); !strings.Contains(got, tt.told) {
			t.Errorf("%s with %q: %q, want %q", tt.file, tt.broken, got, tt.told)
		}
	}
}
