package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/metrics"
	"github.com/trimtab/trimtab/tuner/state"
)

// series is a counter of one host, and by how much it grew.
type series struct {
	name     string
	labels   map[string]string
	increase float64
}

// twoHosts count what two teams did. Two jobs scrape the second.
func twoHosts() (all []series) {
	add := func(name string, increase float64, labels ...string) {
		s := series{name: name, labels: map[string]string{}, increase: increase}
		for i := 0; i < len(labels); i += 2 {
			s.labels[labels[i]] = labels[i+1]
		}
		s.labels["job"] = "trimtab"
		all = append(all, s)
		if s.labels["instance"] == "b:9477" {
			s.labels = maps.Clone(s.labels)
			s.labels["job"] = "nodes"
			all = append(all, s)
		}
	}
	for i, host := range []string{"a:9477", "b:9477"} {
		n := float64(i + 1)
		add("trimtab_observed_seconds_total", 3000*n, "instance", host)
		for _, team := range []string{"vision", ""} {
			for cause, seconds := range map[string]float64{"compute": 600, "idle": 120, "input_throttled": 90, "not_known": 12} {
				add("trimtab_team_held_seconds_total", n*seconds, "instance", host, "team", team, "resource", "gpu", "cause", cause)
				add("trimtab_team_held_seconds_total", n*2*seconds, "instance", host, "team", team, "resource", "cpu", "cause", cause)
			}
			add("trimtab_team_actionable_seconds_total", n*30, "instance", host, "team", team, "resource", "gpu", "cause", "input_throttled")
			add("trimtab_team_lent_cpu_seconds_total", n*7, "instance", host, "team", team)
			add("trimtab_team_given_cpu_seconds_total", n*5, "instance", host, "team", team)
		}
		add("trimtab_team_proven_seconds_total", n*300, "instance", host, "team", "vision", "resource", "gpu", "cause", "input_throttled")
		add("trimtab_team_saved_seconds_total", n*150, "instance", host, "team", "vision", "resource", "gpu", "cause", "input_throttled")
		add("trimtab_team_trial_seconds_total", n*40, "instance", host, "team", "vision", "resource", "cpu", "cause", "not_known")
		add("trimtab_team_trial_lost_seconds_total", n*10, "instance", host, "team", "vision", "resource", "cpu", "cause", "not_known")
	}
	return all
}

// prometheus answers the queries of this package as Prometheus does, of what grew.
func prometheus(t *testing.T, all []series, span int) *httptest.Server {
	sum := regexp.MustCompile(`^sum (?:by \(([a-z, ]+)\) )?\(max by \(([a-z, ]+)\) \(increase\((\w+)\[(\d+)s\]\)\)\)$`)
	count := regexp.MustCompile(`^count \(count by \(instance\) \(last_over_time\((\w+)\[(\d+)s\]\)\)\)$`)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /prefix/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		query, by, inner, metric, seconds, counts := r.FormValue("query"), []string(nil), []string(nil), "", "", false
		if m := sum.FindStringSubmatch(query); m != nil {
			inner, metric, seconds = strings.Split(m[2], ", "), m[3], m[4]
			if m[1] != "" {
				by = strings.Split(m[1], ", ")
			}
		} else if m := count.FindStringSubmatch(query); m != nil {
			metric, seconds, by, inner, counts = m[1], m[2], []string{"instance"}, []string{"instance"}, true
		} else {
			t.Errorf("query %q", query)
		}
		if user, password, _ := r.BasicAuth(); seconds != fmt.Sprint(span) || user != "pay" || password != "master" {
			t.Errorf("query %q by %q %q", query, user, password)
		}
		most := map[string]series{} // max by
		for _, x := range all {
			if key := labelsOf(t, x, inner); x.name == metric && most[key].increase <= x.increase {
				most[key] = x
			}
		}
		out := map[string]float64{}
		for _, x := range most {
			out[labelsOf(t, x, by)] += x.increase
		}
		var results []string
		for key, v := range out {
			results = append(results, fmt.Sprintf(`{"metric":%s,"value":[1767366000.5,"%g"]}`, key, v))
		}
		if counts {
			results = []string{fmt.Sprintf(`{"metric":{},"value":[1767366000.5,"%d"]}`, len(out))}
		}
		fmt.Fprintf(w, `{"status":"success","warnings":["a store is missing"],"data":{"resultType":"vector","result":[%s]}}`, strings.Join(results, ","))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// labelsOf are some labels of a series, as JSON.
func labelsOf(t *testing.T, s series, names []string) string {
	labels := map[string]string{}
	for _, l := range names {
		labels[l] = s.labels[l]
	}
	key, err := json.Marshal(labels)
	if err != nil {
		t.Error(err)
	}
	return string(key)
}

// wantTwoHosts checks a report of twoHosts, to a share of what Prometheus extrapolates.
func wantTwoHosts(t *testing.T, r state.Report, share float64) {
	t.Helper()
	if len(r.Groups) != 2 || r.Hosts != 2 {
		t.Fatalf("%d groups of %d hosts: %+v", len(r.Groups), r.Hosts, r)
	}
	vision := r.Groups[0]
	if r.Groups[0].Name != "vision" {
		vision = r.Groups[1]
	}
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"held", vision.GPU.Held, 3 * 822}, {"idle", vision.GPU.Idle, 3 * 120}, {"stalled", vision.GPU.Stalled, 3 * 90}, {"actionable", vision.GPU.Actionable, 3 * 30},
		{"not known", vision.GPU.NotKnown, 3 * 12}, {"saved", vision.GPU.Saved, 3 * 150}, {"proven", vision.GPU.Proven, 3 * 300}, {"CPUs", vision.CPU.Held, 3 * 1644},
		{"lost", vision.CPU.Lost, 3 * 10}, {"tried", vision.CPU.Tried, 3 * 40}, {"lent", vision.LentCPUSeconds, 3 * 7}, {"given", vision.GivenCPUSeconds, 3 * 5}, {"total", r.Total.GPU.Held, 2 * 3 * 822},
		{"all lent", r.Total.LentCPUSeconds, 2 * 3 * 7}, {"computing", r.Total.GPU.Causes["compute"], 2 * 3 * 600}, {"observed", r.ObservedSeconds, 9000},
	} {
		if x.got < x.want*(1-share) || x.got > x.want*(1+share) {
			t.Errorf("%s: %g s, want %g", x.name, x.got, x.want)
		}
	}
}

