package main

import (
	"fmt"
	"os/exec"
	goruntime "runtime"
)

// work is what a container is to do.
type work struct {
	args []string
	env  []string
	cpus float64 // quota; 0: none
}

// truth is a job whose bottleneck is known because it was built so.
type truth struct {
	name, why string
	want      []string // verdicts that are right
	work      work
}

// trainer is the virtual GPU's; script is train.py on a real device.
func trainer(args ...string) work {
	return work{args: append([]string{insideDir + "/vgpu/trainer"}, args...)}
}

func script(args ...string) work {
	python, err := exec.LookPath("python3")
	if err != nil {
		python = "python3" // the container's start says that there is none
	}
	return work{args: append([]string{python, insideDir + "/train.py"}, args...)}
}

// truths are the jobs; on the virtual GPU four of train.py's are the trainer's. A checkpoint is no bottleneck: the verdict is to stay.
func (c *check) truths() []truth {
	all := []truth{
		{name: "device", why: "about 40 ms of kernels a step, nothing else", want: []string{"compute/device"},
			work: trainer("--kernels", "20", "--kernel-us", "2000")},
		{name: "input", why: "one loader needs 60 ms a batch, the device about 10 ms", want: []string{"input/workers"},
			work: trainer("--kernels", "5", "--kernel-us", "2000", "--loader-threads", "1", "--loader-ms", "60")},
		{name: "launch", why: "many tiny kernels, launched one by one: the device waits for the CPU", want: []string{"compute/host"},
			work: trainer("--tiny")},
		{name: "checkpoint", why: "device-bound, and saves what it learnt every few seconds", want: []string{"compute/device"},
			work: trainer("--kernels", "20", "--kernel-us", "2000", "--checkpoint-every", "80", "--checkpoint-mib", "64", "--checkpoint-dir", insideSave)},
	}
	if c.node != nil {
		return append(all, plain()...)
	}
	device := []string{"compute/device"}
	all = append(all,
		truth{name: "async", why: "device-bound, and waits for nothing: the launch queue is full all the time", want: device},
		truth{name: "each50", why: "device-bound, and reads its loss every 50 steps", want: device},
		truth{name: "graph", why: "device-bound, a step is one graph launch", want: device},
		truth{name: "compiled", why: "device-bound, by torch.compile with 40 compile workers", want: device},
		truth{name: "copies", why: "device-bound, with copies from pinned memory ahead in a second stream", want: device},
		truth{name: "saver", why: "device-bound; a second thread saves every 5 s", want: device},
		truth{name: "polling", why: "device-bound, and waits by asking an event", want: device},
		truth{name: "memory", why: "device-bound, by the memory's bandwidth", want: device},
		truth{name: "collective", why: "60 ms of a spinning kernel beside NCCL's calls, 5 ms of work a step", want: []string{"communication/straggler", "communication/network"}})
	for i := range all {
		all[i].work = script("--job", all[i].name, "--save", insideSave)
	}
	return append(all, plain()...)
}

// starved is a job whose loaders have less than half of the CPU that they need for
// what the device takes.
func (c *check) starved() work {
	var w work
	if c.node != nil {
		w = trainer("--kernels", "10", "--kernel-us", "2000", "--loader-threads", "2", "--loader-ms", "30")
		w.cpus = 0.5
		return w
	}
	loaders := min(4, max(1, goruntime.NumCPU()-2))
	w = script("--job", "starved", "--workers", fmt.Sprint(loaders))
	w.cpus = max(0.4, float64(loaders)/4)
	return w
}
