package metrics

// Kind is a metric's type.
type Kind string

// The kinds, as Prometheus' text format names them.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family describes one metric: what the collector may emit, and what
// docs/metrics.md says of it.
type Family struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
	Group  string // the chapter of docs/metrics.md
	Was    string // its name in the version before, served beside the new one for one release; "" if it had none
}

// What limits a container, by the knob's unit.
const (
	nLimitCPUs  = "trimtab_container_limit_cpus"
	nLimitBytes = "trimtab_container_limit_bytes"
	nWeight     = "trimtab_container_weight"
)

// Families lists every metric of the collector, in the order of docs/metrics.md. Base units: seconds,
// bytes, CPUs, ratios 0..1.
func Families() []Family {
	var out []Family
	for _, g := range []struct {
		title    string
		families []Family
	}{
		{"Containers", containerFamilies()},
		{"Limits", limitFamilies()},
		{"Decisions", decisionFamilies()},
		{"GPUs", deviceFamilies()},
		{"Teams", append(teamFamilies(), useFamilies()...)},
		{"Node", nodeFamilies()},
		{"trimtab itself", daemonFamilies()},
	} {
		for _, f := range g.families {
			f.Group = g.title
			out = append(out, f)
		}
	}
	return out
}

func containerFamilies() []Family {
	ct := func(more ...string) []string { return append([]string{"container", "team"}, more...) }
	return []Family{
		{Name: "trimtab_container_info", Kind: Gauge, Labels: ct("engine", "image", "mode", "state"), Help: "Always 1. A watched container and what it is."},
		{Name: "trimtab_container_breakdown_seconds_total", Kind: Counter, Labels: ct("part"), Help: "Wall time of the container's slowest rank by what it went into, since the container was watched. The parts sum to the wall time."},
		{Name: "trimtab_container_rate", Kind: Gauge, Labels: ct("source", "steps"), Help: "Ticks per second of a periodic event of the job. These are training steps only where steps is true."},
		{Name: "trimtab_container_speedup_ratio", Kind: Gauge, Labels: ct(), Help: "Measured rate over the rate before the first of the changes that stand, 1 where it is the same. Absent until measured, and where work done contradicts what the job counts itself."},
		{Name: "trimtab_container_gain_ratio", Kind: Gauge, Labels: ct(), Help: "Deprecated, for one release: trimtab_container_speedup_ratio minus one."},
		{Name: "trimtab_container_work_ratio", Kind: Gauge, Labels: ct(), Help: "Work done over that before the first change, minus one, by quantities that grow with work. It is there where steps are not counted or the job counts them itself. Absent until measured."},
		{Name: "trimtab_container_loan_cpus", Kind: Gauge, Labels: ct(), Help: "CPUs that the container was lent above its owner's quota, which nobody else used, without what a trial gave. It is 0 without a loan."},
		{Name: "trimtab_container_tuning_info", Kind: Gauge, Labels: ct("state"), Help: "Always 1. Where the container stands: watched, measured, lent, settled, trial, returned, yielded."},
		{Name: "trimtab_container_bottleneck_info", Was: "trimtab_container_verdict", Kind: Gauge, Labels: ct("class", "cause"), Help: "Always 1. What bounds the container in its latest window."},
		{Name: "trimtab_container_severity_ratio", Kind: Gauge, Labels: ct(), Help: "Share of wall time lost to the verdict's cause, 0 to 1."},
		{Name: "trimtab_container_confidence_ratio", Kind: Gauge, Labels: ct(), Help: "Confidence of the verdict, 0 to 1."},
		{Name: "trimtab_container_cpu_saturation_cores", Was: "trimtab_container_knee_cpus", Kind: Gauge, Labels: ct(), Help: "Predicted CPUs beyond which more add no speed. Absent until measured."},
		{Name: "trimtab_container_memory_working_set_bytes", Was: "trimtab_container_enough_memory_bytes", Kind: Gauge, Labels: ct(), Help: "Memory, page cache included, with which no evicted page was read again. Absent until measured."},
		{Name: "trimtab_container_cpu_usage_cores", Was: "trimtab_container_used_cpus", Kind: Gauge, Labels: ct(), Help: "CPUs used in the latest window."},
		{Name: "trimtab_container_windows_total", Kind: Counter, Labels: ct(), Help: "Windows closed since the container was watched."},
		{Name: "trimtab_container_probe_cost_ratio", Kind: Gauge, Labels: ct(), Help: "What the probes cost the container's own threads, as a share of one CPU. It is computed from hits and measured costs of a hit. overhead.perContainer bounds it, but not the kernel's part of it. Where the container uses more than one CPU, the bound is times these."},
		{Name: "trimtab_similarity_nearest_distance", Kind: Gauge, Labels: ct(), Help: "Distance to the most similar known job, 0 (alike) to 1. Absent where none is like it."},
		{Name: "trimtab_similarity_nearest_confidence_ratio", Kind: Gauge, Labels: ct(), Help: "Confidence in the known jobs most like it, 0 to 1. Absent where none is like it."},
		{Name: "trimtab_container_slower_than_usual_ratio", Kind: Gauge, Labels: ct(), Help: "Share of the usual rate that a container misses, by the last runs of the same job on this host. It is 0 while it is as fast as these may be. Absent where too few runs tell. trimtab explain says what differs."},
		{Name: "trimtab_container_usual_rate_per_second", Kind: Gauge, Labels: ct(), Help: "Rate of the last runs of the same job on this host. Absent where none is known."},
		{Name: "trimtab_device_predicted_speed_ratio", Kind: Gauge, Labels: ct("model", "host_bound"), Help: "Predicted rate on another model of device of this node over the rate now. It is from data sheets and known jobs that ran on both. Where host_bound is true something else than its device bounds it. Advice: nothing acts on it."},
		{Name: "trimtab_container_tunable", Kind: Gauge, Labels: ct(), Help: "1 while trimtab may change the container. trimtab ps says what keeps it from that."},
		{Name: "trimtab_container_trial_open", Kind: Gauge, Labels: ct(), Help: "1 while a plan that changed the container is on trial."},
		{Name: "trimtab_container_tuning_suspended", Was: "trimtab_container_held", Kind: Gauge, Labels: ct(), Help: "1 while the container is left alone after a restore by hand, until it is resumed."},
		{Name: "trimtab_container_restore_pending", Was: "trimtab_container_restore_owed", Kind: Gauge, Labels: ct(), Help: "1 while an original value could not safely be restored yet."},
		{Name: "trimtab_container_preflight_ok", Kind: Gauge, Labels: ct(), Help: "1 if the GPU preflight is green, else the container is only observed. Absent without a GPU."},
		{Name: "trimtab_container_gpu_access_ok", Kind: Gauge, Labels: ct(), Help: "1 while the container can open its GPU, 0 while it has lost access to it. Absent without a GPU."},
	}
}

