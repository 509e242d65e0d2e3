package main

// virtualFamilies compute on the virtual GPU: kernels take the time that they are
// said to take, whatever the machine, and nobody's real GPU is needed.
func virtualFamilies() []Family {
	return []Family{gpuCPP(), gpuTorch(), gpuNumpy()}
}

// onGPU is one container with the C++ trainer.
func onGPU(args ...string) []Part {
	return []Part{gpuPart("", args...)}
}

func gpuPart(name string, args ...string) Part {
	return Part{Name: name, Script: "gpu/run.py", Args: append([]string{"/opt/trimtab-vgpu/trainer"}, args...)}
}

// kernels20 is 40 ms of kernels a step.
func kernels20(more ...string) []string {
	return append([]string{"--kernels", "20", "--kernel-us", "2000"}, more...)
}

// rankPair is two ranks in one container, each on its device, with little to exchange.
func rankPair() []string {
	return []string{"--ranks", "2", "--sync", "blocking", "--allreduce-mib", "0.25"}
}

// reduceOverhead is a step of two graph launches.
func reduceOverhead() []string {
	return []string{"--graph", "--accumulate", "2", "--kernels", "10", "--kernel-us", "2000", "--h2d-mib", "1", "--host-ms", "1", "--sync", "item"}
}

func gpuCPP() Family {
	return Family{Name: "gpu-cpp", Why: "a C++ trainer on CUDA's runtime: streams, graphs, tiny launches, spinning", Jobs: []Job{
		{Name: "gpu-device", Knee: 0.9, Why: "40 ms of kernels a step, nothing else", Devices: 2, Parts: onGPU(kernels20()...), Phases: alone("compute/device")},
		{Name: "gpu-graph", Knee: 0.9, Why: "the same as one graph launch a step", Devices: 2, Parts: onGPU(kernels20("--graph")...), Phases: alone("compute/device")},
		{Name: "gpu-spin", Knee: 0.9, Why: "the same; synchronisation spins on a CPU", Devices: 2, Parts: onGPU(kernels20("--sync", "spin")...), Phases: alone("compute/device")},
		{Name: "gpu-async", Knee: 0.03, Why: "the same, and waits for nothing: it spins in a full launch queue", Devices: 2, Parts: onGPU(kernels20("--wait-every", "0")...), Phases: alone("compute/device")},
		{Name: "gpu-each50", Knee: 0.03, Why: "the same, and waits every 50 steps", Devices: 2, Parts: onGPU(kernels20("--wait-every", "50")...), Phases: alone("compute/device")},
		{Name: "gpu-poll", Knee: 0.9, Why: "the same; it asks an event again and again", Devices: 2, Parts: onGPU(kernels20("--sync", "poll")...), Phases: alone("compute/device")},
		{Name: "gpu-async-starved", Knee: 0.05, Why: "never waits, under a quota of 0.05 CPUs: launches are a thousand ahead, and it loses nothing", Devices: 2,
			Parts: onGPU(kernels20("--wait-every", "0")...), Phases: starved(0.05, "compute/device")},
		{Name: "gpu-each50-starved", Knee: 0.05, KneeOrLess: true, Why: "waits every 50 steps, under a quota of 0.05 CPUs: it loses next to nothing", Devices: 2,
			Parts: onGPU(kernels20("--wait-every", "50")...), Phases: starved(0.05, "compute/device")},
		{Name: "gpu-poll-starved", Knee: 0.9, Why: "polls for each step under a quota of half a CPU, which ends while it asks: a step is over and not seen to be", Devices: 2,
			Parts: onGPU(kernels20("--sync", "poll")...), Phases: starved(0.5, "compute/host")},
		{Name: "gpu-whole-graph", Why: "two ranks in one container; a step is one graph launch of 40 ms, the all-reduce within", Devices: 2, Hopper: true,
			Parts: onGPU(append(kernels20("--whole-graph"), rankPair()...)...), Phases: alone("compute/device")},
		{Name: "gpu-whole-graph-straggler", Why: "the same of 10 ms; rank 1 needs 80 ms of CPU more, for which the other waits", Devices: 2, Hopper: true,
			Parts:  onGPU(append([]string{"--whole-graph", "--kernels", "10", "--kernel-us", "1000", "--slow-rank", "1", "--slow-ms", "80"}, rankPair()...)...),
			Phases: alone("communication/straggler")},
		{Name: "gpu-reduce-overhead", Knee: 0.9, Why: "torch.compile's reduce-overhead: a copy into static inputs and a graph launch of 20 ms, twice a step, 1 ms of Python each; it reads its loss", Devices: 2,
			Parts: onGPU(reduceOverhead()...), Phases: alone("compute/device")},
		{Name: "gpu-compiled", Why: "the same beside the 40 compile workers that PyTorch leaves running", Devices: 2,
			Parts: []Part{{Script: "gpu/compiled.py", Args: append([]string{"40", "/opt/trimtab-vgpu/trainer"}, reduceOverhead()...)}}, Phases: alone("compute/device"), Steps: 500},
		{Name: "gpu-copies", Why: "40 ms of kernels a step; a second stream copies 32 MiB a step from pinned memory ahead", Devices: 2,
			Parts: []Part{{Script: "gpu/run.py", Args: append([]string{"/opt/trimtab-vgpu/trainer"}, kernels20("--h2d-mib", "32", "--ahead")...),
				Docker: []string{"-e", "TRIMTAB_VGPU_COPY_MAX=65536"}}}, Phases: alone("compute/device")},
		{Name: "gpu-saver", Why: "40 ms of kernels a step; a second thread copies 64 MiB of state out and saves it, every 50 steps", Devices: 2,
			Parts: onGPU(kernels20("--checkpoint-every", "50", "--saver")...), Phases: alone("compute/device")},
		{Name: "gpu-tiny", Knee: 1, Why: "2000 launches of 5 us a step, 10 us of CPU each: the device idles", Devices: 2, Parts: onGPU("--tiny"), Phases: alone("compute/host")},
		{Name: "gpu-tiny-starved", Knee: 1, Why: "launch-bound, under a quota of half a CPU", Devices: 2, Parts: onGPU("--tiny"), Phases: starved(0.5, "compute/host")},
		{Name: "gpu-workers", Knee: 1.2, Why: "two loader threads need 30 ms a batch, the device 8 ms", Devices: 2,
			Parts: onGPU("--kernels", "4", "--kernel-us", "2000", "--loader-threads", "1", "--loader-ms", "40"), Phases: alone("input/workers")},
		{Name: "gpu-starved", Why: "loaders need 1.5 CPUs for what the device takes, the quota is 0.5", Devices: 2,
			Parts: onGPU("--kernels", "10", "--kernel-us", "2000", "--loader-threads", "2", "--loader-ms", "30"), Phases: starved(0.5, "input/throttled")},
		{Name: "gpu-shared", Why: "two containers on one device, each with 40 ms of kernels a step", Devices: 1,
			Parts: []Part{gpuPart("a", kernels20()...), gpuPart("b", kernels20()...)}, Phases: aloneFor(18, "compute/shared")},
		{Name: "gpu-clocks", Why: "device-bound; then heat holds its clock at a third", Devices: 1, Parts: onGPU(kernels20()...), Phases: thenBeside(
			Phase{Name: "cool", Seconds: 12, Truth: is("compute/device")},
			Phase{Name: "hot", Seconds: 14, Truth: is("compute/clocks"), Device: []string{"clock-mhz=600", "slowdown=64", "temp-c=95"}})},
		{Name: "gpu-network", Why: "4 MiB a step all-reduced by two containers over links of 200 Mbit/s: 170 ms", Devices: 2, Network: true,
			Parts: nccl(200, "--kernels", "10", "--kernel-us", "1000", "--allreduce-mib", "4"), Phases: alone("communication/network")},
		{Name: "gpu-straggler", Why: "rank 1 needs 80 ms of CPU more than rank 0, which waits for it", Devices: 2, Network: true,
			Parts:  nccl(0, "--kernels", "10", "--kernel-us", "1000", "--allreduce-mib", "1", "--slow-rank", "1", "--slow-ms", "80"),
			Phases: withPart("r1", is("compute/host"), alone("communication/straggler"))},
		{Name: "gpu-two-straggler-device", Why: "two ranks in one container; the device of rank 1 needs 80 ms more, for which the other spins", Devices: 2, Hopper: true,
			Parts:  onGPU("--ranks", "2", "--kernels", "10", "--kernel-us", "1000", "--allreduce-mib", "0.25", "--slow-rank", "1", "--slow-ms", "80", "--slow-on", "device"),
			Phases: alone("communication/straggler")},
		{Name: "gpu-eight", Why: "eight equal ranks in one container, 100 ms of kernels a step on a device each", Devices: 8,
			Parts: onGPU("--ranks", "8", "--sync", "blocking", "--kernels", "10", "--kernel-us", "10000", "--allreduce-mib", "0.25"), Phases: alone("compute/device")},
		{Name: "gpu-eight-straggler", Why: "eight ranks in one container, rank 5 needs 80 ms of CPU more than the others, which wait for it", Devices: 8,
			Parts:  onGPU("--ranks", "8", "--sync", "blocking", "--kernels", "10", "--kernel-us", "2000", "--allreduce-mib", "0.25", "--slow-rank", "5", "--slow-ms", "80"),
			Phases: alone("communication/straggler")},
		{Name: "gpu-paused", Why: "holds its memory and launches nothing any more", Devices: 2, Parts: onGPU(kernels20("--pause-at", "3")...),
			Phases: []Phase{{Name: "paused", AtS: 4, Seconds: 46, Truth: is("idle")}, {Name: "beside", Seconds: 46, Truth: is("idle"), Neighbour: quiet}}},
	}}
}

