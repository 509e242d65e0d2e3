// Package metrics shows the daemon's snapshot to Prometheus. Every scrape
// renders one immutable snapshot as constant metrics: nothing is counted here
// but which teams have been seen, so a series dies with its container, and
// counters that outlive containers are the agent's.
//
// The one trap: container names, images and teams are written by whoever starts
// a container. They are cleaned, cut and capped here (clean), never trusted
// to be few, short or valid UTF-8.
package metrics

import (
	"cmp"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trimtab/trimtab/tuner/state"
)

// Limits of what is exported.
const (
	// MaxContainers is how many watched containers have series of their own: about 60
	// series each, so 30,000 (and up to 8 more while old names are served), what one Prometheus target is commonly limited to.
	MaxContainers = 500
	// MaxTeams is how many teams have series; later ones are summed as "other".
	MaxTeams = 100
)

// Collector is a prometheus.Collector over the latest snapshot. It may be
// collected from several goroutines.
type Collector struct {
	latest   func() *state.Snapshot
	families map[string]Family
	descs    map[string]*prometheus.Desc // by name, those of the version before as well

	mu    sync.Mutex
	teams map[string]bool // admitted, never withdrawn, so that "other" only grows
}

// NewCollector collects what latest returns; nil means that there is no snapshot
// yet. latest must be safe to call from several goroutines.
func NewCollector(latest func() *state.Snapshot) *Collector {
	c := &Collector{latest: latest, families: map[string]Family{}, descs: map[string]*prometheus.Desc{}, teams: map[string]bool{}}
	for _, f := range Families() {
		c.families[f.Name] = f
		c.descs[f.Name] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		if f.Was != "" {
			c.descs[f.Was] = prometheus.NewDesc(f.Was, "Deprecated, for one release: the name of "+f.Name+" in the version before.", f.Labels, nil)
		}
	}
	return c
}

// Describe sends every descriptor, so that the registry checks what is collected.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect renders the latest snapshot; before the first there is nothing.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.latest()
	if s == nil {
		return
	}
	e := &emitter{c: c, index: map[string]int{}, taken: names{hostLabel: true, othersLabel: true}, labels: map[string]string{}}
	e.containers(s.Containers)
	e.devices(s.Devices)
	e.totals(s)
	e.node(s)
	e.daemon(s)
	e.flush(ch)
}

// team maps a team's name to its label: its own while there is room.
func (c *Collector) team(name string) string {
	name = clean(name)
	if name == "" {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.teams[name] {
		if len(c.teams) >= MaxTeams {
			return "other"
		}
		c.teams[name] = true
	}
	return name
}

// series is one metric's value with its labels.
type series struct {
	name   string
	labels []string
	value  float64
}

// emitter gathers one scrape. Two values for the same series would fail the
// whole scrape, so counters of one series are summed and of gauges the last stays.
type emitter struct {
	c      *Collector
	index  map[string]int
	taken  names
	labels map[string]string // of containers, by key
	series []series
	apply  state.Histogram
}

// label is a container's label, the same in all its series.
func (e *emitter) label(key, name string) string {
	label, ok := e.labels[key]
	if !ok {
		label = e.taken.unique(name, key)
		e.labels[key] = label
	}
	return label
}

func (e *emitter) set(name string, value float64, labels ...string) {
	key := fmt.Sprintf("%s\x00%q", name, labels)
	if i, ok := e.index[key]; ok {
		if e.c.families[name].Kind == Counter {
			value += e.series[i].value
		}
		e.series[i].value = value
		return
	}
	e.index[key] = len(e.series)
	e.series = append(e.series, series{name, labels, value})
}

func (e *emitter) setBool(name string, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	e.set(name, value, labels...)
}

// flush sends what was gathered. A value that does not fit its descriptor becomes
// an invalid metric, which the registry reports by name.
func (e *emitter) flush(ch chan<- prometheus.Metric) {
	for _, s := range e.series {
		family := e.c.families[s.name]
		e.send(ch, family.Name, family.Kind, s)
		if family.Was != "" {
			e.send(ch, family.Was, family.Kind, s)
		}
	}
	buckets := map[float64]uint64{}
	for i, bound := range e.apply.Bounds {
		if i < len(e.apply.Counts) {
			buckets[bound] = e.apply.Counts[i]
		}
	}
	ch <- prometheus.MustNewConstHistogram(e.c.descs["trimtab_apply_duration_seconds"], e.apply.Count, e.apply.Sum, buckets) // it has no labels
}

func (e *emitter) send(ch chan<- prometheus.Metric, name string, kind Kind, s series) {
	desc, valueType := e.c.descs[name], prometheus.GaugeValue
	if kind == Counter {
		valueType = prometheus.CounterValue
	}
	m, err := prometheus.NewConstMetric(desc, valueType, s.value, s.labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, fmt.Errorf("%s %q: %w", name, s.labels, err))
	}
	ch <- m
}

