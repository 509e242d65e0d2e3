package identity

import (
	"path"
	"strings"
)

// perRun reports whether the value of an option or a variable is of each run's own, whatever it looks
// like: where the ranks meet, on which hosts, and what the run is called. "--rdzv_id", "--master-addr",
// "hydra.job.id" and "MASTER_PORT" name such. An experiment, a model or a task does not: these are chosen.
func perRun(name string) bool {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("-_.+", r) })
	pair := strings.Join(parts[max(0, len(parts)-2):], "_")
	switch pair {
	case "reuse_port", "free_port", "random_port": // it asks for one
		return false
	case "run_id", "job_id", "trial_id", "session_id", "pod_id", "rdzv_id", "wandb_id", "run_name", "trial_name", "session_name", "pod_name", "wandb_name",
		"dist_url", "init_method", "world_info":
		return true
	}
	switch pair[strings.LastIndexByte(pair, '_')+1:] {
	case "addr", "address", "endpoint", "host", "hostfile", "hostname", "hosts", "ip", "ips", "jobid", "machinefile", "nodelist", "port", "runid":
		return true
	}
	return false
}

// withoutPerRun is a word without a value that is of each run's own: "--rdzv_id=x", or "x" behind
// "--rdzv_id". before is the word before it. hosts: "-H" names hosts there, whatever they look like.
func withoutPerRun(before, word string, hosts bool) string {
	own := func(name, value string) bool {
		if name == "-H" { // of sudo it takes none
			return hosts || strings.ContainsAny(value, ":,")
		}
		return perRun(name)
	}
	if name, value, ok := strings.Cut(word, "="); ok && own(name, value) {
		return name + "=" + hole
	}
	if strings.HasPrefix(before, "-") && !strings.HasPrefix(word, "-") && own(before, word) && takes(before, word) {
		return hole
	}
	return word
}

// takes reports whether a word can be the value of the option before it: of one that takes none, it may
// be the program. A host of three names is none, though it ends as one: "gpu1.uni.pl".
func takes(option, word string) bool {
	if strings.HasSuffix(strings.ToLower(option), "port") && strings.IndexByte("0123456789$:", word[0]) < 0 {
		return false
	}
	return !program(word) || strings.Count(word, ".") > 1 && !strings.ContainsAny(word, "_/")
}

// launches reports whether "-H" behind a word names hosts that ranks start on: up to the program that is
// started. before is the same of the word before it.
func launches(before bool, word string) bool {
	switch path.Base(word) {
	case "mpirun", "mpiexec", "orterun", "horovodrun", "deepspeed":
		return true
	}
	return before && !program(word)
}

// transient is where in a word, from its byte i on, a text stands that is of each run's own by its place,
// and how long it is; 0: there is none. chosen: a person may have chosen it.
//
//   - tmpab12cd3f, tmp.Xk3fQ9zLmA: what a name that begins with "tmp" ends with. One that stands in no
//     directory may have been chosen, and is so if no digit is before a letter;
//   - torchelastic_ab12cd3f: below a directory "tmp", the random end of another name. tmp is where that
//     directory stands in the word, -1: nowhere. "llama-3_2_1b" looks like it;
//   - run-20261127_101112-1x9kp3qz: an id behind a time. clock: the latest number may be one;
//   - tcp://node7:29500: a host with its port.
func transient(word string, i, tmp int, clock bool) (at, size int, chosen bool) {
	rest := word[i:]
	switch {
	case temporary(rest) > 0 && (i > 0 && word[i-1] == '/' || (i == 0 || strings.IndexByte("=:,", word[i-1]) >= 0) && drawnMixed(rest)):
		at = temporary(rest)
		return i + at, drawn(rest[at:]), false
	case i > 0 && strings.IndexByte("-_.", word[i-1]) >= 0 && (clock || tmp >= 0 && i > tmp):
		if n := drawn(rest); mixed(rest[:n]) {
			return i, n, !clock
		}
	case strings.HasSuffix(word[:i], "://"):
		host, _, _ := strings.Cut(rest, "/")
		if port := strings.LastIndexByte(host, ':') + 1; port > 1 && port < len(host) && digits(host[port:]) == len(host)-port {
			return i, len(host), false
		}
	}
	return i, 0, false
}

// temporary is how much of a name that tempfile or mktemp made stands before what they drew; 0: it is
// no such name.
func temporary(name string) int {
	const prefix = "tmp"
	switch {
	case !strings.HasPrefix(name, prefix):
	case drawn(name[len(prefix):]) > 0:
		return len(prefix)
	case len(name) > len(prefix) && strings.IndexByte("-_.", name[len(prefix)]) >= 0 && drawn(name[len(prefix)+1:]) > 0:
		return len(prefix) + 1
	}
	return 0
}

// drawnMixed reports whether a temporary name was drawn by its looks: "tmpab12cd3f.py" was, "tmp_resnet.py" was not.
func drawnMixed(name string) bool {
	at := temporary(name)
	return at > 0 && mixed(name[at:][:drawn(name[at:])])
}

// drawn is the length of what a text begins with if it is one that ids are drawn at: letters, digits and,
// of 8 or 10, underscores, 6 of mkdtemp(3), 8 of Python's tempfile and of W&B, 10 of mktemp(1). Else 0.
func drawn(s string) int {
	n := span(s[:min(len(s), 11)], func(c byte) bool { return c < 0x80 && (digit(c) || letter(c)) || c == '_' })
	if n != 6 && n != 8 && n != 10 || n == 6 && strings.IndexByte(s[:n], '_') >= 0 || n < len(s) && (letter(s[n]) || s[n] == hole[0]) { // a hole: it was longer
		return 0
	}
	return n
}

// mixed reports whether a digit stands before a letter, as in "x8k2" and not in "resnet50".
func mixed(s string) bool {
	for i := 1; i < len(s); i++ {
		if digit(s[i-1]) && letter(s[i]) {
			return true
		}
	}
	return false
}
