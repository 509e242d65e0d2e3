package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/tuner/identity"
)

// Start is what is known of a container when it starts, as known jobs are looked up by it. Nothing
// of it tells what the container runs, or where.
type Start struct {
	Identity identity.Identity `json:"identity"`
	Host     string            `json:"host,omitempty"`   // keyed hash of the host's name
	Kernel   string            `json:"kernel,omitempty"` // release
	Driver   string            `json:"driver,omitempty"` // version of the devices' driver
	// Run tells this start from all others: of a keyed hash, since whoever reads known jobs could guess
	// what a container is called. 0: not told, as by earlier versions.
	Run RunID `json:"run,omitzero"`
	// Fresh: it had just started, so its first steps are all seen.
	Fresh bool `json:"fresh,omitempty"`
	// Passing: its key ends with the daemon. It displaces no identity that lasts.
	Passing bool `json:"-"`
}

// End is what one run of a job ended with, or what it has come to while it goes on.
type End struct {
	Run    RunID `json:"run"` // tells the runs of a job apart
	UnixNs int64 `json:"at"`  // by the clock of its host
	Setting
	Numbers []identity.Hash `json:"numbers,omitempty"`
	// CPUs is the quota that was enough, Allowed what it might use at the end; 0: not known.
	CPUs    float64 `json:"cpus,omitempty"`
	Allowed float64 `json:"allowed,omitempty"`
	// Memory is the bytes with which nothing was read again; 0: not known.
	Memory float64 `json:"memory,omitempty"`
	// Queued is the share of its time behind other work.
	Queued float32 `json:"queued,omitempty"`
	Pace
}

