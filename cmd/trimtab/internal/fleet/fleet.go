// Package fleet reads a report of many hosts from Prometheus: the counters of each daemon's
// metrics, added up by PromQL. The terms are those of a host's own report.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/common/model"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/state"
)

// maxAnswerBytes bounds an answer: 100 teams with all causes are below 1 MiB.
const maxAnswerBytes = 64 << 20

// ParseURL reads where Prometheus is, or what speaks its HTTP API: what stands before /api/v1. A user
// and password in it are sent. Errors name what is wrong with it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("no URL of Prometheus: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of Prometheus: want one such as http://prometheus:9090", u.Redacted())
	}
	return u, nil
}

// term is a counter of a team, a resource and a cause, and where it goes.
type term struct {
	metric string
	add    func(u *state.TeamUse, seconds float64)
}

func terms() []term {
	return []term{
		{"trimtab_team_held_seconds_total", func(u *state.TeamUse, s float64) { u.Held = s }},
		{"trimtab_team_actionable_seconds_total", func(u *state.TeamUse, s float64) { u.Actionable = s }},
		{"trimtab_team_proven_seconds_total", func(u *state.TeamUse, s float64) { u.Proven = s }},
		{"trimtab_team_saved_seconds_total", func(u *state.TeamUse, s float64) { u.Saved = s }},
		{"trimtab_team_trial_seconds_total", func(u *state.TeamUse, s float64) { u.Tried = s }},
		{"trimtab_team_trial_lost_seconds_total", func(u *state.TeamUse, s float64) { u.Lost = s }},
	}
}

// aboveTerm is a counter of a team of what was used above owners' quotas, and its group in a report by cause.
type aboveTerm struct {
	metric, group string
	add           func(g *state.ReportGroup, seconds float64)
}

func aboveTerms() []aboveTerm {
	return []aboveTerm{
		{"trimtab_team_lent_cpu_seconds_total", account.LentName, func(g *state.ReportGroup, s float64) { g.LentCPUSeconds += s }},
		{"trimtab_team_given_cpu_seconds_total", account.GivenName, func(g *state.ReportGroup, s float64) { g.GivenCPUSeconds += s }},
	}
}

// Report adds up what all hosts counted from since to now. By is team or cause: the counters
// have no more. Warnings are what Prometheus says of an answer that may lack something.
func Report(ctx context.Context, at *url.URL, by account.By, since, now time.Time) (r state.Report, warnings []string, err error) {
	if by != account.ByTeam && by != account.ByCause {
		return r, nil, fmt.Errorf("by %s: of a fleet allowed are team, cause; a host's own report has the others", by)
	}
	span := int64(now.Sub(since).Seconds())
	if span < 1 {
		return r, nil, fmt.Errorf("since %s: that is not before now", since.Format(time.RFC3339))
	}
	r = state.Report{FromUnixNs: since.UnixNano(), ToUnixNs: now.UnixNano(), By: string(by), Source: "prometheus", Groups: []state.ReportGroup{}}
	// max by (instance, …): a daemon that two jobs scrape has its series twice.
	q := querier{at: at, ctx: ctx, now: now, span: span}
	g := groups{by: by, at: map[string]*state.ReportGroup{}}
	for _, t := range terms() {
		for _, s := range q.ask("sum by (team, resource, cause) (max by (instance, team, resource, cause) (increase(%s[%ds])))", t.metric) {
			var use state.TeamUse
			t.add(&use, float64(s.Value))
			g.add(&r.Total, s.Metric, use)
		}
	}
	for _, above := range aboveTerms() {
		for _, s := range q.ask("sum by (team) (max by (instance, team) (increase(%s[%ds])))", above.metric) {
			name := string(s.Metric["team"])
			if by == account.ByCause {
				name = above.group
			}
			above.add(g.group(name), float64(s.Value))
			above.add(&r.Total, float64(s.Value))
		}
	}
	for _, s := range q.ask("sum (max by (instance) (increase(%s[%ds])))", "trimtab_observed_seconds_total") {
		r.ObservedSeconds = float64(s.Value)
	}
	for _, s := range q.ask("count (count by (instance) (last_over_time(%s[%ds])))", "trimtab_observed_seconds_total") {
		r.Hosts = int(s.Value)
	}
	r.UnobservedSeconds = max(0, float64(r.Hosts)*float64(span)-r.ObservedSeconds)
	for _, x := range g.at {
		r.Groups = append(r.Groups, *x)
	}
	account.SortGroups(r.Groups)
	if q.err == nil && r.Hosts == 0 {
		q.err = fmt.Errorf("%s has nothing of trimtab in that time: does it scrape the daemons (metrics.listen)?", at.Redacted())
	}
	return r, q.warnings, q.err
}

// groups are the lines of a report by their names.
type groups struct {
	by account.By
	at map[string]*state.ReportGroup
}

func (g groups) group(name string) *state.ReportGroup {
	if g.at[name] == nil {
		g.at[name] = &state.ReportGroup{Name: name}
	}
	return g.at[name]
}

func (g groups) add(total *state.ReportGroup, labels model.Metric, use state.TeamUse) {
	cause, name := string(labels["cause"]), string(labels["team"])
	if g.by == account.ByCause {
		name = cause
	}
	for _, to := range []*state.ReportGroup{g.group(name), total} {
		switch labels["resource"] {
		case "gpu":
			account.AddCause(&to.GPU, cause, use)
		case "cpu":
			account.AddCause(&to.CPU, cause, use)
		}
	}
}

// querier asks one question after the other, until one fails.
type querier struct {
	at       *url.URL
	ctx      context.Context
	now      time.Time
	span     int64
	warnings []string
	err      error
}

// answer is what Prometheus' HTTP API returns; errors have it too.
type answer struct {
	Status   string   `json:"status"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Data     struct {
		Type   string       `json:"resultType"`
		Result model.Vector `json:"result"`
	} `json:"data"`
}

// ask fills a metric and the time into a query, and returns the finite values above 0.
func (q *querier) ask(query, metric string) (out model.Vector) {
	if q.err != nil {
		return nil
	}
	a, err := q.get(fmt.Sprintf(query, metric, q.span))
	if err != nil {
		q.err = fmt.Errorf("prometheus at %s: %s: %w", q.at.Redacted(), metric, err)
		return nil
	}
	q.warnings = append(q.warnings, a.Warnings...)
	for _, s := range a.Data.Result {
		if v := float64(s.Value); v > 0 && !math.IsInf(v, 0) {
			out = append(out, s)
		}
	}
	return out
}

func (q *querier) get(query string) (a answer, err error) {
	u := q.at.JoinPath("api", "v1", "query")
	form := u.Query()
	form.Set("query", query)
	form.Set("time", strconv.FormatFloat(float64(q.now.UnixMilli())/1e3, 'f', 3, 64))
	u.RawQuery = form.Encode()
	req, err := http.NewRequestWithContext(q.ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return a, err
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(&a)
	switch {
	case a.Error != "":
		return a, fmt.Errorf("%s: %q", resp.Status, a.Error) // who knows what is in it
	case resp.StatusCode != http.StatusOK:
		return a, fmt.Errorf("it answered %s", resp.Status)
	case err != nil:
		return a, fmt.Errorf("its answer is not that of Prometheus: %w", err)
	case a.Status != "success" || a.Data.Type != "vector":
		return a, fmt.Errorf("its answer is not that of Prometheus: status %q, a %q", a.Status, a.Data.Type)
	}
	return a, nil
}
