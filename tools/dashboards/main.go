// Command dashboards writes Grafana's dashboards of trimtab, from the fleet down to one job.
//
//	go run ./tools/dashboards -o packaging/grafana
//
// Their queries stand in dashboards.go. The rest of a dashboard's JSON says where panels are and how they
// look, and is the same for all.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("o", "packaging/grafana", "the `folder` to write to")
	flag.Parse()
	for _, d := range dashboards() {
		text, err := d.render()
		if err == nil {
			err = os.WriteFile(filepath.Join(*out, d.file), text, 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", d.file, err)
			os.Exit(1)
		}
	}
}

// dashboard is one page of Grafana's.
type dashboard struct {
	file, uid, title string
	variables        []variable
	panels           []panel
	told             string // a tag of those annotations that concern the page; none: all of trimtab's
}

// variable is a choice at the head of a page, of the values of a metric's label.
type variable struct {
	name, label, metric string
	one                 bool // one value at a time, not several
}

// panel is a figure, a graph or a table.
type panel struct {
	kind        string // stat, timeseries, table or state-timeline
	title, text string // text says what is shown, and what is to be thought of it
	width, high int    // of 24 columns
	unit        string // Grafana's name of it
	stacked     bool
	link        string // the UID of the page that a click leads to, with host and container
	queries     []query
}

type query struct{ expr, legend string }

// object is a piece of JSON; its keys are written in order.
type object map[string]any

const pageWidth = 24

func (d dashboard) render() ([]byte, error) {
	variables := []object{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}}
	for _, v := range d.variables {
		variables = append(variables, v.render())
	}
	var panels []object
	x, y, row := 0, 0, 0
	for i, p := range d.panels {
		if x+p.width > pageWidth {
			x, y, row = 0, y+row, 0
		}
		panels = append(panels, p.render(i+1, x, y))
		x, row = x+p.width, max(row, p.high)
	}
	page := object{"title": d.title, "uid": d.uid, "tags": []string{"trimtab"}, "schemaVersion": 39, "version": 1, "editable": true,
		"refresh": "30s", "time": object{"from": "now-6h", "to": "now"}, "timezone": "browser", "annotations": object{"list": []object{d.annotations()}},
		"templating": object{"list": variables}, "panels": panels,
		"links": []object{{"type": "dashboards", "tags": []string{"trimtab"}, "asDropdown": false, "includeVars": true, "keepTime": true, "title": "trimtab"}}}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // queries stay readable
	e.SetIndent("", "  ")
	err := e.Encode(page)
	return text.Bytes(), err
}

// annotations asks for what notify.grafana has the daemon write, by its tags. All of them have to fit.
func (d dashboard) annotations() object {
	tags := []string{"trimtab"}
	if d.told != "" {
		tags = append(tags, d.told)
	}
	return object{"name": "trimtab's decisions", "enable": true, "iconColor": "blue", "datasource": object{"type": "grafana", "uid": "-- Grafana --"},
		"target": object{"type": "tags", "tags": tags, "matchAny": false, "limit": 100}}
}

func source() object { return object{"type": "prometheus", "uid": "${datasource}"} }

func (v variable) render() object {
	ask := fmt.Sprintf("label_values(%s, %s)", v.metric, v.name)
	o := object{"name": v.name, "label": v.label, "type": "query", "datasource": source(), "definition": ask,
		"query": object{"query": ask, "refId": v.name}, "refresh": 2, "sort": 1, "multi": !v.one, "includeAll": !v.one}
	if !v.one {
		o["allValue"], o["current"] = ".*", object{"text": "All", "value": "$__all"}
	}
	return o
}

// leadsTo is the page of the host, or of the job, that was clicked on.
func (p panel) leadsTo() string {
	of := "__field.labels."
	if p.kind == "table" {
		of = "__data.fields."
	}
	url := "/d/" + p.link + "?var-instance=${" + of + "instance:percentencode}"
	if p.link == jobUID {
		url += "&var-container=${" + of + "container:percentencode}"
	}
	return url
}

func (p panel) render(id, x, y int) object {
	defaults := object{"unit": p.unit}
	options := object{}
	switch p.kind {
	case "stat":
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
	case "timeseries":
		defaults["min"] = 0
		if p.stacked {
			defaults["custom"] = object{"fillOpacity": 60, "lineWidth": 1, "stacking": object{"mode": "normal"}}
		}
		options = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	}
	if p.link != "" {
		defaults["links"] = []object{{"title": "show", "url": p.leadsTo()}}
	}
	var targets []object
	for i, q := range p.queries {
		t := object{"datasource": source(), "expr": q.expr, "legendFormat": q.legend, "refId": string(rune('A' + i))}
		switch p.kind {
		case "table":
			t["format"], t["instant"] = "table", true
		case "stat": // one figure: over a range each of its points would be reckoned
			t["instant"] = true
		}
		targets = append(targets, t)
	}
	return object{"id": id, "type": p.kind, "title": p.title, "description": p.text, "datasource": source(),
		"gridPos":     object{"x": x, "y": y, "w": p.width, "h": p.high},
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "targets": targets, "options": options}
}
