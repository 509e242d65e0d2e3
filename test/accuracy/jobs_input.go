package main

// dataLoader: PyTorch's DataLoader with worker processes.
func dataLoader() Family {
	return Family{Name: "dataloader", Why: "PyTorch DataLoader with worker processes decoding JPEGs", Jobs: []Job{
		{Name: "starved", Why: "about 1 CPU is needed, the quota is 0.3", Parts: one("dataloader.py"), Phases: starved(0.3, "input/throttled")},
		{Name: "starved-epochs", Why: "the same; loaders exit and start anew every 40 steps",
			Parts: one("dataloader.py", "--epoch-steps", "40"), Phases: starved(0.4, "input/throttled")},
		{Name: "contended", Why: "four spinning processes at the same weight on every CPU", Parts: one("dataloader.py", "--device-ms", "20"),
			Phases: besideBusy("input/contended"), WhyNever: makesIt},
		{Name: "workers", Why: "one loader is on a CPU all the time, a core stays free", Parts: one("workers.py"), Phases: alone("input/workers")},
		{Name: "balanced", Why: "its step is declared device wait, loaders far ahead", Parts: one("balanced.py"), Phases: alone("balanced")},
		{Name: "trainer-bound", Why: "the model costs more than loading; no quota", Parts: one("trainerbound.py"), Phases: alone("compute/host")},
		{Name: "trainer-starved", Why: "the model costs more than loading, under a quota of half a CPU",
			Parts: one("trainerbound.py"), Phases: starved(0.5, "compute/host")},
		{Name: "leak", Why: "each step's graph is kept: 16 MiB a second reach the limit within 20 s of the first look",
			Parts: limited([]string{"--memory", "700m"}, "leak.py", "--base-mib", "200"), Phases: soon("memory/risk")},
		{Name: "reclaim-loaders", Why: "all but 48 MiB of its limit are held, loaders look up in 96 MiB of a mapped table; waiting for data that were evicted is as true",
			Parts: limited([]string{"--memory", "500m"}, "reclaim.py", "--kind", "loaders"), Phases: aloneFor(20, "memory/reclaim", "input/cache"), Steps: 20},
	}}
}

// pinned: a thread between loaders and trainer.
func pinned() Family {
	return Family{Name: "pinned", Why: "DataLoader with a thread between loaders and trainer, as pinned memory has", Jobs: []Job{
		{Name: "starved-threaded", Why: "about 1 CPU is needed, the quota is 0.3", Parts: one("dataloader.py", "--threaded"), Phases: starved(0.3, "input/throttled")},
		{Name: "contended-threaded", Why: "four spinning processes at the same weight on every CPU",
			Parts: one("dataloader.py", "--threaded", "--device-ms", "20"), Phases: besideBusy("input/contended"), WhyNever: makesIt},
		{Name: "balanced-threaded", Why: "its step is declared device wait", Parts: one("dataloader.py", "--threaded", "--image-size", "128", "--batch", "8", "--device-ms", "80"),
			Phases: alone("balanced")},
	}}
}

// inline: the trainer loads.
func inline() Family {
	return Family{Name: "inline", Why: "no workers: the trainer decodes its own batches", Jobs: []Job{
		{Name: "starved-no-workers", Why: "its only thread is out of quota", Parts: one("dataloader.py", "--workers", "0"), Phases: starved(0.3, "compute/host")},
		{Name: "inline-host", Why: "decoding and model take the whole step, on one CPU of two",
			Parts: one("dataloader.py", "--workers", "0", "--device-ms", "5"), Phases: alone("compute/host")},
		{Name: "inline-contended", Why: "its only thread queues behind four spinning processes",
			Parts: one("dataloader.py", "--workers", "0", "--device-ms", "20"), Phases: besideBusy("compute/host"), WhyNever: makesIt},
		{Name: "inline-cache", Why: "the trainer reads 500 MiB round and round under a limit of 320 MiB",
			Parts: limited([]string{"--memory", "320m"}, "memory.py", "--data-mib", "500", "--workers", "0"), Phases: aloneFor(20, "input/cache")},
	}}
}

