package render

import (
	"cmp"

	"github.com/trimtab/trimtab/policies"
)

// causeWord is a verdict in one word: its cause, or its class where it has none.
func causeWord(v policies.Verdict) string {
	if v.Cause != "" {
		return Clean(string(v.Cause))
	}
	return cmp.Or(Clean(string(v.Class)), "-")
}

// classAndCause are a verdict's words as metrics and the documentation use them.
func classAndCause(v policies.Verdict) string {
	if v.Cause == "" {
		return Clean(string(v.Class))
	}
	return Clean(string(v.Class) + "/" + string(v.Cause))
}

// causeWords says in plain words what bounds a job.
func causeWords(v policies.Verdict) string {
	causes := map[policies.Cause]string{
		policies.CauseThrottled: "data comes late, because loaders run out of CPU quota",
		policies.CauseContended: "data comes late, because loaders wait for a CPU behind other work",
		policies.CauseStorage:   "data comes late, because disks are slow to read",
		policies.CauseRemote:    "data comes late, because it is read over the network",
		policies.CauseCache:     "data comes late, because the memory limit evicts files that are read again",
		policies.CauseWorkers:   "data comes late, because there are too few loaders",
		policies.CauseDevice:    "its device is busy; there is nothing to gain on the host",
		policies.CauseShared:    "another container works on the same device",
		policies.CauseHost:      "the training process itself needs more CPU than it gets",
		policies.CauseClocks:    "power or heat slows its device down",
		policies.CauseNetwork:   "the network between peers is the limit",
		policies.CauseStraggler: "one of its peers is late",
		policies.CauseReclaim:   "its memory limit makes the kernel take memory away",
		policies.CauseRisk:      "its memory grows towards the limit",
	}
	classes := map[policies.Class]string{
		policies.ClassBalanced: "nothing in particular", policies.ClassIdle: "nothing: no progress is expected now",
		policies.ClassInteractive: "nothing: a person works in it", policies.ClassUnknown: "not known, the evidence is too thin",
	}
	return cmp.Or(causes[v.Cause], classes[v.Class], classAndCause(v))
}
