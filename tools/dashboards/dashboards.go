package main

import (
	"fmt"
	"strings"
)

const (
	fleetUID, hostUID, jobUID = "trimtab-fleet", "trimtab", "trimtab-job"

	ofHost = `instance=~"$instance"`
	ofTeam = ofHost + `,team=~"$team"`
	ofJob  = `instance="$instance",container="$container"`
	over   = `[$__rate_interval]`
)

func dashboards() []dashboard { return []dashboard{fleet(), host(), job()} }

// fleet is all hosts together: is something wrong, and where is time lost?
func fleet() dashboard {
	return dashboard{file: "trimtab-fleet.json", uid: fleetUID, title: "trimtab: fleet",
		variables: []variable{{name: "instance", label: "Host", metric: "trimtab_build_info"}, {name: "team", label: "Team", metric: "trimtab_container_info"}},
		panels: []panel{
			figure("Hosts", "Hosts that trimtab runs on.", "short", `count(trimtab_build_info{`+ofHost+`})`),
			figure("Tuned containers", "Containers that trimtab may change.", "short", `sum(trimtab_containers{`+ofHost+`,mode="tune"})`),
			figure("CPUs lent", "CPUs above their owners' quotas that containers have now as loans. What a trial gave is not in it.", "short", `sum(trimtab_container_loan_cpus{`+ofTeam+`})`),
			figure("GPUs held idle", "GPUs that somebody holds and runs nothing on, in the mean of the last hour.", "short", `sum(rate(trimtab_team_gpu_held_idle_seconds_total{`+ofTeam+`}[1h]))`),
			figure("Restores pending", "Owners' values that could not go back yet. Above 0: look at the host.", "short", `sum(trimtab_container_restore_pending{`+ofHost+`}) or vector(0)`),
			figure("Alerts", "trimtab's alerts that fire now, if its rules are loaded.", "short", `count(ALERTS{alertstate="firing",alertname=~"Trimtab.*|Restore.*|GPU.*|Rollback.*|Config.*|OverBudget|JobSlower.*"}) or vector(0)`),
			graph("Time lost, by cause", "Wall time of jobs by what they wait for, the twelve largest.", 12, "short", true, "",
				query{`topk(12, sum by (team, part) (rate(trimtab_team_breakdown_seconds_total{` + ofTeam + `,part!~"compute|device|other"}` + over + `)))`, "{{team}} {{part}}"}),
			graph("CPUs lent, by host", "CPU time used above owners' quotas, a second: under loans, and under quotas that a trial proved.", 12, "short", true, hostUID,
				query{`sum by (instance) (rate(trimtab_lent_cpu_seconds_total{` + ofHost + `}` + over + `))`, "{{instance}}"}),
			graph("GPUs held and idle, by team", "How many GPUs a team holds, and on how many of them it runs nothing.", 12, "short", false, "",
				query{`sum by (team) (rate(trimtab_team_gpu_held_seconds_total{` + ofTeam + `}` + over + `))`, "{{team}}: held"},
				query{`sum by (team) (rate(trimtab_team_gpu_held_idle_seconds_total{` + ofTeam + `}` + over + `))`, "{{team}}: idle"}),
			graph("Trials", "How trials of all hosts ended.", 12, "short", true, "",
				query{`sum by (result) (increase(trimtab_trials_total{` + ofHost + `,result!="withdrawn"}` + over + `))`, "{{result}}"}),
			graph("Jobs that lose most", "Share of wall time that a job loses to its first cause, the ten largest.", 12, "percentunit", false, jobUID,
				query{`topk(10, trimtab_container_severity_ratio{` + ofTeam + `})`, "{{instance}} {{container}}"}),
			graph("Hosts with parts that do not work", "Probes and engines that are down, by host. What is lost says `trimtab doctor`.", 12, "short", false, hostUID,
				query{`count by (instance) (trimtab_probe_up{` + ofHost + `} == 0)`, "{{instance}}: probes"},
				query{`count by (instance) (trimtab_engine_up{` + ofHost + `} == 0)`, "{{instance}}: engines"}),
			worth("Held, 7 days", "GPU-hours and CPU-hours that somebody held. These six figures are the terms of `trimtab report`.", "held", ofTeam),
			worth("Stalled, 7 days", "Hours in use and neither computing nor waiting for a device's own work.", "held", ofTeam+`,cause!~"compute|device|idle|not_known"`),
			worth("Actionable, 7 days", "The stalled hours that the verdict's relief would shorten.", "actionable", ofTeam),
			worth("Saved, 7 days", "Hours that proven changes saved, by the lower bound of their trials.", "saved", ofTeam),
			worth("Lost in trials, 7 days", "Hours lost in trials that were not kept.", "trial_lost", ofTeam),
			figure("Lent, 7 days", "CPU-hours used above owners' quotas, of loans: nobody else wanted them.", "short", hours("trimtab_team_lent_cpu_seconds_total", ofTeam, "", "7d")+` or vector(0)`),
			graph("GPUs, by what they are held for", "How many GPUs go into each cause; idle and not known too.", 12, "short", true, "",
				query{`sum by (cause) (rate(trimtab_team_held_seconds_total{` + ofTeam + `,resource="gpu"}` + over + `))`, "{{cause}}"}),
			graph("CPUs, by what they are held for", "How many CPUs go into each cause; idle and not known too.", 12, "short", true, "",
				query{`sum by (cause) (rate(trimtab_team_held_seconds_total{` + ofTeam + `,resource="cpu"}` + over + `))`, "{{cause}}"}),
			{kind: "table", title: "Hours held, by team and cause, 7 days", text: "GPU-hours and CPU-hours, the fifty largest. `trimtab report --by cause` has them all.", width: 12, high: 9, unit: "short",
				queries: []query{{`topk(50, ` + hours("trimtab_team_held_seconds_total", ofTeam, "team, resource, cause", "7d") + `)`, ""}}},
			graph("Saved, lost and lent in a day, by team", "Hours of the last 24: saved by proven changes, lost in trials, lent above quotas.", 12, "short", false, "",
				query{hours("trimtab_team_saved_seconds_total", ofTeam, "team, resource", "1d"), "{{team}}: {{resource}} saved"},
				query{hours("trimtab_team_trial_lost_seconds_total", ofTeam, "team, resource", "1d"), "{{team}}: {{resource}} lost"},
				query{hours("trimtab_team_lent_cpu_seconds_total", ofTeam, "team", "1d"), "{{team}}: cpu lent"}),
			{kind: "table", title: "Versions", text: "The version that each host runs.", width: 24, high: 8, unit: "short", link: hostUID,
				queries: []query{{`trimtab_build_info{` + ofHost + `}`, ""}}},
		}}
}