// threads: loader threads in the training process.
func threads() Family {
	return Family{Name: "threads",
		Why: "loader threads in the training process: nothing but threads' waits tells its roles", Jobs: []Job{
			{Name: "threads-starved", Why: "about 1 CPU is needed, the quota is 0.3", Parts: one("threads.py"), Phases: starved(0.3, "input/throttled")},
			{Name: "threads-contended", Why: "four spinning processes at the same weight on every CPU",
				Parts: one("threads.py", "--device-ms", "20"), Phases: besideBusy("input/contended"), WhyNever: makesIt},
			{Name: "threads-workers", Why: "one loader thread is on a CPU all the time, a core stays free",
				Parts: one("threads.py", "--threads-loading", "1", "--batch", "40", "--device-ms", "5", "--width", "12"), Phases: alone("input/workers")},
			{Name: "threads-balanced", Why: "its step is declared device wait",
				Parts: one("threads.py", "--image-size", "128", "--batch", "8", "--device-ms", "80"), Phases: alone("balanced")},
		}}
}

// largeFiles: long reads from a slow disk.
func largeFiles() Family {
	return Family{Name: "large-files", Why: "long reads of large files from a disk that gives 20 MB/s", Jobs: []Job{
		{Name: "large-read", Why: "4 MiB a step at 20 MB/s: 200 ms of disk", Parts: slowDisk(20, "bigfiles.py"), Phases: alone("input/storage")},
		{Name: "large-map", Why: "2 MiB a step through a mapped file: page faults", Parts: slowDisk(20, "bigfiles.py", "--kind", "map", "--sample-kib", "512"), Phases: alone("input/storage")},
		{Name: "large-cache", Why: "500 MiB read round and round under a limit of 320 MiB",
			Parts: limited([]string{"--memory", "320m"}, "memory.py", "--data-mib", "500", "--sample-kib", "1024", "--batch", "4"), Phases: aloneFor(20, "input/cache")},
	}}
}

// smallFiles: a file for each sample.
func smallFiles() Family {
	return Family{Name: "small-files", HeldOut: true, Why: "a file for each sample; set aside: opens and short reads, and none of them tuned on", Jobs: []Job{
		{Name: "small-read", Why: "32 files a step from a disk that gives 300 reads a second",
			Parts:  fewReads(300, "bigfiles.py", "--kind", "small", "--files", "3000", "--sample-kib", "16", "--batch", "32"),
			Phases: alone("input/storage")},
		{Name: "storage", Why: "each file read cold in small pieces", Parts: one("storage.py"), Phases: alone("input/storage")},
		{Name: "cache", Why: "500 MiB read round and round under a limit of 320 MiB",
			Parts: limited([]string{"--memory", "320m"}, "memory.py", "--data-mib", "500"), Phases: aloneFor(20, "input/cache")},
	}}
}

// remote: reading over the network.
func remote() Family {
	server := Part{Name: "server", Script: "fetch.py", Args: []string{"--serve"}, Unwatched: true}
	fast := Part{Name: "server", Script: "fetch.py", Args: []string{"--serve", "--server-ms", "0", "--sample-kib", "256"}, Unwatched: true}
	return Family{Name: "network-reading", Why: "loaders that read over TCP: loopback, another container, a slow link", Jobs: []Job{
		{Name: "remote", Why: "the server sleeps 20 ms before each answer", Parts: one("sockets.py"), Phases: alone("input/remote")},
		{Name: "remote-http", Why: "another container sleeps 20 ms before each answer", Network: true,
			Parts: []Part{server, {Name: "job", Script: "fetch.py"}}, Phases: alone("input/remote")},
		{Name: "remote-link", Why: "1 MiB a step over a link of 40 Mbit/s: 210 ms", Network: true,
			Parts: []Part{fast, {Name: "job", Script: "fetch.py", IngressMbit: 40}}, Phases: alone("input/remote")},
		{Name: "remote-inline", Why: "no workers: the trainer itself waits for the server", Network: true,
			Parts: []Part{server, {Name: "job", Script: "fetch.py", Args: []string{"--workers", "0"}}}, Phases: alone("input/remote")},
	}}
}
