package device

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/turns"
)

// Visibility looks at the GPU rules that stand for containers, puts back those that
// were taken away, and hides and shows devices. What a container had is its caller's
// to keep; what is hidden it keeps itself, and neither finds lost nor puts back. Its methods
// may be called concurrently, Repair for one container at a time.
type Visibility struct {
	o        Options
	programs *programCache
	ledger   *ledger
	files    turns.Turns // in containers' files
	useMajor int         // whose nodes count as in use
	hostDev  string      // the host's /dev
	boot     string      // this boot's ID; "" if unknown
	// filesTimeout bounds work in a container's files.
	filesTimeout time.Duration
	mu           sync.Mutex
	last         map[string]visibility // by container key
	hidden       map[string]string     // what rules hide, as they were when that was proved
}

// visibility is what the last look saw: nothing is worked out twice.
type visibility struct {
	of           string // all that the answer depends on
	stands, lost []runtime.DeviceRule
	triedAt      time.Time // of an open, where only that tells
	refused      bool
}

// NewVisibility returns one for this host.
func NewVisibility(o Options) *Visibility {
	o = o.filled()
	boot, _ := cgroup.BootID(o.ProcRoot) // without it, processes' start times tell
	return &Visibility{o: o, programs: newProgramCache(), ledger: openLedger(o.Records), filesTimeout: filesTimeout, useMajor: nvidiaMajor, hostDev: "/dev", boot: boot, hidden: map[string]string{}, last: map[string]visibility{}}
}

// Forget drops what is remembered of a container that ended.
func (v *Visibility) Forget(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.last, key)
	delete(v.hidden, key)
}

// rules are what bounds a container's use of devices now.
type rules struct {
	majors   []int // NVIDIA's
	list     []runtime.DeviceRule
	hasList  bool // v1's devices controller holds
	programs []program
}

func (v *Visibility) read(c runtime.Container) (rules, error) {
	r := rules{}
	var err error
	if r.majors, err = nvidiaMajors(v.o.ProcRoot); err != nil {
		return r, err
	}
	dir, hasList := c.Cgroup.V1["devices"]
	if r.hasList = hasList; hasList {
		if r.list, err = readRules(dir); err != nil {
			return r, fmt.Errorf("container %q: %w", c.Name, err)
		}
	}
	if c.Cgroup.Unified != "" {
		if r.programs, err = v.programs.of(c.Cgroup.Unified); err != nil && !hasList {
			return r, fmt.Errorf("container %q: %w", c.Name, err)
		}
		// With v1's list it holds the rules; that programs cannot be asked as well
		// (they need more privileges) is no reason to see nothing.
	}
	if !hasList && c.Cgroup.Unified == "" {
		return r, fmt.Errorf("container %q: its control group is not known", c.Name)
	}
	return r, nil
}

// Look tells which rules for NVIDIA's devices stand for c, each proved, and which of
// those that it had are lost. A rule whose major number is no longer NVIDIA's is
// neither: the number may be another driver's by now. What is hidden on purpose counts
// as standing. Errors: runtime.ErrGone; runtime.ErrBusy while what it sees is being
// changed, which says nothing of what it can reach.
func (v *Visibility) Look(ctx context.Context, c runtime.Container, had []runtime.DeviceRule) (stands, lost []runtime.DeviceRule, err error) {
	turn, ok := v.ledger.turns.Try(c.Key())
	if !ok {
		return nil, nil, fmt.Errorf("container %q: %w", c.Name, runtime.ErrBusy)
	}
	defer turn.Give()
	h, _ := v.ledger.get(c.Key())
	stands, lost, err = v.look(ctx, c, had, h)
	return h.whole(stands), lost, err
}

