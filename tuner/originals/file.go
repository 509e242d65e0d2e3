// Package originals keeps, on disk, the values that containers had before
// trimtab's first change, so that they can be put back by any later process:
// the daemon after a crash, another version of it, or `trimtab restore --offline`.
//
// It stores and reads; what to restore, and whether that is safe, is decided by
// the actuator. Nothing else of trimtab's state is needed to restore.
//
// # Frozen format
//
// One JSON file for each life of a container, named runtime.ID.Key() + ".json":
//
//	{
//	  "version": 1,
//	  "identity": {"engine", "container", "boot", "start"}   runtime.ID
//	  "name": "...",                                         for people
//	  "initPID": 4711,                                       host PID of its init
//	  "cgroup": {...},                                       runtime.Cgroup: where its limits stand
//	  "gpus": ["all"],                                       devices granted, if any
//	  "owed": "why",                                         an undo or restore failed and is to be repeated
//	  "carried": [{"cpu.quota": "40000 100000", ...}],       all that stood before writes that may still land: each
//	                                                         sets that again; absent where none is under way
//	  "knobs": {
//	    "cpu.quota": {
//	      "original": "40000 100000",   before trimtab's first change
//	      "written":  "150000 100000",  what stands by trimtab; absent before the first write has been read back
//	      "writing":  "160000 100000",  being written: set durably before the write, cleared after its read-back
//	      "debt":     "why"             the original is pending: it was not safe to return to
//	      "stored":   "150000 100000"   what trimtab last put into the engine's own record, from
//	                                    which a restart takes it; absent where it put nothing there
//	      "sum":      "1c2d3e4f"        of the original, see sumOf; absent in files of an earlier version
//	    }
//	  }
//	}
//
// Values are texts as documented at runtime's knobs; the original of a cpuset may
// be "", unset. A field may be added, never
// changed or removed; the version rises only with a change that older readers
// may ignore. Readers keep what they do not know, so that files written by a
// later version survive an earlier one. The sum is of the original alone, so that an
// earlier version, which keeps it and rewrites the rest, does not make it wrong. It does
// in one case: where a life that was started from values that trimtab had stored gets
// its owner's in place of those. What stands is trimtab's if it equals "written" or
// "writing"; anything else is somebody else's and stays.
//
// The one trap: a file set aside as KEY.json.corrupt still stands for originals
// that are unknown. Load keeps refusing that container, so that values of
// trimtab's own are never taken for originals.
package originals

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/runtime"
)

// Version is what this code writes into new files.
const Version = 1

// ErrCorrupt marks a file that cannot be understood.
var ErrCorrupt = errors.New("originals file is corrupt")

// Knob is one changed knob of a container.
type Knob struct {
	Original runtime.Value
	Written  runtime.Value // "": nothing of trimtab's has been read back yet
	Writing  runtime.Value // "": no write is under way
	Pending  string        // "": none
	Stored   runtime.Value // "": the engine's own record was not written

	unknown map[string]json.RawMessage
}

// Ours reports whether the standing value is one that trimtab wrote or was writing.
func (k Knob) Ours(name runtime.Knob, stands runtime.Value) bool {
	return k.Written != "" && name.Same(k.Written, stands) || k.Writing != "" && (name.Same(k.Writing, stands) || k.half(name, stands))
}

// OursStored reports whether the value in the engine's own record is one that trimtab put there.
func (k Knob) OursStored(name runtime.Knob, stored runtime.Value) bool {
	return !name.Same(k.Original, stored) && (k.Stored != "" && name.Same(k.Stored, stored) || k.Ours(name, stored))
}

// half reports whether a quota that stands is a write that was cut short in its
// middle: a runtime writes quota and period one after the other, so one may be new
// and the other as it was.
func (k Knob) half(name runtime.Knob, stands runtime.Value) bool {
	quota, period, err := runtime.ParseQuota(stands)
	oldQuota, oldPeriod, errOld := runtime.ParseQuota(cmp.Or(k.Written, k.Original))
	newQuota, newPeriod, errNew := runtime.ParseQuota(k.Writing)
	if name != runtime.KnobCPUQuota || errors.Join(err, errOld, errNew) != nil || oldPeriod == newPeriod {
		return false
	}
	return quota == oldQuota && period == newPeriod || quota == newQuota && period == oldPeriod
}

