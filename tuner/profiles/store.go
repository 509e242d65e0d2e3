package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/model"
)

// Bounds of a Store.
const (
	// MaxKnown jobs are kept; beyond it the one goes that is worth the least by age and use.
	MaxKnown = 10_000
	// MaxAgeNs is how long a job is remembered without being met again: 90 days.
	MaxAgeNs = 90 * 24 * 3600 * int64(1e9)
	// maxDevices models are remembered of one job.
	maxDevices = 8
)

// Learned is what is known of a job beyond its print.
type Learned struct {
	// Cost of one step, as measured with the least time lost for want of CPU quota; Lost is
	// that share of its time.
	Cost policies.Cost `json:"cost"`
	Lost float64       `json:"lost,omitempty"`
	// Correction multiplies predicted rates, learned from trials.
	Correction float64 `json:"correction"`
	// Kept and Failed count the trials of such jobs, by how they ended.
	Kept   int `json:"kept,omitempty"`
	Failed int `json:"failed,omitempty"`
	// Right and Wrong count the first allocations that were taken from it, likewise.
	Right int `json:"right,omitempty"`
	Wrong int `json:"wrong,omitempty"`
	// Devices holds the cost of a step by the model of the device that it ran on.
	Devices Costs `json:"devices,omitempty"`
	// Response is its rate by CPUs, as the container that updated it last learned it; Memory
	// its rate by the memory that it may use, likewise.
	Response *model.Learner `json:"response,omitempty"`
	Memory   *model.Learner `json:"memory,omitempty"`
}

// Known is one job of a Store: one container, or several that were alike.
type Known struct {
	ID          uint64  `json:"id"`
	Name        string  `json:"name"` // of the container that it was last met as, for people
	Print       Print   `json:"print"`
	Jobs        int     `json:"jobs"` // containers that it was learned from
	FirstUnixNs int64   `json:"first"`
	LastUnixNs  int64   `json:"last"`
	Learned     Learned `json:"learned"`
	// Identities are those of the containers that it was learned from, Ends what their runs came
	// to. An entry may hold these alone: a job whose steps were never counted.
	Identities []identity.Identity `json:"identities,omitempty"`
	Ends       Ends                `json:"ends,omitzero"`
	// RunsRight and RunsWrong count what was taken from these ends, by how it turned out.
	RunsRight int `json:"runsRight,omitempty"`
	RunsWrong int `json:"runsWrong,omitempty"`
	// Host is whose book it is from; "": this host measured it. Shape: nothing tells how fast that
	// host is against this one, so its times stand for their proportions alone.
	Host  string `json:"host,omitempty"`
	Shape bool   `json:"shape,omitempty"`
}

// Measurement is what was measured of one container.
type Measurement struct {
	Name   string
	UnixNs int64
	Print  Print
	Cost   policies.Cost
	Lost   float64
	// Correction as it stands; 0: none learned.
	Correction float64
	// Misled: a first allocation that it was given by known jobs failed.
	Misled bool
	// Response and Memory: nil: none learned; not changed any more.
	Response, Memory *model.Learner
}

// Store holds known jobs, sorted by ID. It is used from one goroutine.
type Store struct {
	known    []Known
	marks    []mark // of known, in the same order
	ranges   Ranges
	changes  int // since ranges were measured
	next     uint64
	revision uint64
	// nowUnixNs is the latest instant that it was told of.
	nowUnixNs int64
	foreign   Marks
}

// NewStore returns an empty Store, which is what a host begins with.
func NewStore() *Store {
	return &Store{next: 1, ranges: RangesOf(), foreign: Marks{}.Clone()}
}

// Open makes a Store of what was kept. Entries that cannot be true are left out;
// the error tells of them, and the Store is good without them.
func Open(all []Known, nowUnixNs int64) (*Store, error) {
	b := NewStore()
	var errs []error
	ids := map[uint64]bool{}
	b.known = make([]Known, 0, min(len(all), MaxKnown))
	texts := map[string]string{}
	for _, k := range all {
		if err := k.valid(nowUnixNs); err != nil {
			errs = append(errs, fmt.Errorf("known job %d (%.40q): %w", k.ID, k.Name, err))
			continue
		}
		if ids[k.ID] {
			errs = append(errs, fmt.Errorf("known job %d is there twice", k.ID))
			continue
		}
		ids[k.ID] = true
		k.intern(texts)
		b.known = append(b.known, k)
		if k.Host == "" {
			b.next = max(b.next, k.ID+1)
		}
	}
	slices.SortFunc(b.known, byID)
	b.bound(nowUnixNs, MaxKnown)
	b.revision = 0
	return b, Few(errs)
}

