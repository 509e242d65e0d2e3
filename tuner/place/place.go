// Package place ranks devices for jobs that are to start, by what jobs like them did
// before. It advises: who starts the job decides. Everything here is a pure function
// of plain data.
package place

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/tuner/state"
)

// Device is a GPU or a MIG slice of this host.
type Device struct {
	state.Device
	Minor int // N of /dev/nvidiaN
	Slot  int // of a slice: its place among those of its GPU
}

// Devices are a host's devices; minors are those of its GPUs, by UUID.
func Devices(all []state.Device, minors map[string]int) []Device {
	out := make([]Device, len(all))
	slots := map[string]int{}
	for i, d := range all {
		out[i] = Device{Device: d, Minor: minors[cmp.Or(d.Parent, d.UUID)]}
		if d.Parent != "" {
			out[i].Slot = slots[d.Parent]
			slots[d.Parent]++
		}
	}
	return out
}

// Grant is what a running container was given.
type Grant struct {
	Name string
	// GPUs as whoever made it named them: "all", indices, UUIDs or their beginnings, "N:M" of a slice.
	GPUs []string
	// ByNode: a number is N of /dev/nvidiaN, and no index.
	ByNode bool
}

// names reports whether a grant names the device, or the GPU that a slice is of.
func (g Grant) names(d Device) bool {
	number := d.Index
	if g.ByNode {
		number = d.Minor
	}
	return slices.ContainsFunc(g.GPUs, func(name string) bool {
		switch {
		case strings.HasPrefix(name, "MIG-"):
			return len(name) >= minUUID && strings.HasPrefix(d.UUID, name)
		case strings.HasPrefix(name, "GPU-"):
			return len(name) >= minUUID && strings.HasPrefix(cmp.Or(d.Parent, d.UUID), name)
		}
		index, slot, sliced := strings.Cut(name, ":")
		return index == strconv.Itoa(number) && (!sliced || d.Parent != "" && slot == strconv.Itoa(d.Slot))
	})
}

// minUUID is the least of a UUID that names a device: its kind and four digits.
const minUUID = 8

// Host is what there is to choose from.
type Host struct {
	Devices []Device
	Grants  []Grant
	CPUs    float64 // that a container may use; 0: no bound
	// MemoryBytes is the host's; 0: not known.
	MemoryBytes float64
	Holds       map[string]*state.Hold // by UUID; nil: none
}

// Want is what a job needs of a device.
type Want struct {
	MemoryBytes float64                    // of the device; 0: not known
	Rates       map[string]state.PlaceRate // that are expected of it, by model
}

// even is how much slower a device may be and still do as well: the smaller one is then used, and the
// larger is left to others.
const even = 0.03

// Rank lists all devices for a job: those that are free first, then by the expected rate, and
// where nothing is known by data sheet. Those that cannot be used are last, with why.
func Rank(h Host, w Want) []state.PlaceChoice {
	out := []state.PlaceChoice{}
	for _, d := range h.Devices {
		if d.Sliced {
			continue // its slices are the devices
		}
		out = append(out, h.choice(d, w))
	}
	slices.SortStableFunc(out, func(a, b state.PlaceChoice) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(busy(a), busy(b)), cmp.Compare(b.Rate.PerSecond, a.Rate.PerSecond),
			cmp.Compare(sheet(b.Model), sheet(a.Model)), cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Device, b.Device))
	})
	evenOut(out)
	return out
}

// rank is 0 for what is free, 1 for what is open to a container that was given all devices, 2 for
// what others use, 3 for what cannot be used.
func rank(c state.PlaceChoice) int {
	switch {
	case c.Unfit != "":
		return 3
	case !c.Free:
		return 2
	case len(c.Holders) > 0:
		return 1
	}
	return 0
}

// busy is by how many a device is used, where it is.
func busy(c state.PlaceChoice) int {
	n := len(c.Holders)
	if c.Hold != nil {
		n++
	}
	if c.Free {
		return 0
	}
	return n
}

// evenOut lets the smaller device go first among those that do as well.
func evenOut(all []state.PlaceChoice) {
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && rank(all[j]) == rank(all[i]) && busy(all[j]) == busy(all[i]) && all[i].Rate.PerSecond > 0 &&
			all[j].Rate.PerSecond >= (1-even)*all[i].Rate.PerSecond {
			j++
		}
		slices.SortStableFunc(all[i:j], func(a, b state.PlaceChoice) int { return cmp.Compare(a.Memory, b.Memory) })
		i = j
	}
}

// choice is a device as a job would have it.
func (h Host) choice(d Device, w Want) state.PlaceChoice {
	c := state.PlaceChoice{Device: d.UUID, Label: d.Label(), Index: d.Index, Minor: d.Minor, Slice: d.Parent != "", Model: d.Name, Memory: d.MemTotal,
		Rate: state.PlaceRate{How: state.RateUnknown}}
	if rate, known := w.Rates[d.Name]; known && d.Name != "" {
		c.Rate = rate
	}
	taken := false
	for _, held := range d.Holders {
		c.Holders, taken = append(c.Holders, cmp.Or(held.Name, "host processes")), true
	}
	for _, g := range h.Grants {
		named := g.names(d)
		if (named || slices.Contains(g.GPUs, "all")) && !slices.Contains(c.Holders, g.Name) {
			c.Holders = append(c.Holders, g.Name)
		}
		taken = taken || named
	}
	c.Hold = h.Holds[d.UUID]
	c.Unfit = unfit(d, w.MemoryBytes)
	c.Free = !taken && c.Hold == nil && c.Unfit == ""
	return c
}

func unfit(d Device, needs float64) string {
	switch {
	case d.Lost != "":
		return "lost: " + d.Lost
	case !plainUUID(d.UUID):
		return "the driver names it by no UUID"
	case d.MemTotal > 0 && needs > float64(d.MemTotal):
		return fmt.Sprintf("such jobs used %.1f GiB of device memory, and it has %.1f", needs/(1<<30), float64(d.MemTotal)/(1<<30))
	}
	return ""
}

// plainUUID reports whether a UUID can stand in a shell's command as it is.
func plainUUID(uuid string) bool {
	return uuid != "" && strings.Trim(uuid, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == "" && uuid[0] != '-'
}

// Choose takes the first n devices of one model that are free; with share also of those that
// others use, but none that is held for a job about to start. why says why there are none.
func Choose(ranked []state.PlaceChoice, n int, share bool) (uuids []string, why string) {
	for _, may := range []func(state.PlaceChoice) bool{
		func(c state.PlaceChoice) bool { return c.Free },
		func(c state.PlaceChoice) bool { return share && c.Unfit == "" && c.Hold == nil },
	} {
		byModel := map[string][]string{}
		for _, c := range ranked {
			if !may(c) {
				continue
			}
			byModel[c.Model] = append(byModel[c.Model], c.Device)
			if len(byModel[c.Model]) == n {
				return byModel[c.Model], ""
			}
		}
	}
	switch {
	case !slices.ContainsFunc(ranked, func(c state.PlaceChoice) bool { return c.Unfit == "" }):
		return []string{}, "no device here can be used"
	case n > 1:
		return []string{}, fmt.Sprintf("no %d devices of one model are free", n)
	}
	return []string{}, "no device is free"
}
