package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/profiles/books"
)

// Bounds of what can work at all.
const (
	minTick         = 200 * time.Millisecond // below it, reading costs more than the budget
	maxTick         = 10 * time.Second
	minRing         = 1 << 20
	minHistory      = 1 << 20
	maxRules        = 1000
	maxSocketBytes  = 80 // sockaddr_un holds 108; the socket is bound under a longer name first
	maxOverheadCPUs = 4.0
	maxNamespaces   = 100
	// maxNamespaceBytes is containerd's bound of an identifier.
	maxNamespaceBytes = 76
	// dockerNamespace is where Docker keeps its containers in containerd.
	dockerNamespace = "moby"
	minIdle         = 5 * time.Second // readings come once a second, and may be late
	maxIdle         = 24 * time.Hour
	// minMaps holds the maps of all probes and the counters of some 8,000 threads; maxMaps
	// those of a million, more than a reading gets through in a tick.
	minMaps = 24 << 20
	maxMaps = 1 << 30
	// maxTrust hosts are heard: more than files are read.
	maxTrust = 1000
)

// check gathers problems.
type check struct{ problems []Problem }

func (k *check) that(ok bool, key, format string, args ...any) {
	if !ok {
		k.problems = append(k.problems, Problem{Key: key, Text: fmt.Sprintf(format, args...)})
	}
}

func (k *check) err(err error, key, value string) {
	if err != nil {
		k.problems = append(k.problems, Problem{Key: key, Text: fmt.Sprintf("%q: %s", value, err)})
	}
}

func oneOf[T ~string](k *check, key string, v T, allowed ...T) {
	k.that(slices.Contains(allowed, v), key, "%q is not known; allowed are %v", v, allowed)
}

func oneOfOrNone[T ~string](k *check, key string, v T, allowed ...T) {
	if v != "" {
		oneOf(k, key, v, allowed...)
	}
}

// word is one that labels may have too, or "".
func (k *check) word(key, v string) {
	if v != "" {
		_, err := enrolment.ParseWord(v)
		k.err(err, key, v)
	}
}

func (k *check) share(key string, v float64) {
	k.that(v > 0 && v < 1, key, "%v is not a share; allowed are numbers above 0 and below 1", v)
}

func (k *check) absolute(key, path string) {
	k.that(filepath.IsAbs(path), key, "%q is not an absolute path", path)
}

// optional is absolute, or "".
func (k *check) optional(key, path string) {
	if path != "" {
		k.absolute(key, path)
	}
}

func (c Config) problems() []Problem {
	k := &check{}
	oneOf(k, "mode", c.Mode, policies.ModeOff, policies.ModeObserve, policies.ModeTune)
	oneOf(k, "watch", c.Watch, enrolment.ObserveGPU, enrolment.ObserveLabelled, enrolment.ObserveAll)
	oneOf(k, "loans", c.Loans, policies.LoanModes()...)
	oneOf(k, "objective", c.Objective, policies.Objectives()...)
	k.that(c.Tick.D() >= minTick && c.Tick.D() <= maxTick, "tick", "%s is out of range; allowed are %s to %s", c.Tick.D(), minTick, maxTick)
	k.that(c.MaxTuned >= 0, "maxTuned", "%d is below 0; allowed are 0 (no limit) and more", c.MaxTuned)
	k.that(len(c.Knobs) > 0, "knobs", "is empty; allowed are %v (mode: observe changes nothing)", runtime.Families())
	k.err(enrolment.CheckFamilies(c.Knobs), "knobs", strings.Join(c.Knobs, ", "))
	k.limits(c)
	k.thresholds(c.Thresholds)
	k.endpoints(c)
	k.that(len(c.Match) <= maxRules, "match", "%d rules; allowed are %d", len(c.Match), maxRules)
	for i, r := range c.Match {
		k.rule(fmt.Sprintf("match[%d]", i+1), r)
	}
	return k.problems
}