// maxTold bounds how many faults of a store are told of one by one.
const maxTold = 3

// Few is the first of some errors, and how many more there are.
func Few(errs []error) error {
	if n := len(errs) - maxTold; n > 0 {
		errs = append(errs[:maxTold:maxTold], fmt.Errorf("and %d more", n))
	}
	return errors.Join(errs...)
}

// intern has jobs share the texts that many have, by those that were seen before, and holds no more of
// what was decoded than there is.
func (k *Known) intern(seen map[string]string) {
	one := func(s string) string {
		if was, ok := seen[s]; ok {
			return was
		}
		seen[s] = s
		return s
	}
	texts := []*string{&k.Print.Unit, &k.Print.Image, &k.Print.Device}
	for _, l := range []*model.Learner{k.Learned.Response, k.Learned.Memory} {
		if l != nil {
			texts, l.Cells = append(texts, &l.Source), slices.Clone(l.Cells)
		}
	}
	k.Identities, k.Learned.Devices = slices.Clone(k.Identities), slices.Clone(k.Learned.Devices)
	for i := range k.Learned.Devices {
		texts = append(texts, &k.Learned.Devices[i].model)
	}
	for i := range k.Identities {
		d := &k.Identities[i]
		texts = append(texts, &d.Key, &d.Job, &d.Image, &d.Data)
		d.Words, d.Numbers = slices.Clone(d.Words), slices.Clone(d.Numbers)
	}
	k.Ends = k.Ends.Each(func(e *End) { *e = e.rounded() })
	for i := range k.Ends.settings {
		s := &k.Ends.settings[i]
		texts = append(texts, &s.Job, &s.Host, &s.Kernel, &s.Driver, &s.Device, &s.Image, &s.Data, &s.Libraries, &s.Source)
	}
	for _, s := range texts {
		*s = one(*s)
	}
}

func byID(a, b Known) int { return cmp.Compare(a.ID, b.ID) }

// aheadNs is how far in the future an entry may have been met: clocks step.
const aheadNs = 24 * 3600 * int64(1e9)

// valid says what of an entry cannot be true. Stores are files: they are damaged,
// edited, and copied from other hosts.
func (k Known) valid(nowUnixNs int64) error {
	l := k.Learned
	bare, err := k.validRuns()
	switch {
	case err != nil:
		return err
	case k.ID == 0 || k.ID >= math.MaxUint64/2:
		return errors.New("its number is none")
	case k.Print.Unit == "" && !bare || len(k.Print.Unit) > maxText || len(k.Name) > maxText || len(k.Host) > maxText || len(k.Print.Image) > maxText || len(k.Print.Device) > maxText:
		return errors.New("a name is missing or too long")
	case k.Jobs < 1 || l.Kept < 0 || l.Failed < 0 || l.Right < 0 || l.Wrong < 0 || k.RunsRight < 0 || k.RunsWrong < 0:
		return errors.New("a count below what there can be")
	case !(l.Correction >= minCorrection && l.Correction <= maxCorrection):
		return fmt.Errorf("a correction of %g", l.Correction)
	case !(l.Lost >= 0 && l.Lost <= 1) || !(k.Print.Steps >= 0 && k.Print.Steps <= maxValue):
		return errors.New("a share or a number of steps that is none")
	case k.Host != "" && k.LastUnixNs > nowUnixNs+aheadNs || k.FirstUnixNs > k.LastUnixNs: // this host's clock may be behind when it boots
		return errors.New("its times are not in order, or to come")
	case len(l.Devices) > maxDevices:
		return errors.New("too many devices")
	}
	if compared := Compare(k.Print, k.Print, RangesOf()); !bare && compared.Attributes < minAttributes {
		return fmt.Errorf("%d attributes, at least %d are needed", compared.Attributes, minAttributes)
	}
	var errs []error
	if !bare {
		errs = append(errs, validCost(l.Cost))
	}
	for _, learner := range []*model.Learner{l.Response, l.Memory} {
		if learner != nil {
			errs = append(errs, learner.Validate(), short(learner.Source))
		}
	}
	if l.Response != nil && l.Response.ByMemory() || l.Memory != nil && !l.Memory.ByMemory() {
		errs = append(errs, errors.New("a response curve of another resource than it stands for"))
	}
	for _, on := range l.Devices {
		errs = append(errs, validCost(on.cost), short(on.model))
	}
	return errors.Join(errs...)
}

