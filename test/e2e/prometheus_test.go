package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
)

// TestPrometheusAnswersOfADaemon: a real Prometheus scrapes a daemon that lends to a job beside one
// that holds a GPU idle, and lacks an engine and a part of a probe; it answers each query of the
// pages that packages bring. Its rules are quiet while all is well, and tell of a refused config and
// of a daemon that ended.
func TestPrometheusAnswersOfADaemon(t *testing.T) {
	address := promtest.FreeAddress(t)
	drop, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(drop, "metrics.yaml"), []byte(fmt.Sprintf("metrics: {listen: %q}\n", address)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rate"), nil, 0o600); err != nil { // where the folder of a socket would be
		t.Fatal(err)
	}
	node := gpuNode(t)
	idle := gpuJob(t, node, "observe", "--kernels", "20", "--kernel-us", "2000", "--sync", "blocking", "--pause-at", "20")
	j := job(t, "trimtab.mode=tune", "trimtab.team=vision")
	if err := j.Update(t.Context(), "--memory", "4g", "--memory-swap", "4g"); err != nil {
		t.Fatal(err)
	}
	p := promtest.Start(t, []string{address}, soon(t, "TrimtabDown", "ConfigRejected")) // first: what comes before a scrape is no increase
	d := daemon(t, daemontest.Options{Dir: dir, Args: []string{"--conf-dir", drop}, Env: node.Env(),
		Config: "gpu: {idleAfter: 5s}\ncontainerd: {enabled: true, address: /nonexistent/containerd.sock}\n"})
	until(t, d, j.Name, "a loan", changed)
	answersPages(t, p, d, address, j.Name, idle.Name)
	p.Until(t, "no alert of a host that is well", func() (string, bool) { // a scrape that came late fires TrimtabDown, for as long as that
		got, err := p.Firing(t.Context())
		return fmt.Sprint(got, err), err == nil && len(got) == 0
	})
	if err := os.WriteFile(filepath.Join(drop, "bad.yaml"), []byte("mode: everything\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	fires(t, p, "ConfigRejected")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	fires(t, p, "TrimtabDown")
}

// answersPages asks all that the packaged pages ask, of a host and of a container. What is asked of
// devices is asked of their holder. All are asked again until each has answered once: some tell of what a loan
// was for as long as it stands, or of the last minutes, and how long others take is the machine's.
func answersPages(t *testing.T, p *promtest.Server, d *daemontest.Daemon, address, name, holder string) {
	t.Helper()
	pages, err := filepath.Glob("../../packaging/grafana/*.json")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	open := map[string]string{} // where each expression comes from
	for _, file := range pages {
		ofHolder := promtest.Panels(t, file, address, holder)
		for i, panel := range promtest.Panels(t, file, address, name) {
			for k, expr := range panel.Exprs {
				if strings.Contains(expr, "_gpu_") {
					expr = ofHolder[i].Exprs[k]
				}
				open[expr] = file + ": " + panel.Title
			}
		}
	}
	if len(open) == 0 {
		t.Fatal("the pages ask nothing")
	}
	p.Until(t, "an answer to each query of the pages", func() (string, bool) {
		for expr, where := range open {
			got, err := p.Query(t.Context(), expr)
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if len(got) > 0 || unmeasured(t, d, name, expr) || unrefused(t, p, address, expr) {
				delete(open, expr)
			}
		}
		return fmt.Sprintf("no answer to %q", open), len(open) == 0
	})
}

func fires(t *testing.T, p *promtest.Server, alert string) {
	t.Helper()
	p.Until(t, alert, func() (string, bool) {
		got, err := p.Firing(t.Context())
		return fmt.Sprint(got, err), got[alert]
	})
}

// unmeasured reports whether a query asks for one of the two that the daemon may not know of this
// job: how noisy the machine is decides.
func unmeasured(t *testing.T, d *daemontest.Daemon, name, expr string) bool {
	t.Helper()
	c, err := d.Container(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(expr, "speedup") && (!c.HasGain || c.Doubt) || strings.Contains(expr, "working_set") && !c.Paging.Enough
}

// unrefused reports whether a query asks what was refused lately, and its counters answer: nothing was.
func unrefused(t *testing.T, p *promtest.Server, address, expr string) bool {
	t.Helper()
	if !strings.Contains(expr, "trimtab_rejections_total") {
		return false
	}
	got, err := p.Query(t.Context(), fmt.Sprintf("trimtab_rejections_total{instance=%q}", address))
	return err == nil && len(got) > 0
}

// soon is a file of the packaged rules, of which some fire after a second.
func soon(t *testing.T, alerts ...string) string {
	t.Helper()
	rules, err := os.ReadFile("../../packaging/alerts/trimtab.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alerts {
		wait := regexp.MustCompile(`(alert: ` + alert + `\n(?: {8,}.*\n)*? +for: )\S+`)
		if !wait.Match(rules) {
			t.Fatalf("%s waits for nothing", alert)
		}
		rules = wait.ReplaceAll(rules, []byte("${1}1s"))
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