// host is one host, or several: what was changed, what became of it, what does it cost?
func host() dashboard {
	return dashboard{file: "trimtab.json", uid: hostUID, title: "trimtab",
		variables: []variable{{name: "instance", label: "Host", metric: "trimtab_build_info"},
			{name: "team", label: "Team", metric: `trimtab_container_info{` + ofHost + `}`},
			{name: "container", label: "Container", metric: `trimtab_container_info{` + ofTeam + `}`}},
		panels: []panel{
			figure("Tuned containers", "Containers that trimtab may change.", "short", `sum(trimtab_containers{`+ofHost+`,mode="tune"})`),
			figure("Changes, 24 h", "Knobs written.", "short", `sum(increase(trimtab_changes_total{`+ofHost+`,result="applied"}[24h]))`),
			figure("Trials kept, 24 h", "Of the trials that were judged.", "percentunit", `sum(increase(trimtab_trials_total{`+ofHost+`,result="kept"}[24h])) / sum(increase(trimtab_trials_total{`+ofHost+`,result=~"kept|rolled_back|inconclusive"}[24h]))`),
			figure("Restores pending", "Owners' values that could not go back yet.", "short", `sum(trimtab_container_restore_pending{`+ofHost+`}) or vector(0)`),
			figure("Own budget used", "The resource that trimtab is nearest to its budget of.", "percentunit", `max(trimtab_budget_used_ratio{`+ofHost+`})`),
			figure("Probes and engines down", "What is lost without them says `trimtab doctor`.", "short", `count(trimtab_probe_up{`+ofHost+`} == 0) or vector(0)`, `count(trimtab_engine_up{`+ofHost+`} == 0) or vector(0)`),
			graph("Where wall time goes", "Breakdown of each container's slowest rank by cause; the parts of one container sum to 1.", 12, "short", true, "",
				query{`sum by (part) (rate(trimtab_container_breakdown_seconds_total{` + ofContainer + `}` + over + `))`, "{{part}}"}),
			graph("Rate", "Steps a second where they are confirmed, else what is counted.", 12, "short", false, jobUID,
				query{`trimtab_container_rate{` + ofContainer + `}`, "{{container}} ({{source}})"}),
			graph("CPUs: now, its owner's, enough", "What the quota grants, what its owner set, and beyond what more adds no speed.", 12, "short", false, jobUID,
				query{`trimtab_container_limit_cpus{` + ofContainer + `,knob="cpu.quota"}`, "{{container}}: now"},
				query{`trimtab_container_original_limit_cpus{` + ofContainer + `,knob="cpu.quota"}`, "{{container}}: its owner's"},
				query{`trimtab_container_cpu_saturation_cores{` + ofContainer + `}`, "{{container}}: enough"}),
			graph("Speedup", "Measured rate over that before the first change.", 12, "short", false, jobUID,
				query{`trimtab_container_speedup_ratio{` + ofContainer + `}`, "{{container}}"}),
			graph("Changes", "Knobs written, by what became of it.", 12, "short", true, "",
				query{`sum by (knob, result) (increase(trimtab_changes_total{` + ofHost + `}` + over + `)) > 0`, "{{knob}} {{result}}"}),
			graph("Trials", "How trials ended.", 12, "short", true, "",
				query{`sum by (result) (increase(trimtab_trials_total{` + ofHost + `,result!="withdrawn"}` + over + `))`, "{{result}}"}),
			graph("Refused", "Changes that the guard refused, by the gate that said no.", 12, "short", true, "",
				query{`sum by (gate) (increase(trimtab_rejections_total{` + ofHost + `}` + over + `)) > 0`, "{{gate}}"}),
			graph("trimtab's own cost", "CPU time of the daemon, and of its probes in the kernel, a second.", 12, "short", false, "",
				query{`rate(trimtab_daemon_cpu_seconds_total{` + ofHost + `}` + over + `)`, "{{instance}}: daemon"},
				query{`rate(trimtab_probe_seconds_total{` + ofHost + `}` + over + `)`, "{{instance}}: probes"}),
			graph("GPUs held idle", "Share of time in which a holder ran nothing.", 12, "percentunit", false, "",
				query{`rate(trimtab_gpu_held_idle_seconds_total{` + ofTeam + `}` + over + `) > 0`, "{{device}} {{container}}"}),
			graph("GPU memory by holder", "", 12, "bytes", true, "",
				query{`trimtab_gpu_held_memory_bytes{` + ofTeam + `}`, "{{device}} {{container}}"}),
		}}
}

