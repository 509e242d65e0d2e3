package advice

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/checkpoint"
	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	hour = int64(3600e9)
	now  = 1000 * hour
	gib  = float64(1 << 30)
)

// host is one of eight CPUs with 64 GiB, of which six CPUs and 30 GiB are free.
func host(all ...state.Container) *state.Snapshot {
	return &state.Snapshot{UnixNs: now, Daemon: state.Daemon{Mode: policies.ModeTune}, Containers: all,
		Node: policies.Node{CPUs: 8, Reserve: 0.8, Idle: 6, Memory: 64 * gib, ReserveMemory: 4 * gib, MemoryFree: 30 * gib}}
}

func tuned(families ...string) policies.Enrolment {
	return policies.Enrolment{Mode: policies.ModeTune, Knobs: families}
}

func quota(cpus float64) runtime.Values {
	return runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(cpus, 100_000)}
}

// lent has a quota of one CPU, and a loan of 0.75 that settled an hour ago.
func lent() state.Container {
	return state.Container{Key: "k", ID: "4f0c77aa", Engine: "docker", Name: "train", Watched: true, Enrolment: tuned("cpu"), Changed: []runtime.Knob{runtime.KnobCPUQuota},
		Original: quota(1), Now: quota(1.75), Loan: &state.Loan{Own: 1, CPUs: 0.75, Settled: true, SinceUnixNs: now - hour}, Gain: 0.6, HasGain: true}
}

// starved is stopped by its quota of half a CPU, and only watched.
func starved() state.Container {
	c := state.Container{Key: "k", ID: "4f0c77aa", Engine: "docker", Name: "train", Watched: true, Enrolment: policies.Enrolment{Mode: policies.ModeObserve},
		Original: quota(0.5), Now: quota(0.5), Obtainable: 4, VerdictSinceUnixNs: now - hour}
	c.Verdict = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Relief: policies.ReliefQuota, Confidence: 0.8, Severity: 0.6}
	c.Cost = policies.Cost{TrainerCPU: 0.02, Device: 0.02, LoaderCPU: 0.04, Batch: 0.05, Loaders: 4, Ticks: 100}
	c.Knee = c.Cost.Knee()
	return c
}

// saving stops for three seconds in each thirty to write its state.
func saving() state.Container {
	return state.Container{Key: "k", ID: "4f0c77aa", Engine: "docker", Name: "train", Watched: true,
		Pauses: checkpoint.Seen{Cycles: 10, EverySeconds: 30, LostSeconds: 3, LowSeconds: 2, HighSeconds: 4, Bytes: 64 << 20}}
}

// loading waits for its two loaders.
func loading() state.Container {
	c := starved()
	c.Original, c.Now = nil, nil
	c.Verdict.Cause, c.Verdict.Relief = policies.CauseWorkers, "more loader workers"
	c.Cost = policies.Cost{TrainerCPU: 0.02, Device: 0.05, LoaderCPU: 0.2, Batch: 0.25, Loaders: 2, Ticks: 100}
	c.Knee, c.Rate = c.Cost.Knee(), policies.Rate{PerSecond: 8, Steps: true, Source: "torch.optim"}
	return c
}

// crowded computes on 16 threads with a quota of four CPUs.
func crowded() state.Container {
	c := starved()
	c.Original, c.Now, c.Knee = quota(4), quota(4), 0
	c.Verdict = policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Relief: policies.ReliefQuota, Confidence: 0.8}
	c.Team = policies.Team{Threads: 16, Wanted: 14, Unrun: 0.7, Behind: 0.01}
	c.Breakdown = policies.Breakdown{WallNs: 100, Ns: [policies.NumParts]int64{policies.PartCompute: 20, policies.PartThrottled: 60, policies.PartDevice: 20}}
	return c
}

// copying spends 30 % of its time inside asynchronous copies of 16 MiB to a device that idles for 40 %.
func copying() state.Container {
	c := starved()
	c.Original, c.Now, c.Knee = nil, nil, 0
	c.Verdict = policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Confidence: 0.8}
	c.Rate = policies.Rate{PerSecond: 100, Steps: true, Source: "torch.optim"}
	c.Staging = policies.Staging{Calls: 100, CallSeconds: 3e-3, MiBSeconds: 3e-3 / 16, Share: 0.3, Idle: 0.4}
	return c
}

// unrun is the time of a trainer that is kept from its CPU for so many hundredths.
func unrun(throttled, contended int64) policies.Breakdown {
	return policies.Breakdown{WallNs: 100, Ns: [policies.NumParts]int64{policies.PartCompute: 50, policies.PartThrottled: throttled, policies.PartContended: contended}}
}