func (k *check) limits(c Config) {
	k.that(c.Limits.ChangesPerMinute > 0, "limits.changesPerMinute", "%d is too few; allowed are 1 and more (mode: observe changes nothing)", c.Limits.ChangesPerMinute)
	k.that(c.Limits.CoolDown.D() <= 24*time.Hour, "limits.coolDown", "%s is too long; allowed are 0s to 24h", c.Limits.CoolDown.D())
	k.that(c.Overhead.CPU > 0 && c.Overhead.CPU <= maxOverheadCPUs, "overhead.cpu", "%v is out of range; allowed are numbers of CPUs above 0, to %v", c.Overhead.CPU, maxOverheadCPUs)
	k.that(c.Overhead.PerContainer > 0 && c.Overhead.PerContainer <= 0.1, "overhead.perContainer", "%v is out of range; allowed are shares of one CPU above 0, to 0.1", c.Overhead.PerContainer)
	k.that(c.Overhead.Memory >= 32<<20, "overhead.memory", "%s is too little; allowed are 32MiB and more", enrolment.FormatBytes(float64(c.Overhead.Memory)))
	k.that(c.Overhead.Maps >= minMaps && c.Overhead.Maps <= maxMaps, "overhead.maps", "%s is out of range; allowed are %s to %s", enrolment.FormatBytes(float64(c.Overhead.Maps)), enrolment.FormatBytes(minMaps), enrolment.FormatBytes(maxMaps))
	k.that(c.Record.Ring == 0 || c.Record.Ring >= minRing, "record.ring", "%d bytes is too small; allowed are 0 (off) and %s or more", c.Record.Ring, enrolment.FormatBytes(minRing))
	idle := func(key string, after Duration) {
		k.that(after.D() >= minIdle && after.D() <= maxIdle, key, "%s is out of range; allowed are %s to %s", after.D(), minIdle, maxIdle)
	}
	idle("gpu.hideAfter", c.GPU.HideAfter)
	idle("gpu.showAfter", c.GPU.ShowAfter)
	idle("gpu.idleAfter", c.GPU.IdleAfter)
	k.that(c.History.MaxBytes >= minHistory, "history.maxBytes", "%d bytes is too small; allowed are %s and more", c.History.MaxBytes, enrolment.FormatBytes(minHistory))
	k.that(c.History.MaxAge.D() >= time.Hour, "history.maxAge", "%s is too short; allowed are 1h and more", c.History.MaxAge.D())
	oneOf(k, "log.level", c.Log.Level, "debug", "info", "warn", "error")
}

func (k *check) thresholds(t Thresholds) {
	k.share("thresholds.severity", t.Severity)
	k.share("thresholds.communication", t.Communication)
	k.share("thresholds.maxExcessSteal", t.MaxExcessSteal)
	k.share("thresholds.minGain", t.MinGain)
}

// endpoints checks sockets, addresses and paths.
func (k *check) endpoints(c Config) {
	k.that(strings.HasPrefix(c.Docker.Host, "unix:///"), "docker.host", "%q is not a Unix socket; allowed are addresses such as unix:///var/run/docker.sock", c.Docker.Host)
	k.optional("docker.containerd", c.Docker.Containerd)
	k.containerd(c)
	k.listener("metrics", c.Metrics.Listen, c.Metrics.WebConfig, "127.0.0.1:9477")
	k.listener("page", c.Page.Listen, c.Page.WebConfig, "127.0.0.1:9478")
	k.that(c.Page.Listen == "" || c.Page.Listen != c.Metrics.Listen, "page.listen", "%q is metrics.listen too; each has its own", c.Page.Listen)
	k.that(c.Page.Listen != "unix:"+c.API.Socket, "page.listen", "%q is api.socket too; each has its own", c.Page.Listen)
	for i, host := range c.Page.Hosts {
		k.that(host != "" && !strings.ContainsAny(host, ":/ *"), fmt.Sprintf("page.hosts[%d]", i+1), "%q is not the name of a host; allowed are names such as node7.example.com", host)
	}
	k.absolute("api.socket", c.API.Socket)
	k.that(len(c.API.Socket) <= maxSocketBytes, "api.socket", "is longer than %d bytes", maxSocketBytes)
	k.absolute("stateDir", c.StateDir)
	k.optional("identityKey", c.IdentityKey)
	k.notify(c.Notify)
	k.optional("profiles.books", c.Profiles.Books)
	k.that(len(c.Profiles.Trust) <= maxTrust, "profiles.trust", "%d keys; allowed are %d", len(c.Profiles.Trust), maxTrust)
	bad := false
	for i, line := range c.Profiles.Trust {
		_, _, err := books.ParseKey(line)
		k.err(err, fmt.Sprintf("profiles.trust[%d]", i+1), line)
		bad = bad || err != nil
	}
	if _, err := books.NewTrust(c.Profiles.Trust, false); err != nil && !bad {
		k.problems = append(k.problems, Problem{Key: "profiles.trust", Text: err.Error()})
	}
}

