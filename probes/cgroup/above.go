package cgroup

import (
	"bytes"

	"github.com/trimtab/trimtab/probes"
)

// above holds the cgroups above the containers. Many containers have the same: each
// is read once for all of them in one Read, and its files are open once.
type above struct {
	dirs map[string]*ancestor
	buf  []byte
	room *room
}

type ancestor struct {
	files      files
	users      int
	read       bool // in this Read
	throttling probes.Throttling
	ok         bool
}

func newAbove(buf []byte, room *room) above {
	return above{dirs: map[string]*ancestor{}, buf: buf, room: room}
}

func (a *above) use(dirs []string) {
	for _, dir := range dirs {
		if a.dirs[dir] == nil {
			a.dirs[dir] = &ancestor{files: files{open: map[name]int{}, buf: a.buf, room: a.room}}
		}
		a.dirs[dir].users++
	}
}

// leave closes the files of a cgroup with its last user.
func (a *above) leave(dirs []string) {
	for _, dir := range dirs {
		if x := a.dirs[dir]; x.users > 1 {
			x.users--
		} else {
			x.files.close()
			delete(a.dirs, dir)
		}
	}
}

// again begins a Read: what was read before is old.
func (a *above) again() {
	for _, x := range a.dirs {
		x.read = false
	}
}

func (a *above) throttling(dir string, v2 bool) (probes.Throttling, bool) {
	x := a.dirs[dir]
	if !x.read {
		x.read = true
		x.throttling, x.ok = bandwidth(&x.files, dir, v2)
	}
	return x.throttling, x.ok
}

// bandwidth reads a cgroup's quota and what it has withheld so far; false where
// one of the files is not there or says something else.
func bandwidth(f *files, dir string, v2 bool) (probes.Throttling, bool) {
	b, err := f.read(dir, "cpu.stat")
	if err != nil {
		return probes.Throttling{}, false
	}
	t, ok := withheld(b)
	return t, ok && quota(f, dir, v2, &t)
}

func quota(f *files, dir string, v2 bool, t *probes.Throttling) bool {
	if v2 {
		return quotaV2(f, dir, t)
	}
	ok := whole(f, dir, "cpu.cfs_quota_us", &t.QuotaUs) && whole(f, dir, "cpu.cfs_period_us", &t.PeriodUs)
	t.QuotaUs = max(t.QuotaUs, -1)
	return ok
}

func whole(f *files, dir, file string, into *int64) bool {
	b, err := f.read(dir, file)
	if err != nil {
		return false
	}
	var ok bool
	*into, ok = parseInt(bytes.TrimSpace(b))
	return ok
}

func quotaV2(f *files, dir string, t *probes.Throttling) bool {
	b, err := f.read(dir, "cpu.max")
	if err != nil {
		return false
	}
	quota, period, ok := bytes.Cut(bytes.TrimSpace(b), []byte{' '})
	if !ok {
		return false
	}
	t.QuotaUs = -1
	if string(quota) != "max" {
		if t.QuotaUs, ok = parseInt(quota); !ok {
			return false
		}
	}
	t.PeriodUs, ok = parseInt(period)
	return ok
}

// withheld finds in cpu.stat what a quota has withheld.
func withheld(stat []byte) (t probes.Throttling, ok bool) {
	ok = find(stat, []want{{"nr_periods", &t.Periods}, {"nr_throttled", &t.Throttled}}) == 0
	return t, ok
}
