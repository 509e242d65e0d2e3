package policies

// Constants are the numbers that decide what is a bottleneck, and what is lent, tried, kept and
// taken back. Numbers elsewhere say how something is read: which readings agree or are outliers
// (observe, trial), how far a model's curve reaches (model), how much is remembered.
//
// Each field says its unit and its source. What doubling and halving it does to the outcomes of
// all recordings and simulated mixes is printed by `make sensitivity`.
type Constants struct {
	// What a window must hold.

	// WindowSeconds a window is long at the least: a step of 300 ms comes five times in it.
	WindowSeconds float64
	// WindowMaxSeconds ends a window without enough steps: long steps take a minute.
	WindowMaxSeconds float64
	// MinTicks a window must hold to count: five (the mean of fewer wanders by a third).
	MinTicks float64
	// CostSeconds is the stretch that a step's cost and the rate before a change are read from,
	// and for which a change is watched for harm: prefetched batches fill and drain within it
	// [measured: a queue of 16 batches hides 6 s].
	CostSeconds float64
	// MaxSteal is the share of the machine's CPU time beyond the usual that a hypervisor may
	// take; beyond it a window is no evidence.
	MaxSteal float64

	// What bounds a job. Shares are of wall time, 0..1.

	// Notable is a share that counts: input wait (TF profiler, PyTorch profiler plugin: 5 %), time
	// out of quota, behind others, or in reclaim.
	Notable float64
	// Exposed is the share of exposed collectives (PyTorch profiler plugin: 10 %), and of a
	// device's SMs that others use.
	Exposed float64
	// Dominant is a share that makes up most: the trainer computing or waiting for its device, a
	// wire's use while a rank waits (SageMaker: half of the samples), and of a CPU, from which on a
	// loan is rounded up to whole ones.
	Dominant float64
	// Full is a share that leaves no room: CPU used over the quota (SageMaker), a device's duty
	// (MLPerf Storage's health target), a clock over its maximum.
	Full float64
	// LoaderShort is the share of loaders' busy time runnable and not running that makes them
	// short of CPU: twice what an idle machine's wake-ups take.
	LoaderShort float64
	// RereadShare of all that comes from disks, read again, tells a want of memory from first
	// touches; CalmReread, in bytes/s, is none (64 pages).
	RereadShare float64
	CalmReread  float64
	// RiskSeconds: growth that reaches the memory limit so soon is a risk, if no more than
	// RiskRoom of the limit is left: a job that has just begun is still loading.
	RiskSeconds float64
	RiskRoom    float64
	// Retransmits is the share of segments that an ordinary network does not lose.
	Retransmits float64
	// MinConfidence of a verdict to act on it by a trial; a loan needs none.
	MinConfidence float64
	// Agree is how many of the latest four windows must name a cause before it is told.
	Agree float64

	// Who does what in a job.

	// ActiveShare of one CPU makes a process part of the work: a torch launcher that polls uses
	// 0.2 %, an idle shell nothing [measured].
	ActiveShare float64
	// HelperWakes a step tell a team of threads, which meets the trainer dozens of times in a
	// step, from loaders, which do so up to 8 times where they share an interpreter [measured].
	HelperWakes float64
	// SpinningSMs of a device's duty have work while a collective waits for a late rank: 0.13 where
	// one SM spins beside 8 % of work, 0.93 and more in eight device-bound jobs [measured, H100].
	SpinningSMs float64

	// Loans.

	// SettleReadings is in how many readings nothing must hold a job back before what it used is
	// known to be enough.
	SettleReadings float64
	// SettleMargin is what is left above that; it doubles each time it turned out too little.
	SettleMargin float64
	// UnusedSeconds after which what nobody used goes back.
	UnusedSeconds float64
	// ActiveCPUs is the use, in CPUs, from which on a container competes; less that is idle is
	// not worth lending.
	ActiveCPUs float64
	// MinStep is the least relative change of a limit worth a write: systemd rounds to 1 %.
	MinStep float64
	// WriteSeconds lie between two writes of a loan to one container, a recall apart. After a recall
	// the next loan waits as long too, and twice as long after each further one, up to BackOffMax times.
	WriteSeconds float64
	BackOffMax   float64
	// RightMargin is the share of its right that a container may be short of, and the share of
	// time that it may wait for a CPU beyond what it waited before, until loans are called in:
	// what the kernel's dealing on a few CPUs wanders by.
	RightMargin float64
	// MemoryShare of the free memory that one job may be lent at once.
	MemoryShare float64
	// MemoryMargin is the share left above memory that is held or used, MemoryMarginBytes the
	// least: for what is charged and is neither (slab, page tables, socket buffers), and for
	// growth between reading and writing. Chosen, not measured; the actuator holds the same.
	MemoryMargin      float64
	MemoryMarginBytes float64

	// Trials.

	// PlanMinGain is the least predicted gain worth a trial.
	PlanMinGain float64
	// TrialMinGain is the least gain worth keeping: the error of a rate's own relative changes.
	TrialMinGain float64
	// TrialMargin is the loss that a take may cost.
	TrialMargin float64
	// TrialAlpha bounds the chance that a plan without merit is kept, over all looks.
	TrialAlpha float64
	// TrialRegression is the loss that takes a change back at once (DLRover: 20 %).
	TrialRegression float64
	// TrialSwing is the ratio that a job's own phases may bring, of ±20 %: less than that is
	// proven by going back and forth.
	TrialSwing float64
	// TrialCorrelation of readings a second apart that is assumed until they tell, and
	// TrialCalm their coefficient of variation [measured on steady jobs: 0.8 and 2 %].
	TrialCorrelation float64
	TrialCalm        float64
	// TrialDrift is how fast a job's rate may change by itself, a second.
	TrialDrift float64
	// TrialBlock is the readings of one block, TrialBaseline those that must come before.
	TrialBlock    float64
	TrialBaseline float64
	// TrialSettle is seconds after a switch that count for neither side.
	TrialSettle float64
	// WitnessSpread is the coefficient of variation that a relative witness may have.
	WitnessSpread float64
	// CoolSeconds lie between trials of one container.
	CoolSeconds float64
	// Moved is the relative change of what a failed change depended on that makes it worth
	// another try.
	Moved float64
	// WeightStep multiplies the weight of a contended job, WeightMax bounds it over its owner's.
	WeightStep float64
	WeightMax  float64

	// Devices.

	// HideUnused is for how many seconds a job must have left a device alone before it is
	// hidden, ShowFree for how many nobody must have used it before it is shown again.
	HideUnused float64
	ShowFree   float64
}

