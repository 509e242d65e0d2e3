package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// maxComm bounds a process's name, of 16 bytes.
const maxComm = 64

// mpsServer is the server's name as the kernel cuts it; the control daemon bears
// the same, and holds no device.
const mpsServer = "nvidia-cuda-mps"

// ofHost reports whether a process is in the PID namespace that trimtab's own /proc is of.
func (r *Reader) ofHost(pid int32) bool {
	own, err := os.Readlink(filepath.Join(r.o.ProcRoot, "self/ns/pid"))
	its, errIts := os.Readlink(procfs.Path(r.o.ProcRoot, pid, "ns/pid"))
	return errors.Join(err, errIts) == nil && own == its
}

// attribute names the containers of processes, and knows MPS by its server. A
// process could bear that name to look shared; it would only spare itself trials.
// One in a container, of this host's engines or another's, is a holder like any other,
// lest a job hide its work by a name.
func (r *Reader) attribute(list []probes.Device) {
	for i := range list {
		d := &list[i]
		for j := range d.Processes {
			p := &d.Processes[j]
			if r.o.Owner != nil {
				p.Container = r.o.Owner(p.PID)
			}
			if d.Sharing == wire.SharingMIG {
				continue
			}
			comm, err := procfs.Read(procfs.Path(r.o.ProcRoot, p.PID, "comm"), maxComm)
			if err == nil && strings.HasPrefix(string(comm), mpsServer) {
				d.Sharing, p.Server = wire.SharingMPS, p.Container == "" && r.ofHost(p.PID)
			}
		}
	}
}
