package main

import "strconv"

// numpyTrainer: no PyTorch at all.
func numpyTrainer() Family {
	return Family{Name: "numpy", HeldOut: true, Why: "NumPy and multiprocessing, no PyTorch; set aside: no source of ticks but waits", Jobs: []Job{
		{Name: "numpy-starved", Why: "L/2 + T + D ask for 1.2 CPUs, the quota is 0.4",
			Parts: one("numpyfit.py", "--loader-ms", "40", "--trainer-ms", "10", "--device-ms", "30"), Phases: starved(0.4, "input/throttled")},
		{Name: "numpy-contended", Why: "four spinning processes at the same weight on every CPU",
			Parts: one("numpyfit.py", "--loader-ms", "40", "--trainer-ms", "10", "--device-ms", "10"), Phases: besideBusy("input/contended"), WhyNever: makesIt},
		{Name: "numpy-host", Why: "60 ms of its step are the trainer's own arithmetic",
			Parts: one("numpyfit.py", "--loader-ms", "10", "--trainer-ms", "60", "--device-ms", "5"), Phases: alone("compute/host")},
		{Name: "numpy-host-starved", Why: "no loaders: its only thread is out of quota",
			Parts: one("numpyfit.py", "--loaders", "0", "--loader-ms", "10", "--trainer-ms", "20", "--device-ms", "20"), Phases: starved(0.3, "compute/host")},
		{Name: "numpy-storage", Why: "2 MiB cold for each batch from a disk that gives 20 MB/s",
			Parts:  slowDisk(20, "numpyfit.py", "--source", "file", "--loader-ms", "2", "--device-ms", "10"),
			Phases: alone("input/storage")},
		{Name: "numpy-leak", Why: "16 MiB a second reach the limit within 20 s of the first look",
			Parts: limited([]string{"--memory", "720m"}, "numpyfit.py", "--leak-mib", "16", "--base-mib", "300"), Phases: soon("memory/risk")},
		{Name: "numpy-reclaim", Why: "all but 48 MiB of its limit are held, it works with 96 MiB of mapped weights",
			Parts: limited([]string{"--memory", "300m"}, "reclaim.py", "--kind", "numpy"), Phases: aloneFor(20, "memory/reclaim"), Steps: 20},
	}}
}

// pools: a loader that no framework has.
func pools() Family {
	return Family{Name: "pool", HeldOut: true,
		Why: "multiprocessing.Pool hands out single tasks before a PyTorch model; set aside: made last, when all thresholds stood", Jobs: []Job{
			{Name: "pool-starved", Why: "L/2 + T + D ask for 1.1 CPUs, the quota is 0.4", Parts: one("pool.py", "--loader-ms", "40", "--device-ms", "35"), Phases: starved(0.4, "input/throttled")},
			{Name: "pool-contended", Why: "four spinning processes at the same weight on every CPU",
				Parts: one("pool.py", "--loader-ms", "40", "--device-ms", "10"), Phases: besideBusy("input/contended"), WhyNever: makesIt},
			{Name: "pool-workers", Why: "its one process needs 60 ms a batch, the trainer 15", Parts: one("pool.py", "--loaders", "1", "--loader-ms", "60", "--device-ms", "10"), Phases: alone("input/workers")},
			{Name: "pool-host", Why: "60 ms of its step are the trainer's own arithmetic",
				Parts: one("pool.py", "--loader-ms", "10", "--trainer-ms", "60", "--device-ms", "5"), Phases: alone("compute/host")},
			{Name: "pool-balanced", Why: "its step is declared device wait, tasks far ahead", Parts: one("pool.py", "--loader-ms", "10", "--device-ms", "60"), Phases: alone("balanced")},
			{Name: "pool-storage", Why: "2 MiB cold for each batch from a disk that gives 20 MB/s",
				Parts: slowDisk(20, "pool.py", "--source", "file", "--loader-ms", "2", "--device-ms", "10"), Phases: alone("input/storage")},
		}}
}

// life: jobs whose life has phases.
func life() Family {
	return Family{Name: "life", Why: "checkpoints, evaluations, and jobs that change their bottleneck", Jobs: []Job{
		{Name: "checkpoints", Why: "balanced; every 40 steps 256 MiB are written and synced", Parts: one("phases.py", "--checkpoint-every", "40"),
			Phases: aloneFor(30, "balanced")},
		{Name: "evaluations", Why: "input/workers; every 60 steps an evaluation of two seconds",
			Parts:  one("phases.py", "--workers", "1", "--image-size", "640", "--batch", "40", "--device-ms", "5", "--width", "12", "--eval-every", "60", "--eval-steps", "150"),
			Phases: aloneFor(30, "input/workers")},
		{Name: "change-to-storage", Why: "balanced, then 5 MiB cold a step at 20 MB/s",
			Parts: slowDisk(20, "phases.py", "--change-after", "18", "--then", "storage"),
			Phases: thenBeside(Phase{Name: "before", Truth: is("balanced")},
				Phase{Name: "after", AtS: 18, Seconds: 18, Truth: is("input/storage"), SettleS: 4})},
		{Name: "change-to-host", Why: "balanced, then 40 updates a step instead of one",
			Parts: one("phases.py", "--change-after", "18", "--then", "host", "--then-passes", "20"),
			Phases: thenBeside(Phase{Name: "before", Truth: is("balanced")},
				Phase{Name: "after", AtS: 18, Seconds: 16, Truth: is("compute/host"), SettleS: 4})},
		{Name: "change-of-quota", Why: "balanced without a quota, starved with one", Parts: one("dataloader.py"),
			Phases: thenBeside(Phase{Name: "enough", Seconds: 12, Truth: is("balanced", "input/workers")},
				Phase{Name: "quota", Seconds: 14, CPUs: 0.3, Truth: is("input/throttled"), SettleS: 4})},
	}}
}

