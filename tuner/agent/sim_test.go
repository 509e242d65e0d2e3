package agent

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/lab/counters"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// The simulated job: seconds a step of trainer, loaders and device. Its knee is
// 0.07 / 0.06 CPUs; it runs on a node with more CPUs than it can use.
const (
	simTrainer, simLoader, simDevice = 0.020, 0.050, 0.040
	simLoaders                       = 2
	simCPUs                          = 4
)

// simKnee is where more CPU buys nothing.
const simKnee = (simTrainer + simLoader) / (simTrainer + simDevice)

// simProbe is a probe whose containers follow the step model (docs/decisions.md) under the
// quota that stands in the fake engine. Noise is drawn with a fixed seed.
type simProbe struct {
	engine  *runtimetest.Fake
	start   time.Time
	rng     *rand.Rand
	jobs    map[string]*simJob
	readErr error // what Read answers, after its readings
	closed  bool
	reads   int
}

type simJob struct {
	last    time.Time
	threads []probes.Thread
	ticks   probes.Ticks
	cgroup  probes.Cgroup
	noise   float64
	carry   float64
}

func newSim(engine *runtimetest.Fake) *simProbe {
	return &simProbe{engine: engine, start: time.Now(), rng: rand.New(rand.NewPCG(3, 4)), jobs: map[string]*simJob{}}
}

// monotonic is the bubble's clock as the kernel would tell it.
func (p *simProbe) monotonic() int64 { return int64(1000*time.Second + time.Since(p.start)) }

// host is the node's reading.
func (p *simProbe) host() (probes.Host, error) {
	var busy uint64
	for _, j := range p.jobs {
		busy += j.cgroup.CPUUsageNs
	}
	all := uint64(p.monotonic()) * simCPUs
	return probes.Host{AtNs: p.monotonic(), CPUs: simCPUs, BusyNs: busy, IdleNs: all - busy, MemTotal: 8 << 30, MemAvail: 6 << 30}, nil
}

func (p *simProbe) Name() string { return "kernel" }

func (p *simProbe) Watch(t probes.Target) error {
	j := &simJob{last: time.Now(), cgroup: probes.Cgroup{HasPSI: true, MemoryLimit: -1}}
	root := int32(t.InitPID)
	for _, tid := range []int32{root, root + 100_000, root + 200_000, root + 300_000} {
		th := probes.Thread{TID: tid, TGID: tid, PPID: root, StartNs: uint64(tid), Comm: "python3", SinceNs: p.monotonic(), AtNs: p.monotonic()}
		j.threads = append(j.threads, th)
	}
	j.threads[0].PPID, j.threads[1].TGID, j.threads[1].PPID = 1, root, 1 // the queue's feeder is a thread
	j.ticks = probes.Ticks{Source: "torch.backward", TGID: root}
	p.jobs[t.Key] = j
	return nil
}

func (p *simProbe) Unwatch(key string) { delete(p.jobs, key) }

func (p *simProbe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	p.reads++
	for _, c := range p.engine.Containers() {
		j := p.jobs[c.Key()]
		if j == nil {
			continue
		}
		values, err := p.engine.Read(ctx, c)
		if err != nil {
			return err
		}
		j.advance(p, values)
		s := &probes.Sample{Container: c.Key(), Kernel: &probes.Kernel{Threads: counters.Read(j.threads), Ticks: []probes.Ticks{j.ticks}}}
		cg := j.cgroup
		s.Cgroup = &cg
		into[c.Key()] = s
	}
	return p.readErr
}

func (p *simProbe) Cost() probes.Cost { return probes.Cost{Runs: uint64(p.reads)} }

func (p *simProbe) Close() error {
	p.closed = true
	return nil
}

// advance makes the counters of the time since the last reading.
func (j *simJob) advance(p *simProbe, values runtime.Values) {
	secs := time.Since(j.last).Seconds()
	j.last = time.Now()
	if secs <= 0 {
		return
	}
	cpus, limited := values[runtime.KnobCPUQuota].CPUs()
	starved := limited && cpus < simKnee
	if !starved {
		cpus = simKnee
	}
	j.noise = 0.8*j.noise + 0.012*p.rng.NormFloat64() // AR(1), CV 2 %
	rate := min(cpus/(simTrainer+simLoader), 1/(simTrainer+simDevice)) * math.Exp(j.noise)
	exact := rate*secs + j.carry
	steps := math.Floor(exact)
	j.carry = exact - steps
	j.ticks.Count += uint64(steps)
	j.ticks.LastNs = p.monotonic() - int64(j.carry/rate*1e9)
	j.cgroup.AtNs = p.monotonic()
	j.cgroup.CPUUsageNs += uint64(cpus * secs * 1e9)
	quota := probes.Throttling{QuotaUs: -1, PeriodUs: runtime.DefaultPeriodUs}
	if len(j.cgroup.Throttling) > 0 {
		quota = j.cgroup.Throttling[0]
	}
	if limited {
		quota.QuotaUs = int64(cpus * runtime.DefaultPeriodUs)
		quota.Periods += uint64(secs * 10)
	}
	if starved {
		quota.Throttled += uint64(secs * 9)
		j.cgroup.CPU.SomeUs += uint64(1e6 * secs * (1 - cpus/simKnee))
	}
	j.cgroup.Throttling = []probes.Throttling{quota}
	j.spend(p.monotonic(), rate, secs, starved)
}

// spend splits the time of each thread: what is neither CPU nor device is out of
// quota where that binds, and the rest is spent waiting for the next in line.
func (j *simJob) spend(nowNs int64, rate, secs float64, starved bool) {
	for i := range j.threads {
		t := &j.threads[i]
		left := float64(nowNs-t.AtNs) / 1e9
		waker, stalled := j.threads[0].TID, 0.9
		switch i {
		case 0:
			counters.Spend(t, &left, probes.StateRun, rate*secs*simTrainer)
			counters.Spend(t, &left, probes.StateTimer, rate*secs*simDevice)
			t.Count[probes.StateTimer] += uint64(rate * secs)
			t.LastNs[probes.StateTimer] = nowNs
			waker, stalled = j.threads[2].TID, 0.3
		case 1:
			stalled = 0
		default:
			counters.Spend(t, &left, probes.StateRun, rate*secs*simLoader/simLoaders)
		}
		if starved {
			counters.Spend(t, &left, probes.StateThrottled, stalled*left)
		}
		counters.Wait(t, nowNs, waker, uint64(rate*secs)+1)
	}
}