// filled holds 60 of the 64 MiB of its /dev/shm.
func filled() state.Container {
	return state.Container{Key: "k", Name: "train", Watched: true, SharedBytes: 64 << 20, MemoryUse: policies.MemoryUse{Read: true, Shared: 60 << 20}}
}

// paging reads again what its limit of 1 GiB evicted, and was lent 2 GiB ten minutes ago.
func paging() state.Container {
	limit := func(bytes float64) runtime.Values {
		return runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(int64(bytes))}
	}
	return state.Container{Key: "k", ID: "4f0c77aa", Name: "train", Watched: true, Enrolment: tuned("cpu", "memory"), Changed: []runtime.Knob{runtime.KnobMemoryLimit},
		Original: limit(gib), Now: limit(3 * gib), Paging: policies.Paging{Base: 0.1, Lost: 0.1, Limit: gib, Set: 2.5 * gib},
		MemoryUse: policies.MemoryUse{Read: true, Limit: 3 * gib, CalmSeconds: 60, Loan: policies.MemoryLoan{From: gib, Before: 1e6, After: 1e3, Seconds: 600}}}
}

func holder(key string, idleHours float64) state.Holder {
	h := state.Holder{Key: key, Name: "train", MemBytes: 10 << 30, HeldSeconds: 99 * 3600, SinceUnixNs: now - 99*hour}
	if idleHours > 0 {
		h.Idle, h.Evidence, h.QuietSeconds, h.IdleSeconds, h.QuietUnixNs = true, string(idle.ByDevice), idleHours*3600, idleHours*3600, now-int64(idleHours*float64(hour))
	}
	return h
}

// far waits for reads over the network, where its only network mount may be told.
func far(mount string) state.Container {
	c := starved()
	c.Verdict = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseRemote, Confidence: 1}
	c.Breakdown, c.NetworkMount = policies.Breakdown{WallNs: 100}, mount
	c.Breakdown.Ns[policies.PartInputRemote] = 40
	return c
}

// pinned is the advice of copies that block, as told.
func pinned(share, high, hours int) string {
	return fmt.Sprintf("loader.pinned pinned, now pageable (pin_memory=True): its asynchronous copies to the device block, as those from memory that is not pinned do, and the device idles. Gives %d %% (0 to %d %%) of its run time, %d h a week; confidence 40 %%", share, high, hours)
}

func with[T any](v T, edit func(*T)) T {
	edit(&v)
	return v
}

// TestRoomAboveTheKnee: the CPU time of a period of the quota varies by a step at the most. So steps
// that are short beside it need less room than those of which one fills it.
func TestRoomAboveTheKnee(t *testing.T) {
	for name, tt := range map[string]struct {
		step, batch float64 // seconds
		period      string  // us
		edit        func(*state.Container)
		want        float64
	}{
		"many steps in a period":   {0.01, 0, "100000", nil, 1.1 * 1.05},
		"batches take longer":      {0.01, 0.02, "100000", nil, 1.2 * 1.05},
		"a step fills the period":  {0.1, 0, "100000", nil, burstRoom},
		"a shorter period":         {0.01, 0, "10000", nil, burstRoom},
		"steps are not confirmed":  {0.01, 0, "100000", func(c *state.Container) { c.Rate.Steps = false }, burstRoom},
		"steps are not seen":       {0.01, 0, "100000", func(c *state.Container) { c.Aggregated = true }, burstRoom},
		"its period was not read":  {0.01, 0, "", nil, burstRoom},
		"nothing of it takes time": {0, 0, "100000", nil, 1.05},
	} {
		c := starved()
		c.Original = runtime.Values{runtime.KnobCPUQuota: runtime.Value("50000 " + tt.period)}
		c.Rate.Steps, c.Cost = true, policies.Cost{TrainerCPU: tt.step, Batch: tt.batch, Loaders: 1}
		if tt.edit != nil {
			tt.edit(&c)
		}
		if got := (node{k: policies.DefaultConstants()}).room(c); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %.3f times the knee, want %.3f", name, got, tt.want)
		}
	}
}