// File is the originals of one container.
type File struct {
	Version int
	ID      runtime.ID
	Name    string
	InitPID int
	Cgroup  runtime.Cgroup
	GPUs    []string
	Pending string // "": nothing is pending for the container as a whole
	Carried []runtime.Values
	Knobs   map[runtime.Knob]Knob

	unknown map[string]json.RawMessage
}

// For starts the file of a container.
func For(c runtime.Container) File {
	return File{Version: Version, ID: c.ID, Name: c.Name, InitPID: c.InitPID, Cgroup: c.Cgroup, GPUs: c.GPUs,
		Knobs: map[runtime.Knob]Knob{}}
}

// Container is what is known of the container without its engine: enough to read and restore it.
func (f File) Container() runtime.Container {
	return runtime.Container{ID: f.ID, Name: f.Name, InitPID: f.InitPID, Cgroup: f.Cgroup, GPUs: f.GPUs, State: runtime.StateRunning}
}

// Clone returns a copy whose knobs can be changed independently.
func (f File) Clone() File {
	f.Knobs, f.Carried = maps.Clone(f.Knobs), slices.Clip(f.Carried)
	return f
}

// maxCarried bounds the record of one file: a plan's write, and those of tries at its way back.
const maxCarried = 4

// Carry records what stands before a write that is to be put on record. The write sets all of it again, whenever it lands,
// and so also what somebody else has changed since.
func (f *File) Carry(stands runtime.Values) {
	if !f.CutShort() {
		f.Carried = nil
	}
	if !slices.ContainsFunc(f.Carried, func(v runtime.Values) bool { return maps.Equal(v, stands) }) {
		f.Carried = append(f.Carried[max(0, len(f.Carried)-maxCarried+1):len(f.Carried):len(f.Carried)], stands.Clone())
	}
}

// Stored reports whether anything was put into the engine's own record.
func (f File) Stored() bool {
	for _, k := range f.Knobs {
		if k.Stored != "" {
			return true
		}
	}
	return false
}

// CutShort reports whether a write was begun whose end nobody saw: it may still land.
func (f File) CutShort() bool {
	for _, k := range f.Knobs {
		if k.Writing != "" {
			return true
		}
	}
	return false
}

// InFlight are the values that a write which was cut short may still bring, one on its way back too: it
// carries all knobs, each as it stood or was to be.
func (f File) InFlight() []runtime.Values {
	original, written, writing := runtime.Values{}, runtime.Values{}, runtime.Values{}
	for name, k := range f.Knobs {
		original[name] = k.Original
		if k.Written != "" {
			written[name] = k.Written
		}
		if k.Writing != "" {
			writing[name] = k.Writing
		}
	}
	all := []runtime.Values{original, written, writing}
	if f.CutShort() {
		all = append(all, f.Carried...)
	}
	return all
}

// Originals lists the original of each knob in the file.
func (f File) Originals() runtime.Values {
	out := runtime.Values{}
	for k, v := range f.Knobs {
		out[k] = v.Original
	}
	return out
}

// Unsettled says why the file needs work before another change may be made:
// something is pending, or a write was cut short. "" if it does not.
func (f File) Unsettled() string {
	if f.Pending != "" {
		return f.Pending
	}
	for _, name := range f.Originals().Sorted() {
		switch k := f.Knobs[name]; {
		case k.Pending != "":
			return k.Pending
		case k.Writing != "":
			return fmt.Sprintf("a write of %s was cut short", name)
		}
	}
	return ""
}