const ofContainer = ofHost + `,container=~"$container",team=~"$team"`

// job is one container: what bounds it, what was changed, did it help?
func job() dashboard {
	return dashboard{file: "trimtab-job.json", uid: jobUID, title: "trimtab: one job", told: "container:$container",
		variables: []variable{{name: "instance", label: "Host", metric: "trimtab_build_info", one: true},
			{name: "container", label: "Container", metric: `trimtab_container_info{instance="$instance"}`, one: true}},
		panels: []panel{
			figure("Time lost", "Share of wall time lost to what bounds it.", "percentunit", `trimtab_container_severity_ratio{`+ofJob+`}`),
			figure("Confidence", "Of the verdict.", "percentunit", `trimtab_container_confidence_ratio{`+ofJob+`}`),
			figure("Speedup", "Measured rate over that before the first change.", "short", `trimtab_container_speedup_ratio{`+ofJob+`}`),
			figure("CPUs lent", "Above its owner's quota, and used by nobody else.", "short", `trimtab_container_loan_cpus{`+ofJob+`}`),
			figure("On trial", "1 while a change of it is judged.", "short", `trimtab_container_trial_open{`+ofJob+`}`),
			figure("May be changed", "1 while trimtab may change it. Why not says `trimtab ps`.", "short", `trimtab_container_tunable{`+ofJob+`}`),
			graph("One step", "Wall time of its slowest rank by cause; the parts sum to 1.", 24, "percentunit", true, "",
				query{`sum by (part) (rate(trimtab_container_breakdown_seconds_total{` + ofJob + `}` + over + `))`, "{{part}}"}),
			{kind: "state-timeline", title: "What bounds it", text: "Class and cause of its verdict.", width: 12, high: 8, unit: "short",
				queries: []query{{`trimtab_container_bottleneck_info{` + ofJob + `}`, "{{class}}: {{cause}}"}}},
			{kind: "state-timeline", title: "Where it stands with trimtab", text: "Watched, measured, lent, settled, on trial, returned or yielded.", width: 12, high: 8, unit: "short",
				queries: []query{{`trimtab_container_tuning_info{` + ofJob + `}`, "{{state}}"}}},
			graph("Rate", "Steps a second where they are confirmed, else what is counted.", 12, "short", false, "",
				query{`trimtab_container_rate{` + ofJob + `}`, "{{source}}"}),
			graph("CPUs", "What it may use, what its owner set, what it uses, and beyond what more adds no speed.", 12, "short", false, "",
				query{`trimtab_container_limit_cpus{` + ofJob + `,knob="cpu.quota"}`, "now"},
				query{`trimtab_container_original_limit_cpus{` + ofJob + `,knob="cpu.quota"}`, "its owner's"},
				query{`trimtab_container_cpu_usage_cores{` + ofJob + `}`, "used"},
				query{`trimtab_container_cpu_saturation_cores{` + ofJob + `}`, "enough"}),
			graph("CPU weight", "In the host's own scale: compare ratios.", 12, "short", false, "",
				query{`trimtab_container_weight{` + ofJob + `,knob="cpu.weight"}`, "now"},
				query{`trimtab_container_original_weight{` + ofJob + `,knob="cpu.weight"}`, "its owner's"}),
			graph("Memory", "Its limit, that of its owner, and with how much no page was read again.", 12, "bytes", false, "",
				query{`trimtab_container_limit_bytes{` + ofJob + `,knob="memory.limit"}`, "now"},
				query{`trimtab_container_original_limit_bytes{` + ofJob + `,knob="memory.limit"}`, "its owner's"},
				query{`trimtab_container_memory_working_set_bytes{` + ofJob + `}`, "enough"}),
			graph("Its GPUs", "Share of time in which it held a device and ran nothing on it.", 12, "percentunit", false, "",
				query{`rate(trimtab_gpu_held_idle_seconds_total{` + ofJob + `}` + over + `)`, "{{device}}: idle"}),
			graph("What the probes cost it", "As a share of one CPU.", 12, "percentunit", false, "",
				query{`trimtab_container_probe_cost_ratio{` + ofJob + `}`, "probes"}),
		}}
}