// openPage says who may see the page where nobody is asked who they are; "": that is bounded.
func (c Config) openPage() string {
	host, _, err := net.SplitHostPort(c.Page.Listen)
	addr, noAddr := netip.ParseAddr(host)
	if c.Page.WebConfig != "" || strings.HasPrefix(c.Page.Listen, "unix:") || err != nil || host == "localhost" || noAddr == nil && addr.Unmap().IsLoopback() {
		return ""
	}
	return fmt.Sprintf("page.listen: whoever reaches %s sees all containers: give page.webConfig TLS and users, or listen on unix:/run/trimtab/page.sock", c.Page.Listen)
}

// listener checks where something is served over HTTP.
func (k *check) listener(section, listen, webConfig, such string) {
	if listen != "" {
		_, port, err := net.SplitHostPort(listen)
		path, isUnix := strings.CutPrefix(listen, "unix:")
		k.that(isUnix && filepath.IsAbs(path) || !isUnix && err == nil && port != "", section+".listen",
			`%q is not an address; allowed are HOST:PORT such as %s, unix:/PATH, or "" for none`, listen, such)
	}
	k.optional(section+".webConfig", webConfig)
}

func (k *check) containerd(c Config) {
	k.that(c.Docker.Enabled || c.Containerd.Enabled, "docker.enabled", "is false, and so is containerd.enabled: enable one of them")
	k.absolute("containerd.address", c.Containerd.Address)
	k.that(len(c.Containerd.Namespaces) <= maxNamespaces, "containerd.namespaces", "%d namespaces; allowed are %d", len(c.Containerd.Namespaces), maxNamespaces)
	for i, name := range c.Containerd.Namespaces {
		key := fmt.Sprintf("containerd.namespaces[%d]", i+1)
		k.that(isNamespace(name), key, "%q is not a namespace; allowed are letters and digits, with ., _ or - between, such as default", name)
		k.that(name != dockerNamespace || !c.Docker.Enabled, key, "%q is Docker's, which docker.enabled looks at", name)
	}
}

// isNamespace holds containerd's own rule (pkg/identifiers).
func isNamespace(name string) bool {
	fits, err := regexp.MatchString(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`, name)
	return err == nil && fits && len(name) <= maxNamespaceBytes
}

func (k *check) rule(key string, r enrolment.Rule) {
	k.that(r.Image+r.Name+r.Compose != "" || len(r.Label) > 0, key, `fits everything; name an image, name, compose or label (name: "*" means all)`)
	oneOfOrNone(k, key+".mode", r.Mode, policies.ModeOff, policies.ModeObserve, policies.ModeTune)
	for _, m := range r.Allow.Modes {
		oneOf(k, key+".allow.modes", m, policies.ModeOff, policies.ModeObserve, policies.ModeTune)
	}
	k.err(enrolment.CheckFamilies(r.Knobs), key+".knobs", strings.Join(r.Knobs, ", "))
	k.err(enrolment.CheckFamilies(r.Allow.Knobs), key+".allow.knobs", strings.Join(r.Allow.Knobs, ", "))
	oneOfOrNone(k, key+".loans", r.Loans, policies.LoanModes()...)
	oneOfOrNone(k, key+".allow.loans", r.Allow.Loans, policies.LoanModes()...)
	oneOfOrNone(k, key+".class", r.Class, enrolment.ClassGuaranteed, enrolment.ClassBestEffort)
	k.word(key+".team", r.Team)
	k.word(key+".job", r.Job)
	k.that(r.Importance >= 0 && r.Importance <= enrolment.MaxImportance, key+".importance", "%d is out of range; allowed are 1 to %d", r.Importance, enrolment.MaxImportance)
	k.bounds(key+".cpu", r.CPU.Bounds())
	k.bounds(key+".memory", r.Memory.Bounds())
	k.bounds(key+".allow.cpu", r.Allow.CPU.Bounds())
	k.bounds(key+".allow.memory", r.Allow.Memory.Bounds())
	k.bounds(key+".allow.importance", r.Allow.Importance.Bounds())
	a := r.Allow.Importance
	k.that(a.Min <= enrolment.MaxImportance && a.Max <= enrolment.MaxImportance, key+".allow.importance", "is out of range; allowed are 1 to %d", enrolment.MaxImportance)
}

func (k *check) bounds(key string, r policies.Range) {
	k.that(r.Min >= 0 && r.Max >= 0, key, "has a bound below 0; allowed are 0 (open) and more")
	k.that(r.Max == 0 || r.Min <= r.Max, key, "min %v is above max %v", r.Min, r.Max)
}
