package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// Peer is another container of the same job.
type Peer struct {
	Key, Name string
	Reading   observe.Reading // its latest
	Verdict   policies.Verdict
}

// Among adds to a reading which other container of its job keeps it waiting, and which rank does by
// what its device does. key is its own container.
func Among(k *policies.Constants, r *observe.Reading, key string, job []Peer) {
	addLate(k, r, key, job)
	slow := slowPeer(k, *r, job)
	if slow == nil {
		return
	}
	if r.Exchanges {
		r.Expose(slow.Reading.Own() - r.Own())
	}
	r.Slow = slow.Name
	if v := slow.Verdict; v.Class != "" && v.Class != policies.ClassUnknown {
		r.Slow = fmt.Sprintf("%s, which is bound by %s", slow.Name, Name(v))
	}
}

// slowPeer is the container of the same job that works the longest for itself in
// a step, if it is ahead of this one by what counts as communication.
func slowPeer(k *policies.Constants, r observe.Reading, job []Peer) (slow *Peer) {
	most := r.Own() + k.Exposed
	for i, o := range job {
		if r.Exchanges && !o.Reading.Exchanges {
			continue
		}
		if own := o.Reading.Own(); own > most || own == most && slow == nil {
			slow, most = &job[i], own
		}
	}
	return slow
}

// addLate adds the rank of the job whose device does not spin while the others' do, if it is not on
// the device of the one that was read. A device that ranks of several containers share waits for
// all of them: so it counts for this one too.
func addLate(k *policies.Constants, r *observe.Reading, key string, job []Peer) {
	if !r.Exchanges {
		return
	}
	keys := []string{key}
	for _, o := range job {
		keys = append(keys, o.Key)
	}
	ranks := rankDevices(k, *r, "", keys)
	own := slices.IndexFunc(ranks, func(o rankDevice) bool { return o.tgid == r.Root })
	for _, o := range job {
		theirs := rankDevices(k, o.Reading, o.Name, keys)
		if !meanwhile(r.Window, o.Reading.Window) {
			for i := range theirs {
				theirs[i].uuid = "" // who was late before may not be now
			}
		}
		ranks = append(ranks, theirs...)
	}
	late := lateRank(k, ranks)
	if late == nil || own < 0 || slices.Contains(late.TGIDs, r.Root) {
		return
	}
	r.Late = late
	r.Expose(ranks[own].spins)
}

// meanwhile reports whether another window is of the same time for half of this one.
func meanwhile(w, other *observe.Window) bool {
	return 2*(min(w.EndNs, other.EndNs)-max(w.StartNs, other.StartNs)) >= w.EndNs-w.StartNs
}

// rankDevice is a rank of a job that exchanges, by the device that it is on.
type rankDevice struct {
	tgid  int32
	name  string  // for people
	uuid  string  // of the device; "": what the rank does there is not told
	spins float64 // share of time, 0..1, in which the device seems to wait for other ranks
	of    int     // ranks of its largest communicator; 0: not told
}

// rankDevices are the ranks of a container that exchange with others. Its name is told where it is
// not this one's own; job holds the keys of the containers of its job.
func rankDevices(k *policies.Constants, r observe.Reading, name string, job []string) (out []rankDevice) {
	for _, p := range r.Peers {
		rank := rankDevice{tgid: p.Root, name: rankName(r, p.Root)}
		if name != "" {
			rank.name = name + ", " + rank.name
		}
		if i := slices.IndexFunc(r.Window.Processes, func(o observe.Process) bool { return o.TGID == p.Root }); i >= 0 {
			rank.of = r.Window.Processes[i].Ranks
		}
		if !p.Exchanges || rank.of == 1 {
			continue
		}
		// What strangers do on the device is not the rank's doing. A slice of a device has no duty.
		if d := r.Window.Activity(p.Root); d != nil && d.Samples >= minSamples && (d.Alone(k) || within(d.Holders, job)) {
			rank.uuid, rank.spins = d.UUID, k.Spinning(d.Duty, d.SM)
		}
		out = append(out, rank)
	}
	return out
}

func within(keys, job []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(job, key) })
}

// lateRank finds the rank of a job that the others wait for: their devices spin in a collective most of
// the time, and its own does not. Ranks that share a device are told as one, for it does not say
// which of them is late. nil: the devices do not tell.
func lateRank(k *policies.Constants, ranks []rankDevice) *policies.Late {
	var late []rankDevice
	of, seen, spinning, all := 0, 0, 0, len(ranks)
	ranks = slices.SortedFunc(slices.Values(ranks), func(a, b rankDevice) int {
		return cmp.Or(cmp.Compare(a.uuid, b.uuid), cmp.Compare(a.tgid, b.tgid), cmp.Compare(a.name, b.name))
	})
	for len(ranks) > 0 {
		n := 0
		least, most := ranks[0].spins, ranks[0].spins
		for ; n < len(ranks) && ranks[n].uuid == ranks[0].uuid; n++ {
			of, least, most = max(of, ranks[n].of), min(least, ranks[n].spins), max(most, ranks[n].spins)
		}
		on := ranks[:n]
		ranks = ranks[n:]
		if on[0].uuid == "" {
			continue
		}
		seen += n
		switch {
		case least >= k.Dominant:
			spinning++
		case most < k.Exposed && late == nil:
			late = on
		default: // one that waits in part, or a second one that does not wait
			return nil
		}
	}
	if late == nil || spinning == 0 || of > 0 && all > of { // of several communicators: no peers, maybe
		return nil
	}
	out := &policies.Late{Spinning: spinning, Partly: seen < max(of, all) || of == 0}
	var names []string
	for _, r := range late {
		out.TGIDs, names = append(out.TGIDs, r.tgid), append(names, r.name)
	}
	out.Name = strings.Join(names, " or ")
	return out
}

// spinning says what the other devices do.
func spinning(l *policies.Late) string {
	others := "that of the others does"
	if l.Spinning > 1 {
		others = fmt.Sprintf("those of the others do, %d of them", l.Spinning)
	}
	if l.Partly {
		return others + "; not all ranks are seen"
	}
	return others
}

// Name is a verdict in two words.
func Name(v policies.Verdict) string {
	if v.Cause == "" {
		return string(v.Class)
	}
	return string(v.Class) + ": " + string(v.Cause)
}
