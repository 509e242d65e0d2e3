package profiles

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/model"
)

// Book is what another host says that it has learned.
type Book struct {
	Host       string // as the config here names its key
	MadeUnixNs int64  // by that host's clock; 0: not told
	Known      []Known
}

// Prepared is a book as it may go into a Store, and what became of it.
type Prepared struct {
	Known []Known
	// Refused entries cannot be true, or are there twice.
	Refused int
	// Shared jobs are known to both hosts; Ratio is what a step of theirs costs here over what it
	// costs there, in CPU time. 0: not told, and of the book shapes alone are used.
	Shared int
	Ratio  float64
	// AheadNs is how far the book's clock is ahead of the one here.
	AheadNs int64
}

const (
	// foreignDoubt is what a foreign entry is trusted less than one of this host, in first
	// allocations that failed: half of one. With it a foreign entry that is wholly alike has a
	// confidence of 0.67, so it is acted on (MinConfidence, 0.5) only where it is nearly equal,
	// and each first allocation that proves right here makes up for it.
	foreignDoubt = 0.5
	// minShared jobs that both hosts know calibrate: the median of three stands one that is not
	// the same job after all.
	minShared = 3
	// maxRatio between two hosts' CPUs is beyond any that run the same containers.
	maxRatio = 4
	// sharedAt is the distance, in what no host moves, within which two hosts' jobs are taken for
	// one; no other may be within twice as much.
	sharedAt = 0.05
	// maxCalibrated own jobs, those worth the most, are looked for among a book's.
	maxCalibrated = 256
	// maxForeignJobs bounds the weight by use of an entry that nobody here has counted.
	maxForeignJobs = 100
	// maxMisled first allocations that failed set a book aside.
	maxMisled = 3
	// foreignID is set in the numbers of foreign entries. JSON's readers hold 53 bits.
	foreignID = 1 << 52
	// maxMemory is by how much more memory a foreign run may be believed to need than any run here.
	maxMemory = 2
	// maxCells are more than any curve has.
	maxCells = 64
)

// TooMany reports whether an entry holds more of something than is kept of any: it is not worth its memory.
func (k *Known) TooMany() bool {
	if len(k.Identities) > maxIdentities || k.Ends.Len() > maxIdentities*MaxEnds || len(k.Learned.Devices) > maxDevices {
		return true
	}
	for _, l := range []*model.Learner{k.Learned.Response, k.Learned.Memory} {
		if l != nil && len(l.Cells) > maxCells {
			return true
		}
	}
	return slices.ContainsFunc(k.Ends.All(), func(e End) bool { return len(e.Numbers) > maxEndNumbers }) ||
		slices.ContainsFunc(k.Identities, func(i identity.Identity) bool { return len(i.Words)+len(i.Numbers) > maxText })
}

// Prepare checks a book, and scales it to this host by the jobs that both know. Counts of how
// trials ended there, and corrections, are left out: here they begin anew.
func Prepare(own []Known, book Book, nowUnixNs int64) Prepared {
	var out Prepared
	if book.MadeUnixNs > nowUnixNs {
		out.AheadNs = book.MadeUnixNs - nowUnixNs
	}
	seen := map[uint64]bool{}
	for _, k := range book.Known {
		if k = k.foreign(book.Host, out.AheadNs); k.valid(nowUnixNs) != nil || seen[k.ID] {
			out.Refused++
			continue
		}
		seen[k.ID] = true
		out.Known = append(out.Known, k)
	}
	out.Ratio, out.Shared = calibrate(own, out.Known)
	most := mostMemory(own)
	for i := range out.Known {
		out.Known[i].scale(out.Ratio)
		out.Known[i].boundMemory(most)
	}
	return out
}

