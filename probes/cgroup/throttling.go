package cgroup

import (
	"bytes"
	"strconv"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/runtime"
)

// bandwidth reads a cgroup's quota and what it has withheld so far; false where
// one of the files is not there or says something else.
func bandwidth(f *files, dir string, v2 bool) (probes.Throttling, bool) {
	b, err := f.read(dir, "cpu.stat")
	if err != nil {
		return probes.Throttling{}, false
	}
	t, ok := withheld(b)
	ok = ok && quota(f, dir, v2, &t)
	return t, ok
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
	if err == nil {
		*into, err = strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	}
	return err == nil
}

func quotaV2(f *files, dir string, t *probes.Throttling) bool {
	b, err := f.read(dir, "cpu.max")
	if err == nil {
		t.QuotaUs, t.PeriodUs, err = runtime.ParseQuota(runtime.Value(bytes.TrimSpace(b)))
	}
	return err == nil
}

// withheld finds in cpu.stat what a quota has withheld.
func withheld(stat []byte) (t probes.Throttling, ok bool) {
	wants := map[string]*uint64{"nr_periods": &t.Periods, "nr_throttled": &t.Throttled}
	procfs.Find(stat, wants)
	return t, len(wants) == 0
}
