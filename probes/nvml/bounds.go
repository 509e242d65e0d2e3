package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// What a child may say. It runs a library that is not ours: it may be taken over, and then says what it
// likes. Above these bounds it says what trimtab-nvml cannot have read of a host that there is, and is ended.
const (
	maxDevices  = 1024     // told of, with slices and those that went lately; a GPU has seven slices
	maxAnswers  = 2 * 1024 // in one reading
	maxHolders  = 16 << 10 // processes of all devices: each is looked up in /proc
	maxOutcomes = 16 << 10 // calls, by device
	maxTold     = 2        // times in a reading that errors are told: before the devices and after them
	maxReasons  = 16       // why a clock is slow
	maxNumber   = 1 << 20  // of a device: the kernel's minor numbers have 20 bits
	maxName     = 256      // bytes of a name, an ID or a version; NVML's have 96
	maxText     = 4096     // bytes of a list of CPUs, or of why something is lost
	maxSkips    = 1024     // calls that are left out, or were
	maxLeft     = 16       // processes that children left behind
	maxHanging  = 12       // of these, with which another child is started: trimtab-nvml leaves four at the most
)

// errNotOurs: the child says what no trimtab-nvml says.
var errNotOurs = errors.New("the NVML child is not to be believed, and was ended")

// bounded tells an answer that a child may give. Who holds a device is asked of the kernel: what the child says
// of that is dropped.
func bounded(a *wire.Answer) error {
	texts := func(most int, all ...string) error {
		for _, s := range all {
			if len(s) > most {
				return fmt.Errorf("%w: a text of %d bytes", errNotOurs, len(s))
			}
		}
		return nil
	}
	count := func(what string, n, most int) error {
		if n > most {
			return fmt.Errorf("%w: it tells of %d %s", errNotOurs, n, what)
		}
		return nil
	}
	var errs []error
	if h := a.Hello; h != nil {
		errs = append(errs, texts(maxName, h.Driver, h.NVML, h.NoLandlock), texts(maxText, h.LeftOut))
	}
	if f := a.Failed; f != nil {
		errs = append(errs, texts(maxText, f.Why))
	}
	if l := a.Left; l != nil {
		if errs = append(errs, texts(maxText, l.At)); strings.ContainsRune(l.At, 0) { // it becomes an argument of the next child
			errs = append(errs, fmt.Errorf("%w: a path with a zero byte", errNotOurs))
		}
	}
	if e := a.End; e != nil {
		errs = append(errs, count("outcomes", len(e.Outcomes), maxOutcomes))
		for _, o := range e.Outcomes {
			errs = append(errs, texts(maxName, o.Device, o.Call))
		}
	}
	errs = append(errs, count("errors", len(a.XIDs), wire.MaxXIDs))
	for _, x := range a.XIDs {
		errs = append(errs, texts(maxName, x.Device))
	}
	if d := a.Device; d != nil {
		errs = append(errs, texts(maxName, d.UUID, d.Parent, d.Name, d.Sharing), texts(maxText, d.Lost, d.CPUs),
			count("processes of a device", len(d.Processes), wire.MaxProcesses), count("samples of a device", len(d.Duty), wire.MaxSamples),
			count("reasons", len(d.Slowdown), maxReasons), texts(maxName, d.Slowdown...),
			count("errors with a device", len(d.Errors.XIDs), 0)) // they come by themselves
		if min(d.Index, d.Minor) < 0 || max(d.Index, d.Minor) > maxNumber {
			errs = append(errs, fmt.Errorf("%w: a device has number %d and minor number %d", errNotOurs, d.Index, d.Minor))
		}
		for i := range d.Processes {
			d.Processes[i].Container, d.Processes[i].Server = "", false
		}
	}
	if first := slices.IndexFunc(errs, func(err error) bool { return err != nil }); first >= 0 {
		return errs[first]
	}
	return nil
}

// room tells whether a book has room for one more device's reading.
func (b *book) room(id string, d probes.Device) error {
	holders := len(d.Processes)
	for known, k := range b.devices {
		if known != id {
			holders += len(k.Processes)
		}
	}
	if _, known := b.devices[id]; !known && len(b.devices) >= maxDevices || holders > maxHolders {
		return fmt.Errorf("%w: it tells of more than %d devices, or %d processes", errNotOurs, maxDevices, maxHolders)
	}
	return nil
}
