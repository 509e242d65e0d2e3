package config

import (
	"encoding"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/enrolment"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestExampleIsTheDefaults(t *testing.T) {
	path := write(t, t.TempDir(), "trimtab.yaml", Example)
	got, warnings, err := Load(path, "")
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %v, error %v", warnings, err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("the example differs from the defaults (-default +example):\n%s", diff)
	}
	for _, key := range keysWithin(reflect.TypeFor[Config]()) {
		if _, gone := Retired()[key]; !gone && !strings.Contains(Example, key+":") {
			t.Errorf("the example does not name %s", key)
		}
	}
}

// keysWithin lists the last words of all keys, match rules included.
func keysWithin(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		out = append(out, f.Tag.Get("yaml"))
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !reflect.PointerTo(inner).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			out = append(out, keysWithin(inner)...)
		}
	}
	return out
}

func TestExampleRulesLoad(t *testing.T) {
	_, rules, ok := strings.Cut(Example, "For example:\n")
	if !ok {
		t.Fatal("the example has no rules in its comments")
	}
	rules, _, _ = strings.Cut(rules, "match: []")
	var text strings.Builder
	for line := range strings.Lines(rules) {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "), "  "))
	}
	got, _, err := Load(write(t, t.TempDir(), "rules.yaml", text.String()), "")
	if err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	if len(got.Match) != 3 || got.Match[0].Memory.Max != 16<<30 || got.Match[2].Label["com.example.tier"] != "prod-*" {
		t.Errorf("rules: %+v", got.Match)
	}
}

func TestDropInsOverrideAndAppend(t *testing.T) {
	dir := t.TempDir()
	main := write(t, dir, "trimtab.yaml", "mode: observe\nmaxTuned: 2\nreserve: {cpus: 0.5}\nmatch:\n- {name: a, mode: tune}\n")
	drop := filepath.Join(dir, "conf.d")
	write(t, drop, "20-later.yaml", "maxTuned: 4\nmatch:\n- {name: c, mode: off}\n")
	write(t, drop, "10-first.yaml", "maxTuned: 3\nmode: tune\nknobs: [memory]\nmatch:\n- {name: b, mode: tune}\n")
	write(t, drop, "90-empty.yaml", "# nothing\n")
	write(t, drop, "notes.txt", "not: yaml: at: all")
	got, warnings, err := Load(main, drop)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "notes.txt") {
		t.Errorf("warnings %q, want one about notes.txt", warnings)
	}
	want := Default()
	want.Mode, want.MaxTuned, want.Knobs = policies.ModeTune, 4, []string{"memory"}
	want.Reserve.CPUs = CPUAmount{CPUs: 0.5}
	want.Match = []enrolment.Rule{{Name: "a", Mode: "tune"}, {Name: "b", Mode: "tune"}, {Name: "c", Mode: "off"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAbsentFileIsTheDefaults(t *testing.T) {
	got, warnings, err := Load(filepath.Join(t.TempDir(), "none.yaml"), filepath.Join(t.TempDir(), "none.d"))
	if err != nil || len(warnings) != 1 {
		t.Fatalf("warnings %v, error %v", warnings, err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Error(diff)
	}
}

// What others than root could change is warned of: a file, or the folder to which they could add one.
func TestWhatOthersCouldChangeIsWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		give func(file, dropDir string) error
		want string
	}{
		"nothing":           {func(string, string) error { return nil }, ""},
		"writable":          {func(file, _ string) error { return os.Chmod(file, 0o666) }, "trimtab.yaml can be written by others (mode 0666): chmod go-w it"},
		"another user's":    {func(file, _ string) error { return os.Chown(file, 1234, -1) }, "trimtab.yaml is user 1234's, who can change it: chown root it"},
		"of another's, too": {func(_, dropDir string) error { return os.Chown(filepath.Join(dropDir, "a.yaml"), 1234, -1) }, "a.yaml is user 1234's, who can change it: chown root it"},
		"a writable folder": {func(_, dropDir string) error { return os.Chmod(dropDir, 0o775) }, "trimtab.d can be written by others (mode 0775): chmod go-w it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			dropDir := filepath.Join(dir, "trimtab.d")
			if err := os.Mkdir(dropDir, 0o755); err != nil {
				t.Fatal(err)
			}
			file := write(t, dir, "trimtab.yaml", "maxTuned: 1\n")
			write(t, dropDir, "a.yaml", "maxTuned: 2\n")
			if err := c.give(file, dropDir); errors.Is(err, os.ErrPermission) {
				t.Skip("needs root: gives a file to another user")
			} else if err != nil {
				t.Fatal(err)
			}
			_, warnings, err := Load(file, dropDir)
			got := strings.Join(warnings, "")
			if err != nil || (got == "") != (c.want == "") || !strings.HasSuffix(got, c.want) {
				t.Errorf("warnings %q, error %v; want %q", warnings, err, c.want)
			}
		})
	}
}