func figure(title, text, unit string, exprs ...string) panel {
	p := panel{kind: "stat", title: title, text: text, width: 4, high: 4, unit: unit}
	for _, e := range exprs {
		p.queries = append(p.queries, query{e, ""})
	}
	return p
}

func graph(title, text string, width int, unit string, stacked bool, link string, queries ...query) panel {
	return panel{kind: "timeseries", title: title, text: text, width: width, high: 9, unit: unit, stacked: stacked, link: link, queries: queries}
}

// worth is a term of the report, of GPUs and of CPUs. Where nothing was counted it is 0.
func worth(title, text, term, of string) panel {
	p := figure(title, text, "short")
	for _, resource := range []string{"gpu", "cpu"} {
		p.queries = append(p.queries, query{hours("trimtab_team_"+term+"_seconds_total", of+`,resource="`+resource+`"`, "", "7d") + ` or vector(0)`, strings.ToUpper(resource)})
	}
	return p
}

// hours sums a counter of seconds as `trimtab report --prometheus` does: a daemon that two jobs scrape counts once.
func hours(metric, of, by, during string) string {
	labels := "instance, team, resource, cause"
	if strings.Contains(metric, "lent") { // it has no others
		labels = "instance, team"
	}
	sum := "sum"
	if by != "" {
		sum += " by (" + by + ")"
	}
	return fmt.Sprintf("%s (max by (%s) (increase(%s{%s}[%s]))) / 3600", sum, labels, metric, of, during)
}