// short says which of some texts is longer than is kept of any.
func short(texts ...string) error {
	if slices.ContainsFunc(texts, func(s string) bool { return len(s) > maxText }) {
		return errors.New("a text that is too long")
	}
	return nil
}

// The bounds of a correction (tuner/trial/correction).
const (
	minCorrection = 0.5
	maxCorrection = 2.0
)

// Models are those of the devices that it ran on, sorted.
func (k Known) Models() (out []string) {
	for _, on := range k.Learned.Devices {
		out = append(out, on.model)
	}
	return out
}

// All returns a copy of what is known, sorted by ID.
func (b *Store) All() []Known { return slices.Clone(b.known) }

// Find returns the entries that fit, sorted by ID. They may be read from any goroutine: what an
// entry holds is replaced when it changes, and never written to.
func (b *Store) Find(fits func(*Known) bool) []Known {
	var out []Known
	for i := range b.known {
		if fits(&b.known[i]) {
			out = append(out, b.known[i])
		}
	}
	return out
}

// Len is how many jobs are known.
func (b *Store) Len() int { return len(b.known) }

// Revision grows with each change.
func (b *Store) Revision() uint64 { return b.revision }

// at is the place of an entry, or -1.
func (b *Store) at(id uint64) int {
	i, ok := sort.Find(len(b.known), func(i int) int { return cmp.Compare(id, b.known[i].ID) })
	if !ok {
		return -1
	}
	return i
}

func (b *Store) find(id uint64) *Known {
	if i := b.at(id); i >= 0 {
		return &b.known[i]
	}
	return nil
}

// MergeAt is the distance within which a job is taken for one that is known.
// Measured with one job, starved and free.
const MergeAt = 0.12

// How far what is known moves towards a container that is another one of its kind,
// and towards later readings of the same: slowly, so that one odd job, or one that
// lies, does not turn it.
const (
	firstShare = 0.3
	laterShare = 0.1
)

// Update takes in a measurement and returns the entry that it went to. id is the entry that
// this container's went to before; 0, or one that is gone: it is placed anew.
func (b *Store) Update(id uint64, l Measurement) uint64 {
	if l.Print.Unit == "" || validCost(l.Cost) != nil {
		return id
	}
	k, share := b.find(id), laterShare
	var moved Known
	if k != nil && k.Jobs == 1 && b.same(l.Print, l.Cost, id) != nil {
		moved = *k
		b.Forget(id, "") // an odd first reading had kept it from those of its kind
		k = nil
	}
	if k == nil || !b.still(*k, l) {
		if k = b.same(l.Print, l.Cost, 0); k == nil {
			k = b.add(Known{Name: clip(l.Name), Print: l.Print, FirstUnixNs: l.UnixNs, Learned: Learned{Cost: l.Cost, Lost: l.Lost, Correction: 1}})
			k.Learned.learn(l, 1)
			k.takeRuns(moved)
			b.marks[b.at(k.ID)] = markOf(k)
			return k.ID
		}
		k.Jobs++
		if k.Learned.Wrong > 0 && !l.Misled { // another of its kind is measured to be so after all
			k.Learned.Wrong--
		}
		share = firstShare
	} else if k.Jobs == 1 {
		share = 1 // its own entry: the latest reading is the best
	}
	k.Name, k.LastUnixNs = clip(l.Name), max(k.LastUnixNs, l.UnixNs)
	k.Print = k.Print.blend(l.Print, share)
	k.Learned.learn(l, share)
	k.takeRuns(moved)
	b.marks[b.at(k.ID)] = markOf(k)
	b.changed()
	return k.ID
}

// leaveAt is the distance beyond which a container has become another job than the
// entry that it went to before.
const leaveAt = 0.2

// still reports whether a measurement is of the job that an entry is of.
func (b *Store) still(k Known, l Measurement) bool {
	return Compare(k.Print, l.Print, b.ranges).Distance <= leaveAt && sameCost(k.costOn(l.Print.Device), l.Cost)
}

// costOn is what a step costs on a model of device; where it never ran there, what
// it costs elsewhere.
func (k Known) costOn(model string) policies.Cost {
	if c, ok := k.Learned.Devices.On(model); ok {
		return c
	}
	return k.Learned.Cost
}