func TestFleetAddsUp(t *testing.T) {
	now := time.Unix(1_767_366_000, 0)
	server := prometheus(t, twoHosts(), 7*24*3600)
	at, err := ParseURL(strings.Replace(server.URL, "http://", "http://pay:master@", 1) + "/prefix/")
	if err != nil {
		t.Fatal(err)
	}
	byTeam, warnings, err := Report(t.Context(), at, account.ByTeam, now.Add(-7*24*time.Hour), now)
	if err != nil || len(warnings) == 0 || warnings[0] != "a store is missing" {
		t.Fatal(warnings, err)
	}
	wantTwoHosts(t, byTeam, 1e-9)
	if byTeam.UnobservedSeconds != 2*7*24*3600-9000 {
		t.Errorf("not observed %g s", byTeam.UnobservedSeconds)
	}
	byCause, _, err := Report(t.Context(), at, account.ByCause, now.Add(-7*24*time.Hour), now)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(byTeam.Total, byCause.Total); d != "" {
		t.Error(d)
	}
	var names []string
	for _, g := range byCause.Groups {
		names = append(names, g.Name)
	}
	if got := strings.Join(names, " "); got != "compute idle input_throttled not_known given lent" {
		t.Errorf("causes %s", got)
	}
	if _, _, err := Report(t.Context(), at, account.ByImage, now.Add(-time.Hour), now); err == nil || !strings.Contains(err.Error(), "team, cause") {
		t.Errorf("by image: %v", err)
	}
	if _, _, err := Report(t.Context(), at, account.ByTeam, now, now); err == nil {
		t.Error("of no time: no error")
	}
}

func TestWhatIsNotPrometheus(t *testing.T) {
	now := time.Unix(1_767_366_000, 0)
	for name, tc := range map[string]struct {
		status       int
		answer, want string
	}{
		"nothing scraped": {200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, "has nothing of trimtab"},
		"an error":        {422, `{"status":"error","errorType":"execution","error":"query processing would load too many samples"}`, "too many samples"},
		"a login page":    {200, `<html>`, "not that of Prometheus"},
		"not found":       {404, `404 page not found`, "404"},
		"a matrix":        {200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, "matrix"},
		"odd values":      {200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]},{"metric":{},"value":[1,"-5"]},{"metric":{},"value":[1,"+Inf"]}]}}`, "has nothing of trimtab"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			fmt.Fprint(w, tc.answer)
		}))
		at, err := ParseURL(strings.Replace(server.URL, "http://", "http://pay:master@", 1))
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = Report(t.Context(), at, account.ByTeam, now.Add(-time.Hour), now)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "master") {
			t.Errorf("%s: %v, want %q and no password", name, err, tc.want)
		}
		server.Close()
	}
	for _, text := range []string{"", "prometheus:9090", "ftp://x", "http://", "http://a b", "file:///etc/passwd"} {
		if _, err := ParseURL(text); err == nil {
			t.Errorf("%q is taken for a URL of Prometheus", text)
		}
	}
}

// What is asked for is what daemons serve, by the labels that it is added up by.
func TestDaemonsServeWhatIsAskedFor(t *testing.T) {
	served := map[string]string{}
	for _, f := range metrics.Families() {
		served[f.Name] = fmt.Sprint(f.Kind, f.Labels)
	}
	want := map[string]string{"trimtab_observed_seconds_total": "counter[]", "trimtab_team_lent_cpu_seconds_total": "counter[team]", "trimtab_team_given_cpu_seconds_total": "counter[team]"}
	for _, x := range terms() {
		want[x.metric] = "counter[team resource cause]"
	}
	for name, kind := range want {
		if served[name] != kind {
			t.Errorf("%s is %q, want %q", name, served[name], kind)
		}
	}
}