func limitFamilies() []Family {
	knob := []string{"container", "team", "knob"}
	return []Family{
		{Name: nLimitCPUs, Kind: Gauge, Labels: knob, Help: "CPUs that the knob grants now (cpu.quota, cpuset). Absent where there is no limit."},
		{Name: "trimtab_container_original_limit_cpus", Kind: Gauge, Labels: knob, Help: "CPUs that the knob granted before the first change. Absent where there was no limit."},
		{Name: nLimitBytes, Kind: Gauge, Labels: knob, Help: "Bytes that the knob allows now (memory.*). Absent where there is no limit."},
		{Name: "trimtab_container_original_limit_bytes", Kind: Gauge, Labels: knob, Help: "Bytes that the knob allowed before the first change. Absent where there was no limit."},
		{Name: nWeight, Kind: Gauge, Labels: knob, Help: "Weight that stands now in the host's own scale (cpu.weight). Compare ratios."},
		{Name: "trimtab_container_original_weight", Kind: Gauge, Labels: knob, Help: "Weight before the first change, in the host's own scale."},
		{Name: "trimtab_container_knob_changed", Kind: Gauge, Labels: knob, Help: "Always 1. A knob that stands at trimtab's value."},
		{Name: "trimtab_container_knob_yielded", Kind: Gauge, Labels: knob, Help: "Always 1. A knob that somebody else wrote and that trimtab leaves alone."},
	}
}