// look sees what h leaves of a container's devices.
func (v *Visibility) look(ctx context.Context, c runtime.Container, had []runtime.DeviceRule, h Hidden) (stands, lost []runtime.DeviceRule, err error) {
	c, had = h.seen(c), h.narrow(had)
	if v.gone(c) {
		return nil, nil, fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	r, err := v.read(c)
	if err != nil {
		return nil, nil, err
	}
	v.mu.Lock()
	before := v.last[c.Key()]
	v.mu.Unlock()
	now := visibility{of: r.signature(had), triedAt: before.triedAt, refused: before.refused}
	if now.of == before.of {
		now.stands, now.lost = before.stands, before.lost
	} else if now.stands, now.lost, err = r.judge(had); err != nil {
		return nil, nil, fmt.Errorf("container %q: %w", c.Name, err)
	}
	now.stands = h.narrow(now.stands)
	v.prove(ctx, c, r, &now, now.of != before.of)
	v.mu.Lock()
	v.last[c.Key()] = now
	v.mu.Unlock()
	if now.refused && len(now.lost) == 0 { // the list does not tell which
		return nil, had, nil
	}
	return now.stands, now.lost, nil
}

// tryEvery is how often an open is tried where v1's list does not tell what was
// taken: within the five seconds in which a loss must be found.
const tryEvery = 3 * time.Second

// prove asks the kernel on v1 as an open would: whenever something changed, and regularly for a
// container that may use everything but what was taken from it.
func (v *Visibility) prove(ctx context.Context, c runtime.Container, r rules, now *visibility, changed bool) {
	if !r.hasList || len(now.stands) == 0 || !changed && (!allowsAll(r.list) || time.Since(now.triedAt) < tryEvery) {
		return
	}
	minors := provenMinors(c, now.stands)
	if len(minors) == 0 {
		return
	}
	access, _ := tryOpen(ctx, c, minors)
	if now.triedAt = time.Now(); access != AccessUnknown { // which proves nothing, in either direction
		now.refused = access == AccessRefused
	}
}

// provenMinors are those that c must be able to open by these rules: the control
// node's, and those of GPUs that it names by index.
func provenMinors(c runtime.Container, rules []runtime.DeviceRule) []int {
	out := append(namedMinors(c), nvidiactlMinor)
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(minor int) bool {
		return !slices.ContainsFunc(rules, func(n runtime.DeviceRule) bool { return n.Covers(nvidiaMajor, minor) })
	})
}

func (r rules) signature(had []runtime.DeviceRule) string {
	var b strings.Builder
	fmt.Fprintln(&b, r.majors, r.hasList, r.list, had)
	for _, p := range r.programs {
		fmt.Fprintln(&b, p.id, p.here, p.err != nil)
	}
	return b.String()
}

// judge works out what stands and what is lost.
func (r rules) judge(had []runtime.DeviceRule) (stands, lost []runtime.DeviceRule, err error) {
	candidates := gpuRules(r.list, r.majors)
	if !r.hasList {
		for _, major := range r.majors {
			candidates = append(candidates, runtime.DeviceRule{Kind: "c", Major: major, Minor: runtime.AnyDevice, Access: "rw"})
		}
	}
	for _, candidate := range candidates {
		passed, err := pass(r.programs, candidate)
		if err != nil {
			return nil, nil, err
		}
		stands = append(stands, passed...)
	}
	for _, rule := range had {
		if !slices.Contains(r.majors, rule.Major) {
			continue
		}
		if r.hasList && len(missing([]runtime.DeviceRule{rule}, r.list)) > 0 {
			lost = append(lost, rule)
			continue
		}
		passed, err := pass(r.programs, rule)
		if err != nil {
			return nil, nil, err
		}
		if len(passed) != 1 || passed[0] != rule {
			lost = append(lost, rule)
		}
	}
	return sorted(stands), lost, nil
}

// pass is what device programs leave of a rule: itself, some of its numbers, or nothing.
func pass(programs []program, rule runtime.DeviceRule) ([]runtime.DeviceRule, error) {
	if len(programs) == 0 {
		return []runtime.DeviceRule{rule}, nil
	}
	minors := []int{rule.Minor}
	if rule.Minor == runtime.AnyDevice {
		minors = minors[:0]
		for minor := range minorsOf(rule.Major) {
			minors = append(minors, minor)
		}
	}
	var out []runtime.DeviceRule
	for _, minor := range minors {
		who, err := refusing(programs, ruleRequest(rule, minor))
		if who == nil && err != nil {
			return nil, err
		}
		if who == nil {
			out = append(out, runtime.DeviceRule{Kind: rule.Kind, Major: rule.Major, Minor: minor, Access: rule.Access})
		}
	}
	if len(out) == len(minors) {
		return []runtime.DeviceRule{rule}, nil
	}
	return out, nil
}

// ruleRequest asks for the reading and writing that a rule allows.
func ruleRequest(rule runtime.DeviceRule, minor int) request {
	r := openRequest(rule.Major, minor)
	r.access &= uint32(accessBits(rule.Access))
	return r
}
