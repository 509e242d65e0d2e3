package kernel

import "github.com/trimtab/trimtab/probes"

// threadName names a thread for as long as the host is up.
type threadName struct {
	tid     int32
	startNs uint64
}

// monotone keeps counters from shrinking between readings. An open interval is
// read with what is known then: a run-queue wait may later turn out to have been
// throttled for longer, a clock may lag by less than a microsecond. What was
// told stays told, and the state that grew most pays for it, so that the sum is
// still exact.
func monotone(now, before *[probes.NumStates]uint64) {
	var deficit uint64
	for s := range now {
		if now[s] < before[s] {
			deficit += before[s] - now[s]
			now[s] = before[s]
		}
	}
	for deficit > 0 {
		most := 0
		for s := range now {
			if now[s]-before[s] > now[most]-before[most] {
				most = s
			}
		}
		part := min(deficit, now[most]-before[most])
		if part == 0 {
			return // the sum itself went back; the caller keeps the earlier reading then
		}
		now[most] -= part
		deficit -= part
	}
}