func decisionFamilies() []Family {
	return []Family{
		{Name: "trimtab_plans_total", Kind: Counter, Labels: []string{"policy", "result"}, Help: "Plans by result: applied, would, failed."},
		{Name: "trimtab_changes_total", Kind: Counter, Labels: []string{"policy", "knob", "result"}, Help: "Changes of a knob by result: applied, refused, unavailable, yielded, failed, gone (its container). With the rest of their plan some are skipped or undone."},
		{Name: "trimtab_trials_total", Kind: Counter, Labels: []string{"policy", "result"}, Help: "Trials ended by result: kept, rolled_back, inconclusive, unproven (stands, and is asked again), aborted. What stood and is taken back later is counted as withdrawn: unproven changes and hidden GPUs once more, memory that a job misses for the first time."},
		{Name: "trimtab_rejections_total", Kind: Counter, Labels: []string{"gate"}, Help: "Changes that the guard refused, by the gate that said no: fixed, knob, yielded, stale, bounds, step, failed, cool-down, trial, measuring, rate, ramp, rights, idle."},
		{Name: "trimtab_lent_cpu_seconds_total", Kind: Counter, Help: "CPU time that containers used above their owners' quotas, of loans. What trials gave is not in it."},
		{Name: "trimtab_restores_total", Kind: Counter, Labels: []string{"result"}, Help: "Restores of a container by result: restored, yielded, pending, gone, failed, unavailable."},
		{Name: "trimtab_apply_duration_seconds", Kind: Histogram, Help: "Time from saving the originals to reading the new values back, of the container's part of a plan. It is counted once for each knob in it."},
		{Name: "trimtab_foreign_writes_total", Kind: Counter, Help: "Writes by others to knobs that trimtab had changed."},
		{Name: "trimtab_gpu_access_lost_total", Kind: Counter, Help: "Times that a container was found to have lost access to a GPU that it holds."},
		{Name: "trimtab_gpu_access_repairs_total", Was: "trimtab_gpu_heals_total", Kind: Counter, Labels: []string{"result"}, Help: "Lost access to GPUs by what became of it: repaired, failed (each try), left (not trimtab's to repair, or not now)."},
	}
}

func teamFamilies() []Family {
	return []Family{
		{Name: "trimtab_team_breakdown_seconds_total", Kind: Counter, Labels: []string{"team", "part"}, Help: "Wall time of slowest ranks by team and by what it went into. It outlives containers."},
		{Name: "trimtab_team_verdict_windows_total", Kind: Counter, Labels: []string{"team", "class", "cause"}, Help: "Windows by team and verdict. It outlives containers."},
		{Name: "trimtab_team_gpu_held_seconds_total", Kind: Counter, Labels: []string{"team"}, Help: "Time that containers of the team held a GPU, summed over GPUs and containers. It outlives them. Without a team are containers of none, and the host."},
		{Name: "trimtab_team_gpu_held_idle_seconds_total", Kind: Counter, Labels: []string{"team"}, Help: "The part of it in which they ran nothing, beyond the first stretch of gpu.idleAfter each time. It outlives containers."},
	}
}

// useFamilies are what trimtab report adds up; docs/report.md has the formulas.
func useFamilies() []Family {
	use := []string{"team", "resource", "cause"}
	return []Family{
		{Name: "trimtab_team_held_seconds_total", Kind: Counter, Labels: use, Help: "Time that containers of the team held a resource (gpu, cpu), summed over devices or CPUs, by what it went into. That is a part of the breakdown, idle or not_known. It outlives containers."},
		{Name: "trimtab_team_actionable_seconds_total", Kind: Counter, Labels: use, Help: "The stalled part of it that the relief of the verdict at that time would shorten."},
		{Name: "trimtab_team_proven_seconds_total", Kind: Counter, Labels: use, Help: "The part of it in use under changes that a kept trial proved and that stood. The cause is that before the trial."},
		{Name: "trimtab_team_saved_seconds_total", Kind: Counter, Labels: use, Help: "What of the proven time those changes saved, by the lower bound of their trials."},
		{Name: "trimtab_team_trial_seconds_total", Kind: Counter, Labels: use, Help: "Time in use during trials that were judged and not kept. The cause is that before the trial."},
		{Name: "trimtab_team_trial_lost_seconds_total", Kind: Counter, Labels: use, Help: "What of the time in such trials was lost, the rate being below that before."},
		{Name: "trimtab_team_lent_cpu_seconds_total", Kind: Counter, Labels: []string{"team"}, Help: "CPU time that containers of the team used above their owners' quotas, of loans: nobody else wanted it. It outlives containers."},
		{Name: "trimtab_team_given_cpu_seconds_total", Kind: Counter, Labels: []string{"team"}, Help: "CPU time that containers of the team used above their owners' quotas, of what trials gave, open or kept. It outlives containers."},
	}
}

