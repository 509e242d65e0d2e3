// Package host reads the node's CPU time and memory from /proc.
package host

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
)

// maxFileBytes bounds what is read of one file: /proc/stat of 1,000 CPUs with
// its line of interrupts stays below it.
const maxFileBytes = 1 << 20

// tickNs is the unit of /proc/stat: USER_HZ is 100 on amd64 and arm64.
const tickNs = 1e9 / 100

// Probe reads one proc file system.
type Probe struct {
	procRoot string
}

// New reads from procRoot, "/proc" but for tests.
func New(procRoot string) *Probe { return &Probe{procRoot: procRoot} }

// Read takes the node's counters at one instant.
func (p *Probe) Read() (probes.Host, error) {
	var h probes.Host
	stat, err := procfs.Read(filepath.Join(p.procRoot, "stat"), maxFileBytes)
	if err != nil {
		return h, fmt.Errorf("host probe: %w", err)
	}
	h.AtNs = procfs.MonotonicNs()
	if err := parseStat(stat, &h); err != nil {
		return h, err
	}
	meminfo, err := procfs.Read(filepath.Join(p.procRoot, "meminfo"), maxFileBytes)
	if err != nil {
		return h, fmt.Errorf("host probe: %w", err)
	}
	return h, parseMeminfo(meminfo, &h)
}

// parseStat sums the line of all CPUs and counts the others. Guest time is part
// of user time already.
func parseStat(b []byte, h *probes.Host) error {
	found := false
	for line := range bytes.Lines(b) {
		if !bytes.HasPrefix(line, []byte("cpu")) {
			continue
		}
		if len(line) > 3 && line[3] != ' ' {
			h.CPUs++
			continue
		}
		f := bytes.Fields(line)
		if len(f) < 9 {
			return fmt.Errorf("host probe: stat: %d columns in %q, steal is the ninth", len(f), line)
		}
		var ns [8]uint64
		for i := range ns {
			ticks, err := strconv.ParseUint(string(f[i+1]), 10, 64)
			if err != nil {
				return fmt.Errorf("host probe: stat: %w", err)
			}
			ns[i] = ticks * tickNs
		}
		h.BusyNs = ns[0] + ns[1] + ns[2] + ns[5] + ns[6]
		h.IdleNs, h.IOWaitNs, h.StealNs = ns[3], ns[4], ns[7]
		found = true
	}
	if !found || h.CPUs == 0 {
		return errors.New("host probe: stat: no line of CPU time")
	}
	return nil
}

func parseMeminfo(b []byte, h *probes.Host) error {
	want := map[string]*uint64{"MemTotal:": &h.MemTotal, "MemAvailable:": &h.MemAvail}
	if procfs.Find(b, want); len(want) > 0 {
		return fmt.Errorf("host probe: meminfo: lacks %d of MemTotal and MemAvailable", len(want))
	}
	if max(h.MemTotal, h.MemAvail) >= 1<<54 {
		return fmt.Errorf("host probe: meminfo: %d and %d KiB are no memory", h.MemTotal, h.MemAvail)
	}
	h.MemTotal, h.MemAvail = h.MemTotal<<10, h.MemAvail<<10
	if h.MemTotal == 0 {
		return errors.New("host probe: meminfo: a host without memory")
	}
	return nil
}