// Encode returns the file's content.
func Encode(f File) ([]byte, error) {
	out := map[string]json.RawMessage{}
	maps.Copy(out, f.unknown)
	knobs := map[runtime.Knob]map[string]json.RawMessage{}
	for name, k := range f.Knobs {
		knobs[name] = encodeKnob(k, sumOf(f.ID, name, k.Original))
	}
	err := errors.Join(
		put(out, "version", f.Version, false),
		put(out, "identity", f.ID, false),
		put(out, "name", f.Name, false),
		put(out, "initPID", f.InitPID, f.InitPID == 0),
		put(out, "cgroup", f.Cgroup, false),
		put(out, "gpus", f.GPUs, f.GPUs == nil),
		put(out, "owed", f.Pending, f.Pending == ""),
		put(out, "carried", f.Carried, len(f.Carried) == 0 || !f.CutShort()),
		put(out, "knobs", knobs, false))
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(out, "", "  ")
	return append(data, '\n'), err
}

func encodeKnob(k Knob, sum string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	maps.Copy(out, k.unknown)
	// Texts always encode.
	_ = put(out, "original", k.Original, false)
	_ = put(out, "written", k.Written, k.Written == "")
	_ = put(out, "writing", k.Writing, k.Writing == "")
	_ = put(out, "debt", k.Pending, k.Pending == "")
	_ = put(out, "stored", k.Stored, k.Stored == "")
	_ = put(out, "sum", sum, false)
	return out
}

// sumOf tells an original that a disk changed: a flipped digit is a valid limit, too. It is
// CRC-32C of the container's key, the knob and the value, in hexadecimal.
func sumOf(id runtime.ID, name runtime.Knob, original runtime.Value) string {
	text := id.Key() + "\x00" + string(name) + "\x00" + string(original)
	return fmt.Sprintf("%08x", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

func put(out map[string]json.RawMessage, name string, value any, absent bool) error {
	if absent {
		return nil
	}
	if _, kept := out[name]; kept {
		return nil // identity and cgroup go back as they came, with fields of later versions
	}
	data, err := json.Marshal(value)
	out[name] = data
	return err
}

// Decode reads a file's content; errors are ErrCorrupt.
func Decode(data []byte) (File, error) {
	var f File
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &raw); err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var knobs map[runtime.Knob]json.RawMessage
	err := errors.Join(
		take(raw, "version", &f.Version),
		keep(raw, "identity", &f.ID),
		take(raw, "name", &f.Name),
		take(raw, "initPID", &f.InitPID),
		keep(raw, "cgroup", &f.Cgroup),
		take(raw, "gpus", &f.GPUs),
		take(raw, "owed", &f.Pending),
		take(raw, "knobs", &knobs))
	if err != nil {
		return File{}, err
	}
	if take(raw, "carried", &f.Carried) != nil { // a help: without it the rest is worth what it says
		f.Carried = nil
	}
	if f.Version < 1 || f.ID.Engine == "" || f.ID.Container == "" {
		return File{}, fmt.Errorf("%w: no version or identity", ErrCorrupt)
	}
	f.unknown = raw
	f.Knobs = map[runtime.Knob]Knob{}
	for name, data := range knobs {
		k, err := decodeKnob(data, f.ID, name)
		if err != nil {
			return File{}, fmt.Errorf("knob %q: %w", name, err)
		}
		f.Knobs[name] = k
	}
	return f, nil
}

func decodeKnob(data []byte, id runtime.ID, name runtime.Knob) (Knob, error) {
	var k Knob
	var sum string
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &raw); err != nil {
		return Knob{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	_, present := raw["original"] // it may be "": an unset cpuset
	err := errors.Join(
		take(raw, "original", &k.Original),
		take(raw, "written", &k.Written),
		take(raw, "writing", &k.Writing),
		take(raw, "debt", &k.Pending),
		take(raw, "stored", &k.Stored),
		take(raw, "sum", &sum))
	if err == nil && !present {
		err = fmt.Errorf("%w: no original", ErrCorrupt)
	}
	if err == nil && sum != "" && sum != sumOf(id, name, k.Original) {
		err = fmt.Errorf("%w: its original %q is not what was written: its sum differs", ErrCorrupt, k.Original)
	}
	k.unknown = raw
	return k, err
}

// take decodes a field and removes it from what is unknown.
func take(raw map[string]json.RawMessage, name string, into any) error {
	err := keep(raw, name, into)
	delete(raw, name)
	return err
}

func keep(raw map[string]json.RawMessage, name string, into any) error {
	data, ok := raw[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	return nil
}