// Setting is as what a run ran, where, on what and beside what. Ends hold it once for all runs that have the same.
type Setting struct {
	Job string `json:"job"` // as in the identity
	// Where and on what: keyed hashes as in Start, and the device's model.
	Host   string `json:"host,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	Driver string `json:"driver,omitempty"`
	Device string `json:"device,omitempty"`
	Image  string `json:"image,omitempty"`
	Data   string `json:"data,omitempty"`
	// Libraries is of the builds of what its lowest rank (of several, the lowest TGID) had mapped when
	// its first block was counted.
	Libraries string `json:"libraries,omitempty"`
	// Source is that of the rate: what Pace counts.
	Source  string `json:"source,omitempty"`
	Ranks   int    `json:"ranks,omitempty"`
	Loaders int    `json:"loaders,omitempty"`
	Shared  bool   `json:"shared,omitempty"` // whether others worked on its devices
}

// Private is the end without what is only this host's to compare: its pace, driver, kernel and libraries.
func (e End) Private() End {
	e.Pace, e.Kernel, e.Driver, e.Libraries, e.Source = Pace{}, "", "", "", ""
	return e
}

// RunID tells the runs of a job apart; 0: none. Its text is 16 digits in hexadecimal.
type RunID uint64

// RunOf is that of a text that tells a run from all others.
func RunOf(text string) RunID {
	h := fnv.New64a()
	h.Write([]byte(text))
	return RunID(h.Sum64())
}

// MarshalText implements encoding.TextMarshaler.
func (r RunID) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(r)), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Any other text stands for its hash.
func (r *RunID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if *r = RunID(n); err != nil && len(text) > 0 {
		*r = RunOf(string(text))
	}
	return nil
}

// Bounds of what is kept of the runs of a job.
const (
	// MaxEnds of the latest runs are kept of one identity.
	MaxEnds = 8
	// maxIdentities are kept of one known job: programs that do the same by what they do.
	maxIdentities = 4
	// maxEndNumbers of one run are kept.
	maxEndNumbers = 32
	// maxCPUs and maxBytes are more than any host has.
	maxCPUs, maxBytes = 1 << 20, 1 << 60
)

// valid says what of an end cannot be true.
func (e End) valid() error {
	within := func(v, most float64) bool { return v >= 0 && v <= most }
	switch {
	case e.Run == 0 || e.Setting == (Setting{}) || short(e.Kernel, e.Driver, e.Device, e.Libraries, e.Source) != nil:
		return errors.New("a run without a name, or of too long ones")
	case len(e.Numbers) > maxEndNumbers || !identity.IsSet(e.Numbers) || e.Ranks < 0 || e.Loaders < 0 || e.Ranks > 1<<20 || e.Loaders > 1e6:
		return errors.New("a run with more than there can be")
	case !identity.Hashes(identity.JobBytes, e.Job) || !identity.Hashes(identity.WordBytes, e.Host, e.Image, e.Data, e.Libraries):
		return errors.New("a run that holds something else than hashes")
	case !within(e.CPUs, maxCPUs) || !within(e.Allowed, maxCPUs) || !within(e.Memory, maxBytes) || !within(float64(e.Queued), 1) || !e.Pace.valid():
		return errors.New("a run with amounts that cannot be")
	}
	return nil
}

// validRuns says what of an entry's identities and runs cannot be true. bare: it rests on them
// alone, since its steps were never counted.
func (k Known) validRuns() (bare bool, err error) {
	if len(k.Identities) > maxIdentities || k.Ends.Len() > maxIdentities*MaxEnds {
		return false, errors.New("too many identities or runs")
	}
	for _, i := range k.Identities {
		if why := i.Valid(); why != "" {
			return false, errors.New(why)
		}
	}
	for _, e := range k.Ends.All() {
		if err := e.valid(); err != nil {
			return false, err
		}
	}
	return k.Print.Unit == "" && k.Print.has == 0 && len(k.Identities) > 0 && !k.Ends.IsZero() && k.Jobs >= 1, nil
}

// Identified is this host's entry that a job goes to by its identity: of several the one that was
// met last; 0: none.
func (b *Store) Identified(i identity.Identity) (id uint64) {
	own, _ := b.identified(i)
	return latestOf(own)
}

func latestOf(all []*Known) (id uint64) {
	last := int64(math.MinInt64)
	for _, k := range all {
		if k.LastUnixNs > last {
			id, last = k.ID, k.LastUnixNs
		}
	}
	return id
}

// identified are this host's entries of a job, and those of others.
func (b *Store) identified(i identity.Identity) (own, foreign []*Known) {
	if !i.Known() {
		return nil, nil
	}
	job := hash32(i.Job)
	for at := range b.marks {
		if !slices.Contains(b.marks[at].jobs[:], job) || !slices.ContainsFunc(b.known[at].Identities, i.Same) {
			continue
		}
		if k := &b.known[at]; k.Host == "" {
			own = append(own, k)
		} else {
			foreign = append(foreign, k)
		}
	}
	return own, foreign
}

// End takes in what a run has come to: the first time, and each time later, until it ends. id is the
// entry that the container teaches; 0: its steps are not counted, and its identity tells. It returns
// the entry that the run went to.
func (b *Store) End(id uint64, s Start, name string, e End) uint64 {
	if !s.Identity.Known() || e.valid() != nil {
		return id
	}
	k := b.find(cmp.Or(id, b.Identified(s.Identity)))
	if k == nil { // nothing but its identity and its runs is known
		k = b.add(Known{FirstUnixNs: e.UnixNs, Learned: Learned{Correction: 1}})
	}
	k = b.moveRuns(s.Identity, k.ID, e.Run)
	k.Name, k.LastUnixNs = clip(name), max(k.LastUnixNs, e.UnixNs)
	k.bind(s.Identity)
	k.keepEnd(e)
	b.marks[b.at(k.ID)] = markOf(k)
	b.revision++
	return k.ID
}

// moveRuns takes a run of a job out of all entries but one: it counts its steps by now, or does
// something else than before. An entry that rests on runs alone goes with its last one, or with all of
// them once the job is known by what it does.
func (b *Store) moveRuns(i identity.Identity, to uint64, run RunID) *Known {
	k, emptied := b.find(to), []uint64(nil)
	own, _ := b.identified(i)
	for _, other := range own {
		if other.ID == to {
			continue
		}
		other.Ends = EndsOf(slices.DeleteFunc(other.Ends.All(), func(o End) bool { return o.Run == run && o.Job == i.Job })...)
		if other.Print.Unit != "" {
			continue
		}
		if k.Print.Unit != "" {
			k.takeRuns(*other)
			other.Ends = Ends{}
		}
		if other.Ends.IsZero() {
			emptied = append(emptied, other.ID)
		}
	}
	for _, id := range emptied {
		b.Forget(id, "")
	}
	return b.find(to) // places moved
}

// bind keeps an identity, the latest last. Where it finds no room the one goes that ran the least, with its
// runs: names that somebody makes up run once each.
func (k *Known) bind(i identity.Identity) {
	k.Identities = append(slices.DeleteFunc(slices.Clone(k.Identities), i.Same), i)
	if n := len(k.Identities) - 1; n >= maxIdentities {
		runs := func(i identity.Identity) int { return count(k.Ends.All(), func(e End) bool { return e.Job == i.Job }) }
		least := slices.MinFunc(k.Identities[:n], func(x, y identity.Identity) int { return cmp.Compare(runs(x), runs(y)) })
		k.Identities = slices.DeleteFunc(k.Identities, least.Same)
		k.Ends = EndsOf(slices.DeleteFunc(k.Ends.All(), func(e End) bool {
			return !slices.ContainsFunc(k.Identities, func(i identity.Identity) bool { return i.Job == e.Job })
		})...)
	}
}

// keepEnd keeps what a run has come to in place of what it had before, else as the latest. Runs are
// in the order in which they were told: clocks of hosts differ.
func (k *Known) keepEnd(e End) {
	e = e.rounded()
	e.Numbers = e.Numbers[:min(len(e.Numbers), maxEndNumbers)]
	ends := k.Ends.All()
	if i := slices.IndexFunc(ends, func(o End) bool { return o.Run == e.Run && o.Job == e.Job }); i >= 0 {
		ends[i] = e
	} else {
		ends = append(ends, e)
	}
	of := func(o End) bool { return o.Job == e.Job }
	for n := count(ends, of); n > MaxEnds; n-- {
		i := slices.IndexFunc(ends, of)
		ends = slices.Delete(ends, i, i+1)
	}
	k.Ends = EndsOf(ends...)
}

// takeRuns takes over the runs of an entry that goes.
func (k *Known) takeRuns(from Known) {
	for _, i := range from.Identities {
		k.bind(i)
	}
	for _, e := range from.Ends.All() {
		k.keepEnd(e)
	}
	k.RunsRight, k.RunsWrong = k.RunsRight+from.RunsRight, k.RunsWrong+from.RunsWrong
}

func count(ends []End, of func(End) bool) (n int) {
	for _, e := range ends {
		if of(e) {
			n++
		}
	}
	return n
}

// LastRuns is what the latest runs of the same job ended with, as far as they agree.
type LastRuns struct {
	Entry uint64 // the latest; 0: the job never ran
	Runs  int    // that were looked at, those most like this start
	// CPUs is the quota that was enough, Memory the bytes with which nothing was read again; 0: not
	// known, or the runs are too far apart.
	CPUs, Memory float64
	// Expected, Agreed and Set are what runs agree on, whether or not it is acted on or was taken.
	Expected, Agreed, Set float64
	// Doubt says why what is known is not acted on; "" if it is.
	Doubt string
	// Ends are those runs, the latest last.
	Ends []End
	// Own is what the same run had come to before: the daemon began anew. It is no run before it.
	Own *End
}

const (
	// agreeWithin is the ratio within which runs agree on an amount: what one job settles to varies
	// by its margin, which doubles each time that it was too little (SettleMargin).
	agreeWithin = 1.35
	// trustAt is the share of first allocations, taken from the entry by identity, that must have
	// been right: a half, where each wrong one counts for two.
	trustAt = 0.5
)

// LastRuns looks a start up by its identity. Where the runs differ by their numbers, those that share
// most of them with this start tell; where those do not agree either, nothing is told. run is the one that
// starts.
func (b *Store) LastRuns(s Start, device string, run RunID) (l LastRuns) {
	entries, foreign := b.identified(s.Identity)
	ends, trust := endsOf(s.Identity.Job, entries)
	if i := slices.IndexFunc(ends, func(e End) bool { return run != 0 && e.Run == run }); i >= 0 {
		own := ends[i]
		if ends = slices.Delete(ends, i, i+1); len(ends) == 0 {
			return LastRuns{Entry: latestOf(entries), Own: &own} // its curves, which it left off with
		}
		l.Own = &own
	}
	if len(ends) == 0 { // it never ran here
		entries = foreign
		ends, trust = endsOf(s.Identity.Job, entries)
	}
	if len(ends) == 0 {
		return LastRuns{}
	}
	l.Ends, l.Entry = ends, latestOf(entries)
	cpus, runs, ok := agreed(s, device, ends, func(e End) float64 { return e.CPUs })
	memory, _, okMemory := agreed(s, device, ends, func(e End) float64 { return e.Memory })
	l.CPUs, l.Memory, l.Runs, l.Expected = cpus, memory, max(runs, 1), cpus
	switch {
	case !ok:
		l.Doubt = "its last runs came to different ends"
	case trust < trustAt:
		l.Doubt = "what was taken from its last runs turned out wrong"
	}
	if l.Doubt != "" {
		l.CPUs = 0
	}
	if l.Doubt != "" || !okMemory {
		l.Memory = 0
	}
	l.Agreed, l.Set = l.CPUs, l.Memory
	return l
}

// endsOf are the runs of a job that entries tell of, and how far the least trusted of these is.
func endsOf(job string, entries []*Known) (ends []End, trust float64) {
	trust = 1
	for _, k := range entries {
		for _, e := range k.Ends.All() {
			if e.Job == job {
				ends = append(ends, e)
			}
		}
		trust = min(trust, k.trusted(k.RunsRight, k.RunsWrong))
	}
	return ends, trust
}

// agreed is the amount that the runs most like a start agree on, 0 if none knows it; ok is false
// where they do not.
func agreed(s Start, device string, ends []End, amount func(End) float64) (v float64, runs int, ok bool) {
	all := slices.DeleteFunc(slices.Clone(ends), func(e End) bool { return !(amount(e) > 0) })
	for _, narrow := range []func(End) int{ // each only where those before do not agree
		func(End) int { return 0 },
		func(e End) int { return identity.Common(e.Numbers, s.Identity.Numbers) },
		func(e End) int { return same(e.Image, s.Identity.Image) + same(e.Data, s.Identity.Data) },
		func(e End) int { return same(e.Device, device) },
	} {
		if len(all) == 0 {
			return 0, 0, true
		}
		most := 0
		for _, e := range all {
			most = max(most, narrow(e))
		}
		all = slices.DeleteFunc(all, func(e End) bool { return narrow(e) < most })
		low, high := math.Inf(1), 0.0
		for _, e := range all {
			low, high = min(low, amount(e)), max(high, amount(e))
		}
		if high <= low*agreeWithin {
			return high, len(all), true // the most: too little costs the job, too much goes back
		}
	}
	return 0, len(all), false
}

func same(a, b string) int {
	if a != "" && a == b {
		return 1
	}
	return 0
}

// Recalled tells the known jobs whether what was taken from a job's last runs was right. That tells
// nothing of what is taken by likeness.
func (b *Store) Recalled(entry uint64, right bool) {
	k := b.find(entry)
	if k == nil {
		return
	}
	if right {
		k.RunsRight++
		b.changed()
		return
	}
	k.RunsWrong++
	b.changed()
	b.misled([]uint64{entry})
}
