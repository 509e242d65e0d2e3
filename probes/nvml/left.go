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
	if r.lives(l) {
		r.o.Logger.Warn("a process that looked at the loader's folders for the NVML child hangs: later children leave that folder alone until it answers", "pid", l.PID, "at", l.At)
	}
	r.update(func(b *book) {
		b.left = slices.DeleteFunc(b.left, func(l wire.Left) bool { return !r.lives(l) })
		if b.left = append(b.left, l); len(b.left) > maxLeft {
			err = fmt.Errorf("%w: it left more than %d processes behind", errNotOurs, maxLeft)
		}
	})
	return err
}

// living are the processes that children left behind and that have not ended: in a folder of the loader's
// that does not answer no signal ends them.
func (r *Reader) living() []wire.Left {
	r.mu.Lock()
	left := slices.Clone(r.book.left)
	r.mu.Unlock()
	return slices.DeleteFunc(left, func(l wire.Left) bool { return !r.lives(l) })
}

// hanging is where these hang: the next child leaves that alone, and so nobody behind there.
func (r *Reader) hanging() (at []string) {
	for _, l := range r.living() {
		if !slices.Contains(at, l.At) {
			at = append(at, l.At)
		}
	}
	return at
}

// held says why no further child is started: so many hang that it could leave more than may be, at other
// folders. "": one may be.
func (r *Reader) held() string {
	living := r.living()
	if len(living) <= maxHanging {
		return ""
	}
	var which []string
	for _, l := range living {
		which = append(which, fmt.Sprintf("process %d at %s", l.PID, l.At))
	}
	return "; no further NVML child is started until some of what hangs in folders of the loader's has ended: " + strings.Join(which, ", ")
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