// daemon renders the state of trimtab itself.
func (e *emitter) daemon(s *state.Snapshot) {
	d := s.Daemon
	e.set("trimtab_build_info", 1, clean(d.Version), goruntime.Version())
	e.set("trimtab_mode", 1, string(d.Mode))
	for _, p := range d.Policies {
		e.set("trimtab_policy_info", 1, clean(p))
	}
	e.setBool("trimtab_paused", d.Paused)
	e.setBool("trimtab_disabled", d.Disabled)
	e.setBool("trimtab_virtual_gpu", d.Virtual || s.Virtual)
	for _, p := range d.Engines {
		e.setBool("trimtab_engine_up", p.OK, clean(p.Name))
	}
	for _, p := range d.Probes {
		e.setBool("trimtab_probe_up", p.OK, clean(p.Name))
		e.set("trimtab_probe_lost_events_total", float64(p.LostEvents), clean(p.Name))
	}
	for _, r := range d.Receivers {
		e.setBool("trimtab_receiver_up", r.OK, clean(r.Name))
		e.set("trimtab_receiver_events_total", float64(r.Sent), clean(r.Name), "sent")
		e.set("trimtab_receiver_events_total", float64(r.Failed), clean(r.Name), "failed")
		e.set("trimtab_receiver_events_total", float64(r.Dropped), clean(r.Name), "dropped")
		e.set("trimtab_receiver_waiting_events", float64(r.Queued), clean(r.Name))
	}
	e.set("trimtab_daemon_cpu_seconds_total", d.CPUSeconds)
	e.set("trimtab_daemon_resident_memory_bytes", float64(d.RSSBytes))
	e.set("trimtab_probe_seconds_total", d.ProbeSeconds)
	e.set("trimtab_probe_runs_total", float64(d.ProbeRuns))
	e.set("trimtab_probe_map_bytes", float64(d.ProbeMapBytes))
	e.set("trimtab_budget_used_ratio", d.BudgetShare, "cpu")
	e.set("trimtab_budget_used_ratio", d.MemoryShare, "memory")
	e.set("trimtab_budget_used_ratio", d.MapsShare, "maps")
	e.set("trimtab_budget_used_ratio", d.JobShare, "job")
	e.setBool("trimtab_config_last_reload_successful", d.ConfigError == "")
	e.set("trimtab_config_loaded_timestamp_seconds", float64(d.ConfigUnixNs)/1e9)
	e.set("trimtab_snapshot_timestamp_seconds", float64(s.UnixNs)/1e9)
}

// node renders what there is to give, and how many containers there are.
func (e *emitter) node(s *state.Snapshot) {
	e.set("trimtab_node_cpus", s.Node.CPUs)
	e.set("trimtab_node_reserved_cpus", s.Node.Reserve)
	e.set("trimtab_node_other_used_cpus", s.Node.OtherCPUs+s.Node.HostCPUs)
	e.set("trimtab_similarity_known_jobs", float64(s.Memory.Known))
	e.setBool("trimtab_similarity_store_ok", s.Memory.Lost == "")
	e.set("trimtab_similarity_foreign_jobs", float64(s.Memory.Foreign))
	read := map[string]int{"used": 0}
	for _, b := range s.Memory.Books {
		read[cmp.Or(b.Reason, "used")]++
	}
	for _, reason := range slices.Sorted(maps.Keys(read)) {
		e.set("trimtab_similarity_books", float64(read[reason]), reason)
	}
	type group struct {
		mode    string
		watched bool
	}
	count := map[group]int{}
	for _, c := range s.Containers {
		count[group{string(c.Enrolment.Mode), c.Watched}]++
	}
	for g, n := range count {
		e.set("trimtab_containers", float64(n), g.mode, strconv.FormatBool(g.watched))
	}
}

// maxLabelBytes cuts label values; names of Kubernetes' making reach 253 bytes,
// image references with a digest some 200.
const maxLabelBytes = 128

// clean makes a label value of a text that others wrote: valid UTF-8, without
// control characters, at most maxLabelBytes long, ending in "…" if cut.
func clean(s string) string {
	if len(s) > 4*maxLabelBytes {
		s = s[:4*maxLabelBytes] // bound the work below
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
	if len(s) <= maxLabelBytes {
		return s
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(s[:maxLabelBytes-len(ellipsis)], "") + ellipsis
}

// names gives each container a label of its own: its name, told apart by its key
// where two engines, or two cut names, share one.
type names map[string]bool

func (n names) unique(name, key string) string {
	label := clean(name)
	if label == "" || n[label] {
		label = clean(key)
	}
	n[label] = true
	return label
}