func nodeFamilies() []Family {
	return []Family{
		{Name: "trimtab_observed_seconds_total", Kind: Counter, Help: "Time in which readings were taken: what the counters of teams are of."},
		{Name: "trimtab_containers", Kind: Gauge, Labels: []string{"mode", "watched"}, Help: "Running containers by how far trimtab may go and whether it watches them."},
		{Name: "trimtab_containers_not_exported", Kind: Gauge, Help: "Watched containers left out of the per-container metrics, being beyond the cap."},
		{Name: "trimtab_similarity_known_jobs", Kind: Gauge, Help: "Jobs that trimtab knows again by their profile. trimtab profiles ls lists them."},
		{Name: "trimtab_similarity_store_ok", Kind: Gauge, Help: "1 while what is learned of jobs is kept on disk. Where it is 0 the latest write failed, and it is known until the daemon ends."},
		{Name: "trimtab_similarity_foreign_jobs", Kind: Gauge, Help: "Those of them that come from other hosts' books."},
		{Name: "trimtab_similarity_books", Kind: Gauge, Labels: []string{"state"}, Help: "Books of other hosts in the directory: used, or the reason why one is not. trimtab doctor names them."},
		{Name: "trimtab_node_cpus", Kind: Gauge, Help: "CPUs online."},
		{Name: "trimtab_node_reserved_cpus", Kind: Gauge, Help: "CPUs that must stay idle when CPU is lent."},
		{Name: "trimtab_node_other_used_cpus", Kind: Gauge, Help: "CPUs used by containers that are not enrolled, and by the host."},
	}
}

func daemonFamilies() []Family {
	return []Family{
		{Name: "trimtab_build_info", Kind: Gauge, Labels: []string{"version", "goversion"}, Help: "Always 1. The build that runs."},
		{Name: "trimtab_mode", Kind: Gauge, Labels: []string{"mode"}, Help: "Always 1. How far the host's config lets trimtab go: off, observe, tune."},
		{Name: "trimtab_policy_info", Kind: Gauge, Labels: []string{"policy"}, Help: "Always 1. The policies that are asked."},
		{Name: "trimtab_paused", Kind: Gauge, Help: "1 while paused: values stay, nothing changes."},
		{Name: "trimtab_disabled", Kind: Gauge, Help: "1 while the file that stops every write is there."},
		{Name: "trimtab_virtual_gpu", Kind: Gauge, Help: "1 while a virtual GPU is in use."},
		{Name: "trimtab_engine_up", Kind: Gauge, Labels: []string{"engine"}, Help: "1 while the container engine answers."},
		{Name: "trimtab_probe_up", Kind: Gauge, Labels: []string{"probe"}, Help: "1 while the probe, or the part of it that is off alone, reads. trimtab doctor says what is lost without it."},
		{Name: "trimtab_receiver_up", Kind: Gauge, Labels: []string{"receiver"}, Help: "1 while whom decisions are told (grafana, otlp, otlp-metrics, script, webhook) takes them. Where it is 0 the latest was not taken."},
		{Name: "trimtab_receiver_events_total", Kind: Counter, Labels: []string{"receiver", "result"}, Help: "Events by what became of them: sent, failed (refused, or not taken in ten tries), dropped (too many). Of otlp-metrics it counts exports."},
		{Name: "trimtab_receiver_waiting_events", Kind: Gauge, Labels: []string{"receiver"}, Help: "Events that wait for the receiver, at most 256."},
		{Name: "trimtab_daemon_cpu_seconds_total", Kind: Counter, Help: "User and system CPU time of trimtab."},
		{Name: "trimtab_daemon_resident_memory_bytes", Kind: Gauge, Help: "Resident memory of trimtab."},
		{Name: "trimtab_probe_seconds_total", Kind: Counter, Help: "Time in trimtab's BPF programs, where the kernel accounts for it."},
		{Name: "trimtab_probe_runs_total", Kind: Counter, Help: "Runs of trimtab's BPF programs, where the kernel accounts for them."},
		{Name: "trimtab_probe_map_bytes", Kind: Gauge, Help: "Kernel memory of trimtab's BPF maps."},
		{Name: "trimtab_probe_lost_events_total", Kind: Counter, Labels: []string{"probe"}, Help: "Events dropped and threads that found no room in the probe. Of the flight recorder and the history it counts records."},
		{Name: "trimtab_budget_used_ratio", Kind: Gauge, Labels: []string{"resource"}, Help: "What trimtab uses of a resource over its budget. Above 1 it is over budget. Resources are cpu and memory of the daemon, and kernel memory of its maps. Another is what probes cost of a job's CPU, of the job that they cost most."},
		{Name: "trimtab_config_last_reload_successful", Kind: Gauge, Help: "1 if the last load of the config succeeded. Where it is 0 it was refused, and the one before stays in force."},
		{Name: "trimtab_config_loaded_timestamp_seconds", Kind: Gauge, Help: "When the config in force was loaded."},
		{Name: "trimtab_snapshot_timestamp_seconds", Kind: Gauge, Help: "When the state that these metrics show was taken."},
	}
}
