package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// leave notes a process that the child left behind.
func (r *Reader) leave(l wire.Left) (err error) {
	r.update(func(b *book) {
		b.left = slices.DeleteFunc(b.left, func(l wire.Left) bool { return !r.lives(l) })
		if b.left = append(b.left, l); len(b.left) > maxLeft {
			err = fmt.Errorf("%w: it left more than %d processes behind", errNotOurs, maxLeft)
		}
	})
	return err
}

// hanging says which processes that a child left behind hang: in a folder of the loader's that does not
// answer no signal ends them, and each further child would leave more. "": none does.
func (r *Reader) hanging() string {
	r.mu.Lock()
	left := slices.Clone(r.book.left)
	r.mu.Unlock()
	var which []string
	for _, l := range left {
		if r.lives(l) {
			which = append(which, fmt.Sprintf("process %d at %s", l.PID, l.At))
		}
	}
	if len(which) == 0 {
		return ""
	}
	return "; no further NVML child is started until what hangs in a folder of the loader's has ended: " + strings.Join(which, ", ")
}

// lives: the process has not ended. The child may have been taken over: one of another name is not waited for.
func (r *Reader) lives(l wire.Left) bool {
	stat, err := procfs.ReadStat(r.o.ProcRoot, l.PID)
	if err != nil || stat.Ended || stat.StartTick != l.StartTick {
		return false
	}
	comm, err := procfs.Read(procfs.Path(r.o.ProcRoot, l.PID, "comm"), maxComm)
	return err == nil && strings.TrimSpace(string(comm)) == ChildName
}

// unchanged is why the child ended that was the last for now.
func unchanged(err error) error {
	if fail := (*wire.Failure)(nil); errors.As(err, &fail) {
		return fail
	}
	return &wire.Failure{Why: err.Error()}
}