// foreign is an entry as another host's.
func (k Known) foreign(host string, aheadNs int64) Known {
	name := k.Name
	if name == "" {
		name = fmt.Sprint(k.ID)
	}
	if k.ID != 0 { // 0 is no number there, and none here
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(host+"\x00"), k.ID))
		k.ID = foreignID | binary.LittleEndian.Uint64(sum[:])%foreignID
	}
	k.Host, k.Name = clip(host), clip(host+"/"+name)
	k.FirstUnixNs, k.LastUnixNs = k.FirstUnixNs-aheadNs, k.LastUnixNs-aheadNs
	k.Jobs = min(k.Jobs, maxForeignJobs)
	l := &k.Learned
	l.Kept, l.Failed, l.Right, l.Wrong, l.Correction = 0, 0, 0, 0, 1
	k.RunsRight, k.RunsWrong = 0, 0
	k.Ends = k.Ends.Each(func(e *End) { // what a run is compared with is this host's alone
		*e = e.Private()
		e.UnixNs -= aheadNs
	})
	return k
}

// hostTimes are the attributes that hang on how fast a host is, and what it is shared with.
const hostTimes = 1<<TrainerCPU | 1<<LoaderCPU | 1<<OtherCPU | 1<<DeviceWait | 1<<Batch | 1<<StepTime | 1<<Activity | 1<<SyncShare