// add puts a new entry in its place, before those of other hosts.
func (b *Store) add(k Known) *Known {
	k.ID, k.Jobs, k.LastUnixNs = b.next, 1, k.FirstUnixNs
	b.next++
	if len(b.known) >= MaxKnown { // room first: by a clock that was stepped back the new one is the oldest
		b.bound(k.LastUnixNs, MaxKnown-1)
	}
	i, _ := slices.BinarySearchFunc(b.known, k, byID)
	b.known, b.marks = slices.Insert(b.known, i, k), slices.Insert(b.marks, i, markOf(&k))
	b.changed()
	return &b.known[i]
}

// muchLess is by how much less time must have been lost for a cost to replace one
// that was read while the job starved.
const muchLess = 0.05

func (l *Learned) learn(x Measurement, share float64) {
	switch {
	case x.Lost < l.Lost-muchLess:
		l.Cost, l.Lost = x.Cost, x.Lost
	case x.Lost <= l.Lost+muchLess:
		l.Cost, l.Lost = blendCost(l.Cost, x.Cost, share), (1-share)*l.Lost+share*x.Lost
	}
	if x.Correction >= minCorrection && x.Correction <= maxCorrection {
		l.Correction = (1-share)*l.Correction + share*x.Correction
	}
	if x.Response != nil {
		l.Response = x.Response
	}
	if x.Memory != nil {
		l.Memory = x.Memory
	}
	if model := x.Print.Device; model != "" && x.Lost < muchLess {
		if _, known := l.Devices.On(model); known || len(l.Devices) < maxDevices {
			l.Devices = l.Devices.With(model, x.Cost)
		}
	}
}

func blendCost(a, b policies.Cost, share float64) policies.Cost {
	mix := func(x, y float64) float64 { return (1-share)*x + share*y }
	out := b
	out.TrainerCPU, out.LoaderCPU, out.OtherCPU = mix(a.TrainerCPU, b.TrainerCPU), mix(a.LoaderCPU, b.LoaderCPU), mix(a.OtherCPU, b.OtherCPU)
	out.Device, out.Batch, out.Queue, out.Spin = mix(a.Device, b.Device), mix(a.Batch, b.Batch), mix(a.Queue, b.Queue), mix(a.Spin, b.Spin)
	return out
}

// Responses are the curves that an entry remembers, by CPUs and by memory; nil if none.
func (b *Store) Responses(id uint64) (cpu, memory *model.Learner) {
	if k := b.find(id); k != nil {
		return k.Learned.Response, k.Learned.Memory
	}
	return nil, nil
}

// Trial notes how a trial of a container that teaches an entry ended, and the correction
// that was learned if what it changed was kept.
func (b *Store) Trial(id uint64, kept bool, correction float64) {
	k := b.find(id)
	if k == nil {
		return
	}
	if !kept {
		k.Learned.Failed++
	} else if k.Learned.Kept++; correction >= minCorrection && correction <= maxCorrection {
		k.Learned.Correction = correction
	}
	b.changed()
}

// Judge notes how a first allocation ended that was taken from some entries: those
// that misled are trusted less, and dropped where they are another host's.
func (b *Store) Judge(from []uint64, right bool) {
	for _, id := range from {
		if k := b.find(id); k != nil && right {
			k.Learned.Right++
		} else if k != nil {
			k.Learned.Wrong++
		}
	}
	b.changed()
	if !right {
		b.misled(from)
	}
}

// Forget drops entries, and keeps those of other hosts away: one by its number, those last met under a name, or all for
// 0 and "". It returns what went.
func (b *Store) Forget(id uint64, name string) []Known {
	gone := b.drop(func(k Known) bool { return (id == 0 || k.ID == id) && (name == "" || k.Name == name) })
	for _, k := range gone {
		b.leave(k)
	}
	return gone
}

// drop takes out what goes, and returns it.
func (b *Store) drop(goes func(Known) bool) (gone []Known) {
	b.known = slices.DeleteFunc(b.known, func(k Known) bool {
		if !goes(k) {
			return false
		}
		gone = append(gone, k)
		return true
	})
	if len(gone) > 0 {
		b.rebuilt()
	}
	return gone
}

// Expire drops what has not been met for too long.
func (b *Store) Expire(nowUnixNs int64) {
	b.nowUnixNs = max(b.nowUnixNs, nowUnixNs)
	if slices.ContainsFunc(b.known, func(k Known) bool { return nowUnixNs-k.LastUnixNs > MaxAgeNs }) {
		b.bound(nowUnixNs, MaxKnown)
	}
}