// InFull reports whether a container that uses so many CPUs has what it has a right to, CPUs;
// false where the right is not known.
func (k *Constants) InFull(used, right float64) bool {
	return right > 0 && used >= right*(1-k.RightMargin)
}

// Spinning is the share of time, 0..1, in which a device of ranks that exchange seems to wait for
// others: it works, by its duty, and most of its SMs do nothing. A collective on many SMs is missed,
// and so is a wait that leaves the ranks a good part of their time.
func (k *Constants) Spinning(duty, sms float64) float64 {
	if sms < k.SpinningSMs*duty {
		return duty - sms
	}
	return 0
}

// DefaultConstants returns the table's values.
func DefaultConstants() *Constants {
	return &Constants{
		WindowSeconds: 1.5, WindowMaxSeconds: 60, MinTicks: 5, CostSeconds: 30, MaxSteal: 0.02,
		Notable: 0.05, Exposed: 0.10, Dominant: 0.5, Full: 0.9, LoaderShort: 0.15, RereadShare: 0.3, CalmReread: 256 << 10, RiskSeconds: 30, RiskRoom: 0.75,
		Retransmits: 0.02, MinConfidence: 0.5, Agree: 2, ActiveShare: 0.005, HelperWakes: 8, SpinningSMs: 0.25,
		SettleReadings: 10, SettleMargin: 0.05, UnusedSeconds: 60, ActiveCPUs: 0.02, MinStep: 0.05, WriteSeconds: 5, BackOffMax: 6, RightMargin: 0.03,
		MemoryShare: 0.5, MemoryMargin: 0.10, MemoryMarginBytes: 64 << 20,
		PlanMinGain: 0.05, TrialMinGain: 0.03, TrialMargin: 0.02, TrialAlpha: 0.05, TrialRegression: 0.2, TrialSwing: 1.5, TrialCorrelation: 0.8, TrialCalm: 0.02,
		TrialDrift: 0.01, TrialBlock: 3, TrialBaseline: 8, TrialSettle: 1, WitnessSpread: 0.3, CoolSeconds: 20, Moved: 0.25, WeightStep: 4, WeightMax: 16,
		HideUnused: 600, ShowFree: 300,
	}
}