// TestWhatIsAdvised: each rule where it has its evidence, and where a part of that is missing.
func TestWhatIsAdvised(t *testing.T) {
	gpus := func(edit func(*state.Snapshot)) *state.Snapshot {
		return with(host(state.Container{Key: "k", ID: "4f0c77aa", Engine: "docker", Name: "train"}), func(s **state.Snapshot) { edit(*s) })
	}
	device := func(uuid string, all ...state.Holder) state.Device {
		return state.Device{UUID: uuid, Name: "A100", MemTotal: 80 << 30, Holders: all}
	}
	spare := state.Container{Key: "k", Name: "web", Original: quota(4), Now: quota(4), PeakCPUs: 0.8, PeakSinceUnixNs: now - 7*24*hour}
	for name, tt := range map[string]struct {
		s    *state.Snapshot
		want string
	}{
		"a settled loan": {host(lent()), "cpu.quota 1.75 CPUs, now 1.0 CPUs (--cpus=1.75): with it nothing holds the container back; as a loan it stands only while nobody else wants the CPU. Gives 38 % (22 to 50 %) of its run time, 63 h a week; confidence 90 %"},
		"only the CPU that it uses tells": {host(with(lent(), func(c *state.Container) { c.HasGain, c.Work = false, &state.Work{CPUs: 1.5} })),
			"cpu.quota 1.75 CPUs, now 1.0 CPUs (--cpus=1.75): with it nothing holds the container back; as a loan it stands only while nobody else wants the CPU. Gives 17 % (0 to 33 %) of its run time, 28 h a week; confidence 50 %"},
		"a loan that has not settled":   {host(with(lent(), func(c *state.Container) { l := *c.Loan; l.Settled = false; c.Loan = &l })), ""},
		"a loan that brought nothing":   {host(with(lent(), func(c *state.Container) { c.Gain = 0.01 })), ""},
		"nothing tells what it brought": {host(with(lent(), func(c *state.Container) { c.HasGain = false })), ""},
		"more than the host has":        {with(host(lent()), func(s **state.Snapshot) { (*s).Node.CPUs = 1.5 }), ""},
		"a quota that a trial proved": {host(with(lent(), func(c *state.Container) {
			c.Loan, c.Trials = nil, []state.Trial{{Outcome: state.OutcomeKept, EndedUnixNs: now - hour, Low: 1.5, High: 1.7, Changes: []policies.Change{{Knob: runtime.KnobCPUQuota, To: quota(1.75)[runtime.KnobCPUQuota]}}}}
		})), "cpu.quota 1.75 CPUs, now 1.0 CPUs (--cpus=1.75): a trial proved it; trimtab reverts it on exit. Gives 38 % (33 to 41 %) of its run time, 63 h a week; confidence 90 %"},
		"starved, and only watched":    {host(starved()), "cpu.quota 2.25 CPUs, now 0.5 CPUs (--cpus=2.25): its quota stops it, and trimtab may not lend it any. Gives 67 % (50 to 78 %) of its run time, 112 h a week; confidence 48 %"},
		"starved, and it will be lent": {host(with(starved(), func(c *state.Container) { c.Enrolment = tuned("cpu") })), ""},
		"starved, and others have all": {host(with(starved(), func(c *state.Container) { c.Obtainable = 0.5 })), ""},
		"starved, and hardly sure":     {host(with(starved(), func(c *state.Container) { c.Verdict.Confidence = 0.3 })), ""},
		"a part is used in a week":     {host(spare), "cpu.spare 1.2 CPUs, now 4.0 CPUs (--cpus=1.2): since 4 Feb 16:00 UTC it wanted at most 0.80 CPUs: with a smaller quota the rest can be promised to others. Gives 70 % (40 to 80 %) of that CPU to promise to others, 470 h a week; confidence 50 %"},
		"a part in six days":           {host(with(spare, func(c *state.Container) { c.PeakSinceUnixNs = now - 6*24*hour })), ""},
		"hardly anything is used":      {host(with(spare, func(c *state.Container) { c.PeakCPUs = 0.05 })), "cpu.spare 1.0 CPUs, now 4.0 CPUs (--cpus=1.0): since 4 Feb 16:00 UTC it wanted at most 0.05 CPUs: with a smaller quota the rest can be promised to others. Gives 75 % (50 to 99 %) of that CPU to promise to others, 504 h a week; confidence 50 %"},
		"a tenth of many is left": {with(host(with(spare, func(c *state.Container) { c.Original = quota(64) })), func(s **state.Snapshot) { (*s).Node.CPUs = 64 }),
			"cpu.spare 6.4 CPUs, now 64.0 CPUs (--cpus=6.4): since 4 Feb 16:00 UTC it wanted at most 0.80 CPUs: with a smaller quota the rest can be promised to others. Gives 90 % (80 to 99 %) of that CPU to promise to others, 9677 h a week; confidence 50 %"},
		"it was idle all week": {host(with(spare, func(c *state.Container) { c.PeakCPUs = 0.01 })), ""},
		"its use was not read": {host(with(spare, func(c *state.Container) { c.PeakCPUs = 0 })), ""},
		"its quota stops it":   {host(with(spare, func(c *state.Container) { c.Verdict.Cause = policies.CauseThrottled })), ""},
		"others take its CPU":  {host(with(spare, func(c *state.Container) { c.Verdict.Cause = policies.CauseContended })), ""},
		"half is used":         {host(with(spare, func(c *state.Container) { c.PeakCPUs = 2 })), ""},
		"no quota, by its right": {host(with(spare, func(c *state.Container) {
			c.Original, c.Now, c.Entitled = runtime.Values{runtime.KnobCPUQuota: "max 100000"}, nil, 3
		})),
			"cpu.spare 1.2 CPUs, now 3.0 CPUs (--cpus=1.2): since 4 Feb 16:00 UTC it wanted at most 0.80 CPUs: with a smaller quota the rest can be promised to others. Gives 60 % (20 to 73 %) of that CPU to promise to others, 302 h a week; confidence 50 %"},
		"its values were not read":   {host(with(spare, func(c *state.Container) { c.Original, c.Now, c.Entitled = nil, nil, 2 })), ""},
		"memory that settled":        {host(paging()), "memory.limit 3072 MiB, now 1024 MiB (--memory=3072m): with it nothing that was evicted is read again; as a loan it stands only while the host has memory to spare; where --memory-swap is set, raise it by as much. Gives 50 % (25 to 67 %) of its run time, 84 h a week; confidence 90 %"},
		"memory that did not help":   {host(with(paging(), func(c *state.Container) { c.MemoryUse.Loan.After = 1e6 })), ""},
		"memory that the host lacks": {with(host(paging()), func(s **state.Snapshot) { (*s).Node.Memory = 4 * gib }), ""},
		"memory that may not move": {host(with(starved(), func(c *state.Container) {
			c.Verdict = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseCache, Confidence: 1}
			c.Breakdown = policies.Breakdown{WallNs: 100}
			c.Breakdown.Ns[policies.PartInputStorage] = 40
			c.MemoryUse, c.Enrolment = policies.MemoryUse{Read: true, Reread: 90, DiskRead: 100}, tuned("cpu", "$(reboot)")
		})), "memory.allow cpu,memory, now cpu (trimtab enable train --knobs cpu,memory): its memory limit evicts what it reads again; trimtab finds the limit that ends it, where it may and the host's config allows. Gives 18 % (0 to 36 %) of its run time, 30 h a week; confidence 60 %"},
		"memory that may not move, of one that is only watched": {host(with(starved(), func(c *state.Container) {
			c.Verdict = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseCache, Confidence: 1}
			c.Breakdown = policies.Breakdown{WallNs: 100}
			c.Breakdown.Ns[policies.PartInputStorage] = 40
			c.MemoryUse, c.Enrolment.Knobs = policies.MemoryUse{Read: true, Reread: 90, DiskRead: 100}, []string{"cpu"}
		})), "memory.allow cpu,memory, now none (trimtab enable train --knobs cpu,memory): its memory limit evicts what it reads again; trimtab finds the limit that ends it, where it may and the host's config allows; the line lets it change cpu as well, which it only watches now. Gives 18 % (0 to 36 %) of its run time, 30 h a week; confidence 60 %"},
		"a team of four times its quota": {host(crowded()), "cpu.threads 4 threads, now 16 threads (-e OMP_NUM_THREADS=4): more of its threads compute at once than it has CPUs: each waits for those that do not run, and may spin meanwhile. Gives 20 % (0 to 80 %) of its run time, 34 h a week; confidence 44 %"},
		"a team of each of three ranks":  {host(with(crowded(), func(c *state.Container) { c.Ranks = 3 })), "cpu.threads 1 thread, now 16 threads (-e OMP_NUM_THREADS=1): more of its threads compute at once than it has CPUs: each waits for those that do not run, and may spin meanwhile. Gives 20 % (0 to 80 %) of its run time, 34 h a week; confidence 44 %"},
		"a team on half a CPU":           {host(with(crowded(), func(c *state.Container) { c.Now, c.Team.Threads = quota(0.5), 2 })), "cpu.threads 1 thread, now 2 threads (-e OMP_NUM_THREADS=1): more of its threads compute at once than it has CPUs: each waits for those that do not run, and may spin meanwhile. Gives 20 % (0 to 80 %) of its run time, 34 h a week; confidence 44 %"},
		"a team of twice the host": {host(with(crowded(), func(c *state.Container) {
			c.Original, c.Now, c.Verdict.Relief = nil, nil, ""
		})), "cpu.threads 8 threads, now 16 threads (-e OMP_NUM_THREADS=8): more of its threads compute at once than it has CPUs: each waits for those that do not run, and may spin meanwhile. Gives 20 % (0 to 80 %) of its run time, 34 h a week; confidence 44 %"},
		"a team beside others' work": {host(with(crowded(), func(c *state.Container) {
			c.Original, c.Now, c.Verdict.Relief, c.Team.Behind = nil, nil, "", 0.1
		})), ""},
		"a team that runs":                  {host(with(crowded(), func(c *state.Container) { c.Team.Unrun = 0.1 })), ""},
		"a team of a thread for each CPU":   {host(with(crowded(), func(c *state.Container) { c.Team.Threads = 7 })), ""},
		"a team that will be lent more":     {host(with(crowded(), func(c *state.Container) { c.Enrolment = tuned("cpu") })), ""},
		"a team whose loan has not settled": {host(with(crowded(), func(c *state.Container) { c.Enrolment, c.Loan = tuned("cpu"), &state.Loan{Own: 4, CPUs: 1} })), ""},
		"copies that block":                 {host(copying()), pinned(15, 30, 25)},
		"copies that block, and no PyTorch": {host(with(copying(), func(c *state.Container) { c.Rate.Source = "cuda.sync" })),
			strings.Replace(pinned(15, 30, 25), " (pin_memory=True)", "", 1)},
		"copies that block, in balance":                  {host(with(copying(), func(c *state.Container) { c.Verdict.Class, c.Verdict.Cause = policies.ClassBalanced, "" })), pinned(15, 30, 25)},
		"copies that block a device that idles less":     {host(with(copying(), func(c *state.Container) { c.Staging.Idle = 0.2 })), pinned(10, 20, 17)},
		"copies that block a device that is full":        {host(with(copying(), func(c *state.Container) { c.Staging.Idle = 0.01 })), ""},
		"copies from pinned memory":                      {host(with(copying(), func(c *state.Container) { c.Staging.CallSeconds, c.Staging.MiBSeconds = 18e-6, 18e-6/16 })), ""},
		"small copies from pinned memory":                {host(with(copying(), func(c *state.Container) { c.Staging.CallSeconds, c.Staging.MiBSeconds = 18e-6, 18e-6*8 })), ""},
		"copies that take long, and not by the bytes":    {host(with(copying(), func(c *state.Container) { c.Staging.MiBSeconds = 10e-6 })), ""},
		"copies of one that is seldom kept from its CPU": {host(with(copying(), func(c *state.Container) { c.Breakdown = unrun(2, 2) })), pinned(15, 30, 25)},
		"copies of one that is out of quota":             {host(with(copying(), func(c *state.Container) { c.Breakdown = unrun(5, 0) })), ""},
		"copies of one that is behind others":            {host(with(copying(), func(c *state.Container) { c.Breakdown = unrun(3, 3) })), ""},
		"copies that block for a twentieth":              {host(with(copying(), func(c *state.Container) { c.Staging.Share = 0.05 })), ""},
		"copies that block, and loaders that are late": {host(with(copying(), func(c *state.Container) {
			c.Verdict.Class, c.Verdict.Cause = policies.ClassInput, policies.CauseStorage
		})), ""},
		"copies that block, to a shared device": {host(with(copying(), func(c *state.Container) { c.Verdict.Cause = policies.CauseShared })), ""},
		"copies that block, and hardly sure":    {host(with(copying(), func(c *state.Container) { c.Verdict.Confidence = 0.3 })), ""},
		"no copies were seen, or no duty":       {host(with(copying(), func(c *state.Container) { c.Staging = policies.Staging{} })), ""},
		"a full /dev/shm":                       {host(filled()), "memory.shm 1024 MiB, now 64 MiB (--shm-size=1024m): its /dev/shm is nearly full: who finds no room there fails, and the job with it. Gives 50 % (0 to 100 %) of its run time, which is at risk, 84 h a week; confidence 50 %"},
		"a full /dev/shm of three GiB":          {host(with(filled(), func(c *state.Container) { c.SharedBytes, c.MemoryUse.Shared = 3*gib, 2.9*gib })), "memory.shm 8192 MiB, now 3072 MiB (--shm-size=8192m): its /dev/shm is nearly full: who finds no room there fails, and the job with it. Gives 50 % (0 to 100 %) of its run time, which is at risk, 84 h a week; confidence 50 %"},
		"a full /dev/shm under a limit":         {host(with(filled(), func(c *state.Container) { c.MemoryUse.Limit = gib })), "memory.shm 512 MiB, now 64 MiB (--shm-size=512m): its /dev/shm is nearly full: who finds no room there fails, and the job with it. Gives 50 % (0 to 100 %) of its run time, which is at risk, 84 h a week; confidence 50 %"},
		"a full /dev/shm under a low limit":     {host(with(filled(), func(c *state.Container) { c.MemoryUse.Limit = gib / 8 })), ""},
		"a full /dev/shm of half the host":      {host(with(filled(), func(c *state.Container) { c.SharedBytes, c.MemoryUse.Shared = 32*gib, 31*gib })), ""},
		"a /dev/shm with room":                  {host(with(filled(), func(c *state.Container) { c.MemoryUse.Shared = 50 << 20 })), ""},
		"more is shared than /dev/shm holds":    {host(with(filled(), func(c *state.Container) { c.MemoryUse.Shared = 65 << 20 })), ""},
		"the size of /dev/shm was not read":     {host(with(filled(), func(c *state.Container) { c.SharedBytes = 0 })), ""},
		"saves each half minute":                {host(saving()), "job.checkpoints 720 s apart, now 30 s apart: what it writes each time stops its steps; with one interruption a day, less often costs less (each 72 s is right if there are a hundred). Gives 9 % (6 to 12 %) of its run time, 15 h a week; confidence 60 %"},
		"saves each twenty minutes":             {host(with(saving(), func(c *state.Container) { c.Pauses.EverySeconds = 1200 })), ""},
		"saves for a moment": {host(with(saving(), func(c *state.Container) {
			c.Pauses.LowSeconds, c.Pauses.LostSeconds, c.Pauses.HighSeconds = 0.1, 0.2, 0.3
		})), ""},
		"few loaders":                           {host(loading()), "loader.workers 4 workers, now 2 workers (num_workers=4): its trainer waits for its loaders. Gives 44 % (16 to 63 %) of its run time, 74 h a week; confidence 48 %"},
		"few loaders, and no PyTorch":           {host(with(loading(), func(c *state.Container) { c.Rate.Source = "jax.step" })), "loader.workers 4 workers, now 2 workers: its trainer waits for its loaders. Gives 44 % (16 to 63 %) of its run time, 74 h a week; confidence 48 %"},
		"few loaders, on three CPUs of its set": {host(with(loading(), func(c *state.Container) { c.Now = runtime.Values{runtime.KnobCpuset: "0-1,6"} })), "loader.workers 3 workers, now 2 workers (num_workers=3): its trainer waits for its loaders. Gives 33 % (0 to 56 %) of its run time, 56 h a week; confidence 48 %"},
		"few loaders, and a quota of three":     {host(with(loading(), func(c *state.Container) { c.Now = quota(3.9) })), "loader.workers 3 workers, now 2 workers (num_workers=3): its trainer waits for its loaders. Gives 33 % (0 to 56 %) of its run time, 56 h a week; confidence 48 %"},
		"few loaders of two ranks":              {host(with(loading(), func(c *state.Container) { c.Ranks, c.Now = 2, quota(6) })), "loader.workers 3 workers, now 2 workers (num_workers=3): its trainer waits for its loaders. Gives 33 % (0 to 56 %) of its run time, 56 h a week; confidence 48 %"},
		"few loaders, as many as its CPUs":      {host(with(loading(), func(c *state.Container) { c.Original = runtime.Values{runtime.KnobCpuset: "4,5"} })), ""},
		"starved, on two CPUs of its set": {host(with(starved(), func(c *state.Container) {
			c.Now = with(quota(0.5), func(v *runtime.Values) { (*v)[runtime.KnobCpuset] = "2,3" })
		})),
			"cpu.quota 2.0 CPUs, now 0.5 CPUs (--cpus=2.0): its quota stops it, and trimtab may not lend it any. Gives 67 % (50 to 78 %) of its run time, 112 h a week; confidence 48 %"},
		"a settled loan beyond its set":                 {host(with(lent(), func(c *state.Container) { c.Now[runtime.KnobCpuset] = "7" })), ""},
		"few loaders, no CPU for more":                  {with(host(loading()), func(s **state.Snapshot) { (*s).Node.Idle = 0.1 }), ""},
		"few loaders, steps not counted":                {host(with(loading(), func(c *state.Container) { c.Rate.Steps = false })), ""},
		"few loaders, and a quota that would stop more": {host(with(loading(), func(c *state.Container) { c.Now = quota(1.7) })), ""},
		"data that is far":                              {host(far("")), "data.local local, now network: it waits for reads over the network: a copy on a disk of this host ends that, as far as the disk is faster. Gives 20 % (0 to 40 %) of its run time, 34 h a week; confidence 60 %"},
		"data that is far, and where":                   {host(far("/mnt/data")), "data.local local, now network (-v PATH:/mnt/data): it waits for reads over the network, and its only network mount is /mnt/data: a copy of that on a disk of this host ends it, as far as the disk is faster. Gives 20 % (0 to 40 %) of its run time, 34 h a week; confidence 60 %"},
		"a device that is held idle": {gpus(func(s *state.Snapshot) { s.Devices = []state.Device{device("GPU-a", holder("k", 49.5))} }),
			"gpu.idle 0 devices, now 1 device: it holds GPU 0 and runs nothing there: ask its owner whether it still needs that. Gives 50 % (40 to 60 %) of the time that it is held, 84 h a week; confidence 100 %"},
		"a device that is held idle by one that works on its CPUs": {gpus(func(s *state.Snapshot) {
			s.Containers[0].UsedCPUs, s.Devices = 7.5, []state.Device{device("GPU-a", holder("k", 49.5))}
		}), "gpu.idle 0 devices, now 1 device: it holds GPU 0 and runs nothing there: ask its owner whether it still needs that. Gives 50 % (40 to 60 %) of the time that it is held, 84 h a week; confidence 100 %"},
		"a device that another uses": {gpus(func(s *state.Snapshot) {
			s.Devices = []state.Device{device("GPU-a", holder("k", 49.5), holder("other", 0))}
		}), ""},
		"two devices, one shared with processes of the host that are idle as well": {gpus(func(s *state.Snapshot) {
			untold := with(holder("", 49.5), func(h *state.Holder) { h.Evidence = string(idle.Untold) })
			s.Devices = []state.Device{device("GPU-a", holder("k", 49.5)), device("GPU-b", holder("k", 49.5), untold)}
			s.Devices[1].Index = 1
		}), "gpu.idle 0 devices, now 2 devices: it holds GPU 0, 1 and runs nothing there: ask its owner whether it still needs that. Gives 50 % (40 to 60 %) of the time that it is held, 126 h a week; confidence 100 %"},
		"one of two": {gpus(func(s *state.Snapshot) {
			s.Devices = []state.Device{device("GPU-a", holder("k", 49.5)), device("GPU-b", holder("k", 0))}
		}), `gpu.idle 1 device, now 2 devices (--gpus '"device=GPU-b"'): it holds GPU 0 and runs nothing there: ask its owner whether it still needs that. Gives 50 % (40 to 60 %) of the time that it is held, 84 h a week; confidence 100 %`},
		"idle for five minutes": {gpus(func(s *state.Snapshot) { s.Devices = []state.Device{device("GPU-a", holder("k", 1./12))} }), ""},
		"the driver tells nothing": {gpus(func(s *state.Snapshot) {
			s.Devices = []state.Device{device("GPU-a", with(holder("k", 50), func(h *state.Holder) { h.Evidence = string(idle.Untold) }))}
		}), ""},
		"another device is faster": {gpus(func(s *state.Snapshot) {
			s.Containers[0].Devices = []state.DeviceSpeed{{Model: "H100", Ratio: 2}}
			s.Devices = []state.Device{device("GPU-a", holder("k", 0)), {UUID: "GPU-h", Name: "H100", MemTotal: 80 << 30}}
		}), `gpu.model GPU-h, now GPU-a (--gpus '"device=GPU-h"'): another device of this host, which nobody holds, should run it faster. Gives 50 % (25 to 67 %) of its run time, 84 h a week; confidence 30 %`},
		"another is faster, and too small": {gpus(func(s *state.Snapshot) {
			s.Containers[0].Devices = []state.DeviceSpeed{{Model: "H100", Ratio: 2}}
			s.Devices = []state.Device{device("GPU-a", holder("k", 0)), {UUID: "GPU-h", Name: "H100", MemTotal: 8 << 30}}
		}), ""},
		"another job has the faster device":           {exchanging(nil), `gpu.exchange GPU-h, now GPU-a (--gpus '"device=GPU-h"'): it should be faster on the device of other, which should hardly be slower on this one's: exchange them. Gives 50 % (20 to 67 %) of its run time, 84 h a week; confidence 30 %`},
		"a faster device is free as well":             {exchanging(func(s *state.Snapshot) { s.Devices[2].Name = "H100" }), `gpu.model GPU-b, now GPU-a (--gpus '"device=GPU-b"'): another device of this host, which nobody holds, should run it faster. Gives 50 % (20 to 67 %) of its run time, 84 h a week; confidence 30 %`},
		"another job needs it as well":                {exchanging(func(s *state.Snapshot) { s.Containers[1].Devices[0].Low = 9 }), ""},
		"how slow another job would be is not told":   {exchanging(func(s *state.Snapshot) { s.Containers[1].Devices[0].Low = 0 }), ""},
		"another job holds more than this device has": {exchanging(func(s *state.Snapshot) { s.Devices[0].MemTotal = 8 << 30 }), ""},
		"the faster device is shared":                 {exchanging(func(s *state.Snapshot) { s.Devices[1].Holders = append(s.Devices[1].Holders, holder("", 0)) }), ""},
		"it holds another device":                     {exchanging(func(s *state.Snapshot) { s.Devices[2].Holders = []state.Holder{holder("k", 0)} }), ""},
		"another job has a name that is none": {exchanging(func(s *state.Snapshot) { s.Containers[1].Name = "\u202e$(reboot)" }),
			`gpu.exchange GPU-h, now GPU-a (--gpus '"device=GPU-h"'): it should be faster on the device of another container, which should hardly be slower on this one's: exchange them. Gives 50 % (20 to 67 %) of its run time, 84 h a week; confidence 30 %`},
	} {
		got := ""
		for _, a := range Of(policies.DefaultConstants(), tt.s) {
			got += a.String()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestLinesSayWhatIsMeant: the places that lines are for read back the value that is advised.
func TestLinesSayWhatIsMeant(t *testing.T) {
	var v struct {
		Volumes []string          `yaml:"volumes"`
		CPUs    float64           `yaml:"cpus"`
		Memory  string            `yaml:"mem_limit"`
		Labels  map[string]string `yaml:"labels"`
		Shm     string            `yaml:"shm_size"`
		Env     map[string]string `yaml:"environment"`
		Deploy  struct {
			Resources struct {
				Reservations struct {
					Devices []struct {
						Driver string   `yaml:"driver"`
						IDs    []string `yaml:"device_ids"`
					} `yaml:"devices"`
				} `yaml:"reservations"`
			} `yaml:"resources"`
		} `yaml:"deploy"`
	}
	for _, lines := range [][]Line{cpuLines(1.75), memoryLines(3 * gib), shmLines(gib), threadLines(4), volumeLines("/mnt/data"), allowLines(state.Container{}, "cpu,memory"), gpuLines([]string{"GPU-a", "MIG-b"})} {
		for _, l := range lines {
			if l.For == "compose" {
				if err := yaml.Unmarshal([]byte(l.Text), &v); err != nil {
					t.Errorf("%q: %v", l.Text, err)
				}
			}
		}
	}
	devices := v.Deploy.Resources.Reservations.Devices
	if v.CPUs != 1.75 || !cmp.Equal(v.Volumes, []string{"PATH:/mnt/data"}) || v.Memory != "3072m" || v.Shm != "1024m" || v.Env["OMP_NUM_THREADS"] != "4" || v.Labels["trimtab.knobs"] != "cpu,memory" || v.Labels["trimtab.enable"] != "true" || len(devices) != 1 || !cmp.Equal(devices[0].IDs, []string{"GPU-a", "MIG-b"}) {
		t.Errorf("read back %+v", v)
	}
}

// TestNothingEndsAContainer: no line to paste stops one, whatever it leaves unused.
func TestNothingEndsAContainer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, a := range Of(policies.DefaultConstants(), anything(t)) {
			for _, l := range a.Paste {
				if l.For == "shell" && !strings.HasPrefix(l.Text, "trimtab enable ") {
					t.Fatalf("%s: %s", a.What, l.Text)
				}
			}
		}
	})
}