// nccl is two containers of one rank each.
func nccl(mbit int, args ...string) []Part {
	out := []Part{gpuPart("r0", append([]string{"--nccl", "0/2/r0:29501", "--device", "0"}, args...)...),
		gpuPart("r1", append([]string{"--nccl", "1/2/r0:29501", "--device", "1"}, args...)...)}
	for i := range out {
		out[i].IngressMbit = mbit
	}
	return out
}

func gpuTorch() Family {
	return Family{Name: "gpu-torch", Why: "PyTorch's real DataLoader before a CUDA device", Jobs: []Job{
		{Name: "gpu-torch-device", Why: "40 ms of kernels a step, loaders ahead", Devices: 2,
			Parts: one("gpu/trainer.py", "--workers", "2", "--decode-ms", "10", "--kernels", "20", "--kernel-us", "2000", "--pin"), Phases: alone("compute/device")},
		{Name: "gpu-torch-workers", Knee: 1.33, Why: "one loader needs 60 ms a batch, the device 20 ms", Devices: 2,
			Parts: one("gpu/trainer.py", "--workers", "1", "--decode-ms", "60", "--kernels", "10", "--kernel-us", "2000"), Phases: alone("input/workers")},
		{Name: "gpu-torch-starved", Why: "loaders need 0.9 CPUs for what the device takes, the quota is 0.4", Devices: 2,
			Parts:  one("gpu/trainer.py", "--workers", "2", "--decode-ms", "30", "--kernels", "15", "--kernel-us", "2000", "--pin", "--accumulate", "4"),
			Phases: starved(0.4, "input/throttled")},
		{Name: "gpu-torch-host", Knee: 1.08, Why: "60 ms of Python between 5 ms of kernels: the device idles", Devices: 2,
			Parts: one("gpu/trainer.py", "--workers", "1", "--decode-ms", "5", "--kernels", "50", "--kernel-us", "100", "--host-ms", "60"), Phases: alone("compute/host")},
	}}
}

func gpuNumpy() Family {
	return Family{Name: "gpu-numpy", HeldOut: true, Why: "NumPy, loader threads and a CUDA device in one process; set aside: the virtual part's own", Jobs: []Job{
		{Name: "gpu-numpy-device", Why: "40 ms of kernels a step, loaders ahead", Devices: 2,
			Parts: one("gpu/numpy_trainer.py", "--loaders", "2", "--loader-ms", "10", "--kernels", "20", "--kernel-us", "2000"), Phases: alone("compute/device")},
		{Name: "gpu-numpy-workers", Knee: 1.17, Why: "one loader thread needs 60 ms a batch, the device 10 ms", Devices: 2,
			Parts: one("gpu/numpy_trainer.py", "--loaders", "1", "--loader-ms", "60", "--kernels", "5", "--kernel-us", "2000"), Phases: alone("input/workers")},
		{Name: "gpu-numpy-host", Knee: 1.16, Why: "60 ms of arithmetic between 2 ms of kernels: the device idles", Devices: 2,
			Parts:  one("gpu/numpy_trainer.py", "--loaders", "1", "--loader-ms", "10", "--kernels", "20", "--kernel-us", "100", "--host-ms", "60"),
			Phases: alone("compute/host")},
	}}
}