// A token or a header that goes in the open over a network is warned of.
func TestOpenTokensAreWarnedOf(t *testing.T) {
	for text, want := range map[string]string{
		"webhook: {url: 'http://x.example/a', tokenFile: /t}":      "notify.webhook.url: tokens, passwords and headers go over the network as they are: use https",
		"otlp: {url: 'http://10.0.0.1:4318', headers: {X-Key: a}}": "notify.otlp.url",
		"grafana: {url: 'http://me:s3cret@x.example'}":             "notify.grafana.url",
		"grafana: {url: 'https://x.example', tokenFile: /t}":       "",
		"webhook: {url: 'http://127.0.0.1:1/a', tokenFile: /t}":    "",
		"otlp: {url: 'http://x.example:4318'}":                     "",
	} {
		_, warnings, err := Load(write(t, t.TempDir(), "trimtab.yaml", "notify:\n  "+text+"\n"), "")
		if err != nil || (len(warnings) == 1) != (want != "") || want != "" && !strings.Contains(warnings[0], want) {
			t.Errorf("%s: %q, %v", text, warnings, err)
		}
	}
	open := "{url: 'http://x.example', tokenFile: /t}"
	three := write(t, t.TempDir(), "trimtab.yaml", "notify: {webhook: "+open+", otlp: "+open+", grafana: "+open+"}\n")
	for range 20 { // the same file says the same, in the same order
		_, warnings, err := Load(three, "")
		if err != nil || len(warnings) != 3 || !strings.Contains(warnings[0], "grafana") || !strings.Contains(warnings[1], "otlp") {
			t.Fatalf("%q, %v", warnings, err)
		}
	}
}

