package workload

import (
	"errors"
	"time"

	"github.com/trimtab/trimtab/probes/host"
)

// MaxTaken is the share of the host's CPU time that others may take from what is measured: a run in which
// they took more says nothing of it, and is made again, MaxVoid times.
const (
	MaxTaken = 0.05
	MaxVoid  = 3
)

// Others begins to look at what others use of the host's CPU time. What used tells is not theirs, and what
// the hypervisor takes is; taken is their share of the time since.
func Others(used func() (time.Duration, error)) (taken func() (float64, error), err error) {
	h := host.New("/proc")
	read := func() (total, others float64, err error) {
		now, errHost := h.Read()
		own, errOwn := used()
		total = float64(now.BusyNs + now.IdleNs + now.IOWaitNs + now.StealNs)
		return total, float64(now.BusyNs+now.StealNs) - float64(own), errors.Join(errHost, errOwn)
	}
	total, others, err := read()
	return func() (float64, error) {
		totalNow, othersNow, err := read()
		return (othersNow - others) / max(totalNow-total, 1), err
	}, err
}
