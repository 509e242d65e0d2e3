package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// prefix begins the names of all containers that a run starts.
const prefix = "regret-"

// job is one container of a mix.
type job struct {
	name, script string
	args         []string
	gpus         int // virtual GPUs of its own
	// memoryMiB is the owner's memory limit, 0: none; wideMiB is one that is enough.
	memoryMiB, wideMiB int
	bestEffort         bool
	stranger           bool // not enrolled, no quota: a neighbour
	starved            bool // its equal share is far below its knee: the goals on starved jobs are for it
	switches           bool // changes over when the mix does
}

// mix is what runs together. Every container has an equal share of the CPUs, as quota
// and as weight, before anybody tunes; strangers have the weight alone.
type mix struct {
	name, why string
	jobs      []job
	// phases is 2 where jobs change in the middle of every measurement, else 1.
	phases int
	// settle is how many seconds a change of resources takes to show.
	settle float64
}

// container names a job's container.
func (m mix) container(j job) string { return prefix + m.name + "-" + j.name }

// images is PyTorch's DataLoader before a real model: about 72 ms of CPU a step of
// 75 ms, so its knee is just below one CPU.
func images(name string) job {
	return job{name: name, script: "dataloader.py", args: []string{"--every", "2"}, starved: true}
}

// loaders is a C++ trainer whose loader threads cost so many CPU ms for each 20 ms step.
func loaders(name string, cpuMs int) job {
	return native(name, "--every", "5", "--kernels", "10", "--kernel-us", "2000", "--loader-threads", "2", "--loader-ms", strconv.Itoa(cpuMs))
}

// light keeps its device busy 40 ms a step, and a CPU hardly at all.
func light(name string) job {
	return native(name, "--every", "5", "--kernels", "20", "--kernel-us", "2000")
}

// native waits for its device asleep. CUDA's default is to spin, which wants a whole CPU
// of each job, whatever it computes there: spinning has a mix of its own.
func native(name string, args ...string) job {
	return job{name: name, script: gpu.Script, args: append([]string{"/opt/trimtab-vgpu/" + gpu.Trainer, "--sync", "blocking"}, args...), gpus: 1}
}

// spins waits for its device as CUDA does by default.
func spins(j job) job {
	for i := range j.args {
		if j.args[i] == "--sync" {
			j.args = slices.Delete(slices.Clone(j.args), i, i+2)
			return j
		}
	}
	return j
}

// pair is one job on two devices: two ranks that reduce after each step of 40 ms, with
// loaders that cost so many CPU ms a step each. It is a mix's first job: it takes the
// devices from 0 on.
func pair(name string, cpuMs int) job {
	j := native(name, "--every", "5", "--kernels", "20", "--kernel-us", "2000", "--ranks", "2", "--allreduce-mib", "1",
		"--loader-threads", "1", "--loader-ms", strconv.Itoa(cpuMs))
	j.gpus = 2
	return j
}

// torch is PyTorch's DataLoader before a virtual GPU: 40 ms of kernels a step.
func torch(name string, decodeMs int) job {
	return job{name: name, script: "gpu/trainer.py", gpus: 1,
		args: []string{"--sync", "blocking", "--every", "5", "--workers", "1", "--decode-ms", strconv.Itoa(decodeMs), "--kernels", "20", "--kernel-us", "2000"}}
}

func turns(name string, args ...string) job {
	return job{name: name, script: "switch.py", args: append([]string{"--every", "2"}, args...), switches: true}
}

func hungry(j job) job {
	j.starved = true
	return j
}

func lowly(j job) job {
	j.bestEffort = true
	return j
}

// mixes are all that is measured: on two CPUs, an equal share of four to eight jobs is
// 0.5 to 0.25 CPUs.
func mixes() []mix {
	return []mix{
		{name: "uneven", why: "one DataLoader job needs a CPU, five jobs little; one of them holds two devices", phases: 1, settle: 1.5, jobs: []job{
			pair("pair", 4), images("images"), torch("torch", 5), light("l1"), light("l2"), light("l3")}},
		{name: "noisy", why: "an unenrolled neighbour spins on two CPUs beside one hungry DataLoader job and four light ones, one of them best-effort", phases: 1, settle: 1.5, jobs: []job{
			images("images"), light("l1"), light("l2"), light("l3"), lowly(light("l4")),
			{name: "stranger", script: "neighbour.py", args: []string{"--processes", "2"}, stranger: true}}},
		{name: "bursty", why: "two DataLoader jobs need a CPU in turns of two seconds, three jobs hardly any", phases: 1, settle: 1.5, jobs: []job{
			turns("b1", "--period", "4"), turns("b2", "--period", "4", "--late"), light("l1"), light("l2"), light("l3")}},
		{name: "even", why: "four jobs that need 0.4 to 0.45 CPUs each: equal shares are enough", phases: 1, settle: 1.5, jobs: []job{
			torch("t1", 14), torch("t2", 14),
			native("c1", "--every", "5", "--kernels", "20", "--kernel-us", "2000", "--loader-threads", "2", "--loader-ms", "16"),
			native("c2", "--every", "5", "--kernels", "20", "--kernel-us", "2000", "--loader-threads", "2", "--loader-ms", "16")}},
		{name: "memory", why: "one job reads more than its memory limit keeps, one needs 0.65 CPUs", phases: 1, settle: 5, jobs: []job{
			{name: "cache", script: "memory.py", args: []string{"--every", "2", "--data-mib", "500"}, memoryMiB: 320, wideMiB: 1024},
			hungry(loaders("h1", 12)), light("l1"), light("l2"), light("l3")}},
		{name: "changing", why: "one DataLoader job needs a CPU until the middle, another from then on", phases: 2, settle: 1.5, jobs: []job{
			turns("c1", "--begin", "heavy"), turns("c2", "--begin", "light"), light("l1"), light("l2"), light("l3")}},
		{name: "spinning", why: "the same as uneven, but who has a device waits for it spinning, and wants a CPU whatever it needs", phases: 1, settle: 1.5, jobs: []job{
			spins(pair("pair", 4)), images("images"), spins(torch("torch", 5)), spins(light("l1")), spins(light("l2")), spins(light("l3"))}},
		{name: "uneven8", why: "two of eight jobs need 0.65 CPUs each, and the others leave them as much", phases: 1, settle: 1.5, jobs: []job{
			hungry(loaders("h1", 12)), hungry(loaders("h2", 12)), torch("torch", 5), light("l1"), light("l2"), light("l3"), light("l4"), light("l5")}},
	}
}

// smoke is no mix to be judged by: it starts in seconds, to see that all parts work.
func smoke() mix {
	return mix{name: "smoke", why: "one of four C++ trainers is starved; to try the benchmark out", phases: 1, settle: 1, jobs: []job{
		hungry(loaders("h1", 24)), light("l1"), light("l2"), light("l3")}}
}

// chosen are the mixes of a comma-separated list; without one all but smoke.
func chosen(only string) ([]mix, error) {
	if only == "" {
		return mixes(), nil
	}
	all := append(mixes(), smoke())
	var out []mix
	for name := range strings.SplitSeq(only, ",") {
		found := false
		for _, m := range all {
			if m.name == name {
				out, found = append(out, m), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only %s: there is: %s", name, strings.Join(mixNames(), ", "))
		}
	}
	return out, nil
}

func mixNames() (names []string) {
	for _, m := range mixes() {
		names = append(names, m.name)
	}
	return names
}