// Each line of want must stand in the error, in any order, and the number of
// problems must fit: all at once, none twice.
func TestProblemsNamePlaceKeyAndWhatIsAllowed(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"unknown key":               {"mode: tune\napi:\n  soket: /x\n", []string{`trimtab.yaml:3: api.soket: unknown key; did you mean "socket"?`}},
		"unknown key, nothing near": {"log:\n  verbosity: 3\n", []string{`trimtab.yaml:2: log.verbosity: unknown key; allowed are level`}},
		"unknown in a rule":         {"match:\n- name: a\n  allow: {gpu: 1}\n", []string{`trimtab.yaml:3: match[1].allow.gpu: unknown key; did you mean "cpu"?`}},
		"many types at once": {"maxTuned: many\ntick: soon\nknobs: cpu\noverhead: 3\nmatch: {name: a}\nreserve: {cpus: 100%, memory: lots}\n", []string{
			`trimtab.yaml:1: maxTuned: "many" is not a whole number`,
			`trimtab.yaml:2: tick: "soon" is not a time; allowed are times such as 500ms`,
			`trimtab.yaml:3: knobs: "cpu" is not a list of texts`,
			`trimtab.yaml:4: overhead: want a block of keys; allowed are cpu, memory, maps, perContainer`,
			`trimtab.yaml:5: match: want a list, each item after a dash`,
			`trimtab.yaml:6: reserve.cpus: "100%" is not a share; allowed are 0% to below 100%`,
			`trimtab.yaml:6: reserve.memory: "lots" is not an amount of memory`,
		}},
		"many values at once": {"mode: on\nwatch: some\ntick: 1ms\nmaxTuned: -1\nmetrics: {listen: here}\nmatch:\n- mode: tune\n- name: a\n  cpu: {min: 4, max: 2}\n  class: gold\n", []string{
			`trimtab.yaml:1: mode: "on" is not known; allowed are [off observe tune]`,
			`trimtab.yaml:2: watch: "some" is not known; allowed are [gpu labelled all]`,
			`trimtab.yaml:3: tick: 1ms is out of range; allowed are 200ms to 10s`,
			`trimtab.yaml:4: maxTuned: -1 is below 0`,
			`trimtab.yaml:5: metrics.listen: "here" is not an address`,
			`trimtab.yaml:7: match[1]: fits everything`,
			`trimtab.yaml:9: match[2].cpu: min 4 is above max 2`,
			`trimtab.yaml:10: match[2].class: "gold" is not known; allowed are [guaranteed best-effort]`,
		}},
		"page": {"page:\n  listen: everywhere\n  webConfig: web.yml\n  hosts: [node7, 'http://node7']\n", []string{
			`trimtab.yaml:2: page.listen: "everywhere" is not an address; allowed are HOST:PORT such as 127.0.0.1:9478`,
			`trimtab.yaml:3: page.webConfig: "web.yml" is not an absolute path`,
			`trimtab.yaml:4: page.hosts[2]: "http://node7" is not the name of a host`,
		}},
		"page on the metrics' port": {"page: {listen: 127.0.0.1:9477}\n", []string{`page.listen: "127.0.0.1:9477" is metrics.listen too`}},
		"page on the API's socket":  {"page: {listen: 'unix:/run/trimtab/trimtab.sock'}\n", []string{`page.listen: "unix:/run/trimtab/trimtab.sock" is api.socket too`}},
		"notify": {"notify:\n  webhook:\n    url: 'ftp://s3cret@x'\n    events: [kept, kpt]\n    tokenFile: token\n  script: {path: bin/x, timeout: 1h}\n  otlp: {metricsEvery: 1s}\n  grafana: {perMinute: 0}\n", []string{
			`trimtab.yaml:3: notify.webhook.url: is not a URL; allowed are such as https://host.example.com:8443/path`,
			`trimtab.yaml:4: notify.webhook.events[2]: is not an event; did you mean "kept"?`,
			`trimtab.yaml:5: notify.webhook.tokenFile: is not an absolute path: name the file that holds the token`,
			`trimtab.yaml:6: notify.script.path: is not an absolute path without . and ..`,
			`trimtab.yaml:6: notify.script.timeout: 1h0m0s is out of range; allowed are 1s to 5m0s`,
			`trimtab.yaml:7: notify.otlp.metricsEvery: 1s is out of range; allowed are 0s (none) and 5s to 1h`,
			`trimtab.yaml:8: notify.grafana.perMinute: 0 is out of range`,
		}},
		"idle too soon":     {"gpu: {idleAfter: 1s}\n", []string{`trimtab.yaml:1: gpu.idleAfter: 1s is out of range; allowed are 5s to 24h0m0s`}},
		"set twice":         {"maxTuned: 1\nmaxTuned: 2\n", []string{`trimtab.yaml:2: maxTuned: set twice, first in line 1`}},
		"not yaml":          {"mode: [tune\n", []string{`trimtab.yaml: line`}},
		"two documents":     {"maxTuned: 1\n---\nmaxTuned: 2\n", []string{`more than one document`}},
		"a list for a text": {"policy: [knee]\n", []string{`trimtab.yaml:1: policy: a list is not a text`}},
		"knob family":       {"knobs: [cpu, disk]\n", []string{`trimtab.yaml:1: knobs: "cpu, disk": no such knob: disk; allowed are cpu, cpuset, memory, gpu`}},
		"no engine":         {"docker: {enabled: false}\n", []string{"docker.enabled: is false, and so is containerd.enabled"}},
		"containerd":        {"containerd: {enabled: true, address: run/c.sock, namespaces: [moby, a..b, default]}\n", []string{`containerd.address: "run/c.sock" is not an absolute path`, `containerd.namespaces[1]: "moby" is Docker's`, `containerd.namespaces[2]: "a..b" is not a namespace`}},
		"tcp docker":        {"docker: {host: tcp://1.2.3.4:2375}\n", []string{`docker.host: "tcp://1.2.3.4:2375" is not a Unix socket`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Load(write(t, t.TempDir(), "trimtab.yaml", tt.text), "")
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("not told: %s", want)
				}
			}
			if len(lines) != len(tt.want) {
				t.Errorf("%d problems, want %d:\n%s", len(lines), len(tt.want), err)
			}
		})
	}
}

