package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/trimtab/trimtab/tuner/event"
)

// Notify is whom trimtab tells of its decisions, beside its history. docs/notify.md
type Notify struct {
	OTLP    OTLP     `yaml:"otlp"`
	Grafana Receiver `yaml:"grafana"`
	Webhook Receiver `yaml:"webhook"`
	Script  Script   `yaml:"script"`
}

// OTLP takes decisions and metrics by OTLP/HTTP.
type OTLP struct {
	URL          string            `yaml:"url"` // what stands before /v1/logs; "": none
	TokenFile    string            `yaml:"tokenFile"`
	CAFile       string            `yaml:"caFile"`
	Headers      map[string]string `yaml:"headers"`
	Events       []string          `yaml:"events"`       // kinds; none: all
	MetricsEvery Duration          `yaml:"metricsEvery"` // 0: no metrics
}

// Receiver is told by HTTP, one request for an event.
type Receiver struct {
	URL       string            `yaml:"url"` // "": none
	TokenFile string            `yaml:"tokenFile"`
	CAFile    string            `yaml:"caFile"`
	Headers   map[string]string `yaml:"headers"`
	Events    []string          `yaml:"events"`    // kinds; none: all
	PerMinute int               `yaml:"perMinute"` // events; more are dropped
}

// Script is a program of the host that is run for each event.
type Script struct {
	Path      string   `yaml:"path"` // "": none
	Timeout   Duration `yaml:"timeout"`
	Events    []string `yaml:"events"` // kinds; none: all
	PerMinute int      `yaml:"perMinute"`
}

// Receiver is the part that all that are told by HTTP have. It has no limit: records go together.
func (o OTLP) Receiver() Receiver {
	return Receiver{URL: o.URL, TokenFile: o.TokenFile, CAFile: o.CAFile, Headers: o.Headers, Events: o.Events, PerMinute: maxPerMinute}
}

func defaultNotify() Notify {
	urgent := func() []string {
		return []string{"kept", "reverted", "gpu-lost", "gpu-repaired", "restored", "yielded", "unwell", "well"}
	}
	return Notify{
		OTLP:    OTLP{Headers: map[string]string{}, Events: []string{}, MetricsEvery: Duration(time.Minute)},
		Grafana: Receiver{Headers: map[string]string{}, Events: []string{"kept", "reverted", "lent", "called-in"}, PerMinute: 30},
		Webhook: Receiver{Headers: map[string]string{}, Events: urgent(), PerMinute: 60},
		Script:  Script{Timeout: Duration(10 * time.Second), Events: urgent(), PerMinute: 60},
	}
}

// Bounds of what can work.
const (
	maxPerMinute    = 100_000
	minMetricsEvery = 5 * time.Second
	maxScriptTime   = 5 * time.Minute
)

func (k *check) notify(n Notify) {
	k.receiver("notify.otlp", n.OTLP.Receiver())
	k.receiver("notify.grafana", n.Grafana)
	k.receiver("notify.webhook", n.Webhook)
	every := n.OTLP.MetricsEvery.D()
	k.that(every == 0 || every >= minMetricsEvery && every <= time.Hour, "notify.otlp.metricsEvery", "%s is out of range; allowed are 0s (none) and %s to 1h", every, minMetricsEvery)
	if n.Script.Path != "" {
		k.that(filepath.IsAbs(n.Script.Path) && filepath.Clean(n.Script.Path) == n.Script.Path, "notify.script.path", "is not an absolute path without . and ..; allowed are such as /usr/local/lib/trimtab/on-event")
	}
	k.that(n.Script.Timeout.D() >= time.Second && n.Script.Timeout.D() <= maxScriptTime, "notify.script.timeout", "%s is out of range; allowed are 1s to %s", n.Script.Timeout.D(), maxScriptTime)
	k.told("notify.script", n.Script.Events, n.Script.PerMinute)
}

// receiver checks one. Nothing that it holds is shown: a secret may stand where its file is named.
func (k *check) receiver(key string, r Receiver) {
	if r.URL != "" {
		u, err := url.Parse(r.URL)
		k.that(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.Fragment == "", key+".url", "is not a URL; allowed are such as https://host.example.com:8443/path")
	}
	if r.TokenFile != "" {
		k.that(filepath.IsAbs(r.TokenFile), key+".tokenFile", "is not an absolute path: name the file that holds the token")
	}
	if r.CAFile != "" {
		k.that(filepath.IsAbs(r.CAFile), key+".caFile", "is not an absolute path")
	}
	for name, value := range r.Headers {
		k.that(httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value), key+".headers", "has what no header may be: names are of letters, digits and -, values of one line")
	}
	k.told(key, r.Events, r.PerMinute)
}

func (k *check) told(key string, events []string, perMinute int) {
	var names []string
	for _, kind := range event.Kinds() {
		names = append(names, string(kind))
	}
	for i, e := range events {
		k.that(slices.Contains(names, e), fmt.Sprintf("%s.events[%d]", key, i+1), "is not an event; %s", nearest(e, names))
	}
	k.that(perMinute > 0 && perMinute <= maxPerMinute, key+".perMinute", "%d is out of range; allowed are 1 to %d", perMinute, maxPerMinute)
}

// openTokens says, by key, which tokens anybody on the way could read.
func (n Notify) openTokens() map[string]string {
	out := map[string]string{}
	for key, r := range map[string]Receiver{"notify.otlp.url": n.OTLP.Receiver(), "notify.grafana.url": n.Grafana, "notify.webhook.url": n.Webhook} {
		u, err := url.Parse(r.URL)
		if err != nil || u.Scheme != "http" || r.TokenFile == "" && len(r.Headers) == 0 && u.User == nil {
			continue
		}
		if a, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !a.IsLoopback()) {
			out[key] = key + ": tokens, passwords and headers go over the network as they are: use https"
		}
	}
	return out
}