// memoryJobs: at their limit, or soon.
func memoryJobs() Family {
	return Family{Name: "memory", Why: "jobs at their memory limit, or about to be", Jobs: []Job{
		{Name: "growth", Why: "16 MiB a second reach the limit within 22 s of the first look",
			Parts: limited([]string{"--memory", "560m"}, "memory.py", "--kind", "grow", "--grow-mib", "16", "--grow-max-mib", "500", "--data-mib", "64"), Phases: soon("memory/risk")},
		{Name: "reclaim", Why: "all but 48 MiB of its limit are held, its trainer works with 96 MiB of mapped weights",
			Parts: limited([]string{"--memory", "400m"}, "reclaim.py"), Phases: aloneFor(20, "memory/reclaim"), Steps: 20},
	}}
}

// ranks: data parallel over gloo.
func ranks() Family {
	return Family{Name: "ranks", Why: "data-parallel ranks over gloo, in one container and in several", Jobs: []Job{
		{Name: "ranks-host", Why: "two equal ranks in one container, 60 ms of arithmetic each", Parts: one("gloo.py", "--spawn", "2", "--compute-ms", "60", "--mib", "0.25"),
			Phases: alone("compute/host")},
		{Name: "ranks-straggler", Why: "rank 2 of four in one container comes 120 ms after the others",
			Parts:  one("gloo.py", "--spawn", "4", "--compute-ms", "5", "--mib", "0.25", "--slow-rank", "2", "--slow-ms", "120", "--slow-sleep"),
			Phases: alone("communication/straggler")},
		{Name: "job-straggler", Why: "four containers; rank 2 computes 120 ms longer than the others, which wait for it", Network: true,
			Parts:  gloo(4, 0, "--compute-ms", "5", "--mib", "0.25", "--slow-rank", "2", "--slow-ms", "120"),
			Phases: withPart("r2", is("compute/host"), alone("communication/straggler"))},
		{Name: "job-network", Why: "4 MiB a step all-reduced by four containers over links of 200 Mbit/s: 250 ms", Network: true,
			Parts: gloo(4, 200, "--compute-ms", "10", "--mib", "4"), Phases: alone("communication/network")},
	}}
}

// gloo is one container for each rank, on links of so many Mbit/s; 0: as they are.
func gloo(world, mbit int, args ...string) []Part {
	var out []Part
	for r := range world {
		rank := strconv.Itoa(r)
		out = append(out, Part{Name: "r" + rank, Script: "gloo.py", IngressMbit: mbit, Docker: []string{"--env", "GLOO_SOCKET_IFNAME=eth0"},
			Args: append([]string{"--rank", rank, "--world", strconv.Itoa(world), "--master", "r0:29500"}, args...)})
	}
	return out
}

// withPart gives one part a truth of its own in all phases.
func withPart(part string, t Truth, phases []Phase) []Phase {
	for i := range phases {
		phases[i].Of = map[string]Truth{part: t}
	}
	return phases
}

// still: nothing to tune.
func still() Family {
	return Family{Name: "still", Why: "no progress to make, or too little to say", Jobs: []Job{
		{Name: "idle", Why: "it sleeps", Parts: one("idle.py"), Phases: still46("idle"), Steps: -1},
		{Name: "notebook", Why: "bursts of work when its user asks", Parts: one("notebook.py"), Phases: still46("interactive"), Steps: 2},
		{Name: "slow-steps", Why: "a step takes 12 s: there are not five in all that is seen",
			Parts: one("numpyfit.py", "--loaders", "0", "--loader-ms", "3000", "--trainer-ms", "3000", "--device-ms", "6000"), Phases: []Phase{{Name: "alone", Seconds: 45, Truth: is("unknown")}}, Steps: 1,
			WhyNever: "a neighbour's time would bring its fifth step"},
	}}
}

// still46 is as long as the windows of containers that do not step, twice.
func still46(l Label) []Phase {
	out := aloneFor(46, l)
	out[1].Seconds = 46
	return out
}

func realFamilies() []Family {
	return []Family{dataLoader(), pinned(), inline(), threads(), numpyTrainer(), pools(), largeFiles(), smallFiles(), remote(), life(), memoryJobs(), ranks(), still()}
}