// A secret that was written where its file is named, or as what a key does not take, is not repeated.
func TestProblemsRepeatNoSecret(t *testing.T) {
	for text, want := range map[string]string{
		"grafana: {tokenFile: glsa_s3cret}":                  "notify.grafana.tokenFile: is not an absolute path: name the file that holds the token",
		"otlp: {caFile: s3cret}":                             "notify.otlp.caFile: is not an absolute path",
		"webhook: {headers: 'Authorization: Bearer s3cret'}": "notify.webhook.headers: is not a block of Name: value",
		"webhook: {headers: [s3cret]}":                       "notify.webhook.headers: is not a block of Name: value",
		"webhook: {headers: {X-Key: [s3cret]}}":              "notify.webhook.headers: is not a block of Name: value",
		"webhook: {headers: {'Bearer s3cret': x}}":           "notify.webhook.headers: has what no header may be",
		`webhook: {headers: {X-Key: "s3cret\nX: y"}}`:        "notify.webhook.headers: has what no header may be",
		"webhook: 'https://x.example/s3cret'":                "notify.webhook: want a block of keys",
		"webhook: {url: [s3cret]}":                           "notify.webhook.url: is not a text",
		"webhook: {url: 's3cret'}":                           "notify.webhook.url: is not a URL",
		"webhook: {events: s3cret}":                          "notify.webhook.events: is not a list of events",
		"webhook: {events: [s3cret]}":                        "notify.webhook.events[1]: is not an event; allowed are kept, reverted,",
		"webhook: {perMinute: s3cret}":                       "notify.webhook.perMinute: is not a whole number",
		"otlp: {metricsEvery: s3cret}":                       "notify.otlp.metricsEvery: is not a time such as 500ms",
		"script: {path: /usr/lib/s3cret/../on-event}":        "notify.script.path: is not an absolute path without . and ..",
		"script: s3cret":                                     "notify.script: want a block of keys",
		"webhook: {headers: {Authorization: s3cret}":         "",
	} {
		_, _, err := Load(write(t, t.TempDir(), "trimtab.yaml", "notify:\n  "+text+"\n"), "")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestProblemsOfDropInsNameTheirFile(t *testing.T) {
	dir := t.TempDir()
	main := write(t, dir, "trimtab.yaml", "match:\n- {name: a}\n")
	drop := filepath.Join(dir, "conf.d")
	write(t, drop, "a.yaml", "\nmatch:\n- {name: b, importance: 11}\n")
	_, _, err := Load(main, drop)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(drop, "a.yaml")+":3: match[2].importance: 11 is out of range") {
		t.Errorf("got %v", err)
	}
}

func TestAmounts(t *testing.T) {
	text := "reserve: {cpus: 0.5, memory: 2GiB}\nhistory: {maxAge: 7d}\nrecord: {ring: 0}\ntick: 500ms\n"
	got, _, err := Load(write(t, t.TempDir(), "c.yaml", text), "")
	if err != nil {
		t.Fatal(err)
	}
	if got.Reserve.CPUs.Of(8) != 0.5 || got.Reserve.Memory.Of(1<<40) != 2<<30 || got.Record.Ring != 0 ||
		got.History.MaxAge.D() != 7*24*time.Hour || got.Tick.D() != 500*time.Millisecond {
		t.Errorf("%+v", got)
	}
	if d := Default(); d.Reserve.CPUs.Of(8) != 0.8 {
		t.Errorf("10%% of 8 CPUs is %v", d.Reserve.CPUs.Of(8))
	}
}

// A file of the version before loads as it did, and each old name is told with its new one.
func TestOldNames(t *testing.T) {
	text := "observe: all\nramp: 3\nheal: true\nbudget: {cpu: 1, job: 0.01}\nthresholds: {steal: 0.1}\nidle: {after: 45s}\n"
	got, warnings, err := Load(write(t, t.TempDir(), "c.yaml", text), "")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Watch, want.MaxTuned, want.RepairGPUAccess = enrolment.ObserveAll, 3, true
	want.Overhead.CPU, want.Overhead.PerContainer = 1, 0.01
	want.Thresholds.MaxExcessSteal, want.GPU.IdleAfter = 0.1, Duration(45*time.Second)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	told := []string{"c.yaml:1: observe is watch now", "c.yaml:2: ramp is maxTuned now", "c.yaml:3: heal is repairGPUAccess now", "c.yaml:4: budget is overhead now",
		"c.yaml:4: budget.job is overhead.perContainer now", "c.yaml:5: thresholds.steal is thresholds.maxExcessSteal now", "c.yaml:6: idle.after is gpu.idleAfter now"}
	for i, want := range told {
		if i >= len(warnings) || !strings.Contains(warnings[i], want) {
			t.Errorf("not told: %s", want)
		}
	}
	if len(warnings) != len(told) {
		t.Errorf("warnings %q", warnings)
	}
	for text, want := range map[string]string{
		"repairGPUAccess: false\nheal: true\n":                     "c.yaml:2: repairGPUAccess: set twice, first in line 1",
		"overhead: {cpu: 1}\nbudget: {cpu: 2}\n":                   "c.yaml:2: overhead.cpu: set twice, first in line 1",
		"gpu: {idleAfter: 10s}\nidle: {after: 20s}\n":              "c.yaml:2: gpu.idleAfter: set twice, first in line 1",
		"gpu: {signal: true}\nidle: {after: 20s}\n":                "",
		"overhead: {cpu: 1}\nbudget: {job: 0.01, memory: 64MiB}\n": "",
	} {
		_, _, err := Load(write(t, t.TempDir(), "c.yaml", text), "")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	_, _, err = Load(write(t, t.TempDir(), "c.yaml", "ramp: -1\nidle: {after: 1s}\n"), "")
	if err == nil || !strings.Contains(err.Error(), "c.yaml:1: maxTuned: -1 is below 0") || !strings.Contains(err.Error(), "c.yaml:2: gpu.idleAfter: 1s is out of range") {
		t.Errorf("a bad value under an old name: %v", err)
	}
}

func TestContainerdAlone(t *testing.T) {
	text := "docker: {enabled: false}\ncontainerd: {enabled: true, namespaces: [moby, k8s.io, a_b-1]}\n"
	got, _, err := Load(write(t, t.TempDir(), "c.yaml", text), "")
	if err != nil || got.Docker.Enabled || !got.Containerd.Enabled || len(got.Containerd.Namespaces) != 3 ||
		got.Containerd.Address != "/run/containerd/containerd.sock" {
		t.Errorf("%+v, %v", got.Containerd, err)
	}
}

func TestRulesCarryEverything(t *testing.T) {
	c, _, err := Load(write(t, t.TempDir(), "trimtab.yaml", `match: [{image: i, name: n, compose: c, label: {k: v}, mode: tune, knobs: [cpu], team: t, job: j, class: best-effort, importance: 3, loans: off,
  cpu: {min: 1, max: 2}, memory: {min: 3, max: 4KiB}, allow: {modes: [tune], knobs: [memory], cpu: {min: 5, max: 6}, memory: {min: 7, max: 8},
  importance: {min: 1, max: 9}, loans: proven}}]`), "")
	if err != nil {
		t.Fatal(err)
	}
	want := enrolment.Rules{Mode: "tune", Observe: "gpu", Knobs: []string{"cpu"}, Loans: "free", Match: []enrolment.Rule{{Image: "i", Name: "n", Compose: "c",
		Label: map[string]string{"k": "v"}, Mode: "tune", Knobs: []string{"cpu"}, Team: "t", Job: "j", Class: "best-effort", Importance: 3, Loans: "off",
		CPU: enrolment.Range[float64]{Min: 1, Max: 2}, Memory: enrolment.Range[enrolment.Bytes]{Min: 3, Max: 4096},
		Allow: enrolment.Allow{Modes: []policies.Mode{"tune"}, Knobs: []string{"memory"}, CPU: enrolment.Range[float64]{Min: 5, Max: 6},
			Memory: enrolment.Range[enrolment.Bytes]{Min: 7, Max: 8}, Importance: enrolment.Range[int]{Min: 1, Max: 9}, Loans: "proven"}}}}
	if diff := cmp.Diff(want, c.Rules()); diff != "" {
		t.Error(diff)
	}
}

// FuzzLoad: no file makes Load panic, and what it accepts is valid.
func FuzzLoad(f *testing.F) {
	f.Add(Example)
	f.Add("match:\n- {name: a, cpu: {min: 1}}\n")
	f.Add("a: &a [*a]\n")
	f.Add("mode: &m tune\npolicy: *m\n")
	f.Add("<<: {mode: off}\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "fuzz.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Skip(err)
		}
		if cfg, _, err := Load(path, ""); err == nil {
			if err := cfg.Validate(); err != nil {
				t.Errorf("accepted, yet %v", err)
			}
		}
	})
}

// A page that everybody may see is allowed, and said.
func TestOpenPageIsWarnedOf(t *testing.T) {
	for text, warned := range map[string]bool{
		"{listen: 0.0.0.0:9478}": true, "{listen: ':9478'}": true, "{listen: '[::]:9478'}": true, "{listen: '10.0.0.7:9478'}": true, "{listen: 'node7:9478'}": true,
		"{listen: 127.0.0.1:9478}": false, "{listen: '[::1]:9478'}": false, "{listen: localhost:9478}": false, "{listen: 'unix:/run/trimtab/page.sock'}": false,
		"{listen: 0.0.0.0:9478, webConfig: /etc/trimtab/web.yaml}": false, "{listen: ''}": false,
	} {
		_, warnings, err := Load(write(t, t.TempDir(), "trimtab.yaml", "page: "+text+"\n"), "")
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := len(warnings) == 1 && strings.Contains(warnings[0], "trimtab.yaml:1: page.listen: whoever reaches"); got != warned || !warned && len(warnings) > 0 {
			t.Errorf("%s: %q", text, warnings)
		}
	}
}

// Validate returns all problems joined, without the places in files that Load
// adds; nil if there is none.
func (c Config) Validate() error {
	var errs []error
	for _, p := range c.problems() {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}