// calibrate is the median ratio of a step's CPU time here to that there, over jobs that both hosts
// know; 0 where too few are shared, or they do not agree.
func calibrate(own, foreign []Known) (ratio float64, shared int) {
	own, _ = Divide(own, maxCalibrated)
	wide := RangesOf()
	var ratios []float64
	jobs := byIdentity(foreign)
	for i := range own {
		k := jobs.namesake(&own[i])
		if k == nil {
			k = counterpart(&own[i], foreign, &wide)
		}
		if k != nil && own[i].Learned.Cost.CPU() > 0 && k.Learned.Cost.CPU() > 0 {
			ratios = append(ratios, own[i].Learned.Cost.CPU()/k.Learned.Cost.CPU())
		}
	}
	if len(ratios) < minShared {
		return 0, len(ratios)
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	agree := 0
	for _, r := range ratios {
		if r <= median*sameDemand && median <= r*sameDemand {
			agree++
		}
	}
	if agree < minShared || 2*agree <= len(ratios) || median > maxRatio || median < 1/float64(maxRatio) {
		return 0, len(ratios)
	}
	return median, len(ratios)
}

// identified are known jobs by their identities; nil: more than one has it. A book has thousands.
type identified map[[2]string]*Known

func byIdentity(all []Known) identified {
	out := identified{}
	for i := range all {
		for _, id := range all[i].Identities {
			name := [2]string{id.Key, id.Job}
			if _, twice := out[name]; twice {
				out[name] = nil
			} else {
				out[name] = &all[i]
			}
		}
	}
	return out
}

// namesake is the one that has an identity of k's, on the same model of device.
func (m identified) namesake(k *Known) *Known {
	for _, id := range k.Identities {
		if o := m[[2]string{id.Key, id.Job}]; o != nil && o.Print.Device == k.Print.Device && o.Print.Unit == k.Print.Unit {
			return o
		}
	}
	return nil
}

// counterpart is the one of other jobs that is the same as k by all that no host moves; nil where
// there is none, or more than one.
func counterpart(k *Known, others []Known, ranges *Ranges) *Known {
	var found *Known
	steady := k.Print
	steady.has &^= hostTimes
	for i := range others {
		o := &others[i]
		if o.Print.Unit != steady.Unit || o.Print.Device != steady.Device {
			continue
		}
		switch l := compare(&steady, &o.Print, ranges); {
		case l.Attributes < minAttributes || l.Distance > 2*sharedAt:
		case found != nil || l.Distance > sharedAt:
			return nil
		default:
			found = o
		}
	}
	return found
}

// scale makes what a host measured comparable to what is measured here: CPU times by the ratio.
// Without one the entry stands for its shape alone, and what is absolute in it is dropped.
func (k *Known) scale(ratio float64) {
	l := &k.Learned
	if k.Shape = ratio == 0; k.Shape {
		l.Response, l.Memory = nil, nil
		return
	}
	scaled := func(c policies.Cost) policies.Cost { return scaleCost(c, ratio) }
	l.Cost, l.Devices = scaled(l.Cost), l.Devices.each(scaled)
	for _, a := range []Attribute{TrainerCPU, LoaderCPU, OtherCPU, Batch} {
		if v, ok := k.Print.Value(a); ok {
			k.Print = k.Print.With(a, v*ratio)
		}
	}
	cell := func(c model.Cell) model.Cell {
		return model.Cell{X: c.X, Log: c.Log - math.Log(ratio), Weight: c.Weight}
	}
	l.Response, l.Memory = eachCell(l.Response, scaled, cell), eachCell(l.Memory, scaled, cell)
}

// mostMemory is the most, in bytes, that a run here was found to need; 0: of none it is known.
func mostMemory(own []Known) (most float64) {
	for i := range own {
		for _, e := range own[i].Ends.All() {
			most = max(most, e.Memory)
		}
	}
	return most
}

// boundMemory leaves the memory of another host's runs out where it is nowhere near what this host has
// met: a limit is raised by it at each start, and memory that is given is not told to be too much. Of a
// host that is not calibrated none is taken.
func (k *Known) boundMemory(most float64) {
	k.Ends = k.Ends.Each(func(e *End) {
		if k.Shape || e.Memory > maxMemory*most {
			e.Memory = 0
		}
	})
}

func scaleCost(c policies.Cost, ratio float64) policies.Cost {
	c.TrainerCPU, c.LoaderCPU, c.OtherCPU, c.Batch = c.TrainerCPU*ratio, c.LoaderCPU*ratio, c.OtherCPU*ratio, c.Batch*ratio
	return c
}

// shapedTo is an entry that stands for its shape, with the CPU time that a step costs here: its
// parts keep their proportions, and with them the CPUs beyond which more buy no speed.
func (k *Known) shapedTo(device string, cpu float64) *Known {
	out, c := *k, k.costOn(device)
	r := cpu / c.CPU()
	ticks := c.Ticks
	c = eachTime(c, func(v float64) float64 { return v * r })
	c.Ticks = ticks
	out.Learned.Cost, out.Learned.Devices = c, nil
	return &out
}

// Marks are what is remembered of other hosts' books beside their entries, which are read anew at
// each start.
type Marks struct {
	// Gone are entries that misled or were forgotten, with their host.
	Gone map[uint64]string `json:"gone,omitempty"`
	// GoneAt is since when, in Unix nanoseconds.
	GoneAt map[uint64]int64 `json:"goneAt,omitempty"`
	// Misled counts the first allocations that failed by host; Aside is when its book was set
	// aside for that, in Unix nanoseconds.
	Misled map[string]int   `json:"misled,omitempty"`
	Aside  map[string]int64 `json:"aside,omitempty"`
}

// Clone is a copy that has all maps, also those that are absent on disk.
func (m Marks) Clone() Marks {
	return Marks{Gone: maps.Collect(maps.All(m.Gone)), GoneAt: maps.Collect(maps.All(m.GoneAt)), Misled: maps.Collect(maps.All(m.Misled)), Aside: maps.Collect(maps.All(m.Aside))}
}

// maxGone entries are remembered as gone: more than one reading of books can bring.
const maxGone = 2 * MaxKnown

// Marks returns a copy of what is remembered of books.
func (b *Store) Marks() Marks { return b.foreign.Clone() }

// Mark begins with what was remembered of books. What is too old is left out: a host that was set
// aside is heard again after MaxAgeNs.
func (b *Store) Mark(m Marks, nowUnixNs int64) {
	b.foreign = m.Clone()
	maps.DeleteFunc(b.foreign.Aside, func(host string, at int64) bool {
		old := nowUnixNs-at > MaxAgeNs
		if old {
			delete(b.foreign.Misled, host)
		}
		return old
	})
	b.ageGone(nowUnixNs)
}

// ageGone lets entries that are gone longer than any is kept come back. Of what an earlier version
// remembered the time begins now.
func (b *Store) ageGone(nowUnixNs int64) {
	for id := range b.foreign.Gone {
		if at, told := b.foreign.GoneAt[id]; !told {
			b.foreign.GoneAt[id] = nowUnixNs
		} else if nowUnixNs-at > MaxAgeNs {
			delete(b.foreign.Gone, id)
		}
	}
	maps.DeleteFunc(b.foreign.GoneAt, func(id uint64, _ int64) bool { _, gone := b.foreign.Gone[id]; return !gone })
}

// SetForeign puts prepared entries in the place of all foreign ones. Those that misled or were
// forgotten, or whose host was set aside, stay out, and own ones are never displaced.
func (b *Store) SetForeign(all []Known, nowUnixNs int64) {
	b.ageGone(nowUnixNs)
	right := map[uint64]int{}
	b.known = slices.DeleteFunc(b.known, func(k Known) bool {
		if k.Host != "" {
			right[k.ID] = k.Learned.Right
		}
		return k.Host != ""
	})
	seen, texts := map[uint64]bool{}, map[string]string{}
	for _, k := range all {
		_, gone := b.foreign.Gone[k.ID]
		if _, aside := b.foreign.Aside[k.Host]; k.Host == "" || gone || aside || seen[k.ID] {
			continue
		}
		seen[k.ID] = true
		k.Learned.Right = right[k.ID]
		k.intern(texts)
		b.known = append(b.known, k)
	}
	slices.SortFunc(b.known, byID)
	b.bound(nowUnixNs, MaxKnown)
}

// Foreign is how many of the known jobs are other hosts'.
func (b *Store) Foreign() (n int) {
	for i := range b.known {
		if b.known[i].Host != "" {
			n++
		}
	}
	return n
}

// Own returns those known jobs of all that this host has measured.
func Own(all []Known) []Known {
	return slices.DeleteFunc(slices.Clone(all), func(k Known) bool { return k.Host != "" })
}

// misled drops foreign entries that a first allocation was taken from which failed. A host that
// had a part in it maxMisled times is set aside whole.
func (b *Store) misled(ids []uint64) {
	hosts := map[string]bool{}
	for _, id := range ids {
		if k := b.find(id); k != nil && k.Host != "" {
			hosts[k.Host] = true
			b.Forget(id, "")
		}
	}
	for host := range hosts { // each by itself: the order does not matter
		if b.foreign.Misled[host]++; b.foreign.Misled[host] >= maxMisled {
			b.foreign.Aside[host] = b.nowUnixNs
			b.drop(func(k Known) bool { return k.Host == host })
		}
	}
}

// Aside reports whether a host's book was set aside because it misled.
func (b *Store) Aside(host string) bool {
	_, aside := b.foreign.Aside[host]
	return aside
}

// ForgetHost drops a host's entries, and all that is remembered of its book: how often it misled,
// and which entries were forgotten. What is read of it later is as new.
func (b *Store) ForgetHost(host string) []Known {
	if host == "" {
		return nil
	}
	delete(b.foreign.Misled, host)
	delete(b.foreign.Aside, host)
	maps.DeleteFunc(b.foreign.Gone, func(_ uint64, of string) bool { return of == host }) // since when: ageGone drops it
	b.changed()
	return b.drop(func(k Known) bool { return k.Host == host })
}

// leave remembers that a foreign entry is to stay away.
func (b *Store) leave(k Known) {
	if k.Host == "" || len(b.foreign.Gone) >= maxGone {
		return
	}
	b.foreign.Gone[k.ID], b.foreign.GoneAt[k.ID] = k.Host, b.nowUnixNs
}

// ownFirst leaves what others say of a job out where this host has measured it itself.
func ownFirst(near []match) []match {
	if !slices.ContainsFunc(near, func(m match) bool { return m.known.Host == "" && m.Distance <= MergeAt }) {
		return near
	}
	return slices.DeleteFunc(near, func(m match) bool { return m.known.Host != "" })
}