// TestNamesInCommands: as engines allow them, else the ID, else no command.
func TestNamesInCommands(t *testing.T) {
	for name, want := range map[string]string{"train": "x train", "a b": "x 4f0c", "$(x)": "x 4f0c", "-a": "x 4f0c", "": "x 4f0c", strings.Repeat("x", 4096): "x 4f0c", "\u202ea": "x 4f0c"} {
		if got := named(state.Container{ID: "4f0c", Name: name}, "x %s"); len(got) != 1 || got[0].Text != want {
			t.Errorf("%q: %v, want %q", name, got, want)
		}
	}
	if got := named(state.Container{ID: "`id`", Name: "a\nb"}, "x %s"); got != nil {
		t.Errorf("got %v", got)
	}
	for _, mount := range []string{"", "/", "data", "/a b", "/a:/etc", "/$(x)", "/a/../etc", "/\u202ea", "/\x1b]0;x\a", "/" + strings.Repeat("x", 4096)} {
		if got := volumeLines(mount); got != nil {
			t.Errorf("a mount at %q is in a line: %v", mount, got)
		}
	}
	for _, uuid := range []string{`GPU-a"'; reboot #`, "$(x)", "", "-x", "GPU-\u202ea"} {
		if got := gpuLines([]string{"GPU-a", uuid}); got != nil {
			t.Errorf("a device %q is in a line: %v", uuid, got)
		}
	}
}

// TestSnapshotIsOnlyRead: it is published, and others read it meanwhile.
func TestSnapshotIsOnlyRead(t *testing.T) {
	c := lent()
	c.Enrolment.Knobs = []string{"x", "cpu"}
	s, same := host(c), host(c)
	same.Containers[0].Enrolment.Knobs = []string{"x", "cpu"}
	Of(policies.DefaultConstants(), s)
	if diff := cmp.Diff(same, s); diff != "" {
		t.Error(diff)
	}
}
