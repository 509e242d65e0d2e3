package config

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/tuner/enrolment"
)

// decoder fills structs from YAML nodes. yaml's own strict mode stops naming
// things at the type ("field x not found in type config.API"); this one knows
// the key's whole path and line, and goes on after a problem.
type decoder struct {
	name       string            // of the file being read
	ruleOffset int               // match rules of the files before it
	at         map[string]string // key → "FILE:LINE" of what set it last
	seen       map[string]int    // key → line that set it in this file, by either name
	problems   []Problem
	warnings   []string
}

// position finds where a key was set, or else the nearest block around it.
func (d *decoder) position(key string) string {
	for key != "" {
		if at, ok := d.at[key]; ok {
			return at
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return ""
}

func (d *decoder) problem(n *yaml.Node, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{At: d.line(n), Key: key, Text: fmt.Sprintf(format, args...)})
}

func (d *decoder) line(n *yaml.Node) string { return d.name + ":" + strconv.Itoa(n.Line) }

func (d *decoder) document(doc *yaml.Node, cfg *Config) {
	if len(doc.Content) == 1 && !isNull(doc.Content[0]) {
		d.seen = map[string]int{}
		d.value(doc.Content[0], "", "", reflect.ValueOf(cfg).Elem())
	}
}

// value decodes one node; null leaves what stands. as is the key as it was written: some have an
// old name.
func (d *decoder) value(n *yaml.Node, key, as string, into reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if key != "" {
		d.at[key] = d.line(n)
	}
	_, custom := into.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isNull(n):
	case isBlock(into):
		d.block(n, key, as, into)
	case into.Kind() == reflect.Slice && into.Type().Elem().Kind() == reflect.Struct:
		d.list(n, key, into)
	case custom && n.Kind != yaml.ScalarNode:
		d.problem(n, key, "want a single value")
	default:
		d.leaf(n, key, into)
	}
}

func (d *decoder) block(n *yaml.Node, key, as string, into reflect.Value) {
	fields := fieldsOf(into.Type())
	if n.Kind != yaml.MappingNode {
		d.problem(n, key, "want a block of keys; allowed are %s", strings.Join(keys(into.Type()), ", "))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		path, written := strings.TrimPrefix(key+"."+name, "."), strings.TrimPrefix(as+"."+name, ".")
		index, known := fields[name]
		if to, is := Renamed()[path]; is && !known {
			path = to
			index, known = fields[lastOf(to)]
		}
		once := path
		if known && isBlock(into.Field(index)) {
			once = written // a block under both names is put together
		}
		line, twice := d.seen[once]
		d.seen[once] = n.Content[i].Line
		d.renamed(n.Content[i], written, path)
		switch {
		case !known:
			d.problem(n.Content[i], path, "unknown key; %s", nearest(name, keys(into.Type())))
		case twice:
			d.problem(n.Content[i], path, "set twice, first in line %d", line)
		default:
			d.value(n.Content[i+1], path, written, into.Field(index))
		}
	}
}

// isBlock reports whether a field is a block of keys.
func isBlock(field reflect.Value) bool {
	_, custom := field.Addr().Interface().(encoding.TextUnmarshaler)
	return field.Kind() == reflect.Struct && !custom
}

// renamed warns of a key that goes by another name now. A block is told of once: a key in it that
// keeps its name goes with it, and idle, which has one key, is told of by that.
func (d *decoder) renamed(n *yaml.Node, was, is string) {
	if lastOf(was) == lastOf(is) || was == "idle" {
		return
	}
	d.warnings = append(d.warnings, fmt.Sprintf("%s: %s is %s now: write it there; the old name ends with the next release", d.line(n), was, is))
}

// lastOf is a key's last part.
func lastOf(key string) string { return key[strings.LastIndex(key, ".")+1:] }

func (d *decoder) list(n *yaml.Node, key string, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n, key, "want a list, each item after a dash")
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", key, d.ruleOffset+i+1)
		d.value(item, at, at, into.Index(i))
	}
}

func (d *decoder) leaf(n *yaml.Node, key string, into reflect.Value) {
	fresh := reflect.New(into.Type()) // so that lists and maps replace, not extend
	if err := n.Decode(fresh.Interface()); err != nil {
		if strings.HasPrefix(key, "notify.") { // what stands there may be a secret
			d.problem(n, key, "is not %s", cmp.Or(wantedToNotify(into.Type()), wanted(into.Type())))
		} else if want := wanted(into.Type()); want != "" {
			d.problem(n, key, "%s is not %s", got(n), want)
		} else {
			d.problem(n, key, "%s", err)
		}
		return
	}
	into.Set(fresh.Elem())
}

// got shows what stands where something else was wanted.
func got(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a block of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

// wanted names what a type accepts; "" where the type's own error says it.
func wanted(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return ""
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Slice:
		return "a list of texts, such as [cpu, memory]"
	case reflect.Map:
		return `a block of label: "pattern"`
	}
	return ""
}

// wantedToNotify names what the types accept that go by another name there.
func wantedToNotify(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[map[string]string]():
		return "a block of Name: value, such as {X-Team: vision}"
	case reflect.TypeFor[Duration]():
		return "a time such as 500ms, 10s, 2h or 30d"
	case reflect.TypeFor[[]string]():
		return "a list of events, such as [kept, reverted]"
	}
	return ""
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func keys(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		out = append(out, f.Tag.Get("yaml"))
	}
	return out
}

func fieldsOf(t reflect.Type) map[string]int {
	out := map[string]int{}
	for i, name := range keys(t) {
		out[name] = i
	}
	return out
}

// nearest names the known key that a typo may have meant, else all of them.
func nearest(name string, known []string) string {
	best, distance := "", 3 // two edits: more is another word
	for _, k := range known {
		if n := edits(strings.ToLower(name), strings.ToLower(k)); n < distance {
			best, distance = k, n
		}
	}
	if best != "" && distance < len(best) {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "allowed are " + strings.Join(known, ", ")
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Duration is a time.Duration written as Go does, or in days: 500ms, 2h, 30d.
type Duration time.Duration

// D returns it as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// ParseDuration reads a time as Go writes it, or in days: 500ms, 2h, 30d.
func ParseDuration(s string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a time; allowed are times such as 500ms, 10s, 2h or 30d", s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, wrong
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return 0, wrong
	}
	return v, nil
}

// CPUAmount is a number of CPUs (0.5), or a share of the node's ("10%").
type CPUAmount struct {
	CPUs  float64
	Share float64 // 0..1
}

// Of returns the amount in CPUs on a node that has so many.
func (a CPUAmount) Of(cpus float64) float64 { return a.CPUs + a.Share*cpus }

// UnmarshalText reads it.
func (a *CPUAmount) UnmarshalText(text []byte) (err error) {
	a.CPUs, a.Share, err = parseAmount(string(text), enrolment.ParseCPUs, "CPUs; allowed are numbers such as 0.5")
	return err
}

// MemoryAmount is an amount of memory (2GiB), or a share of the node's ("10%").
type MemoryAmount struct {
	Bytes float64
	Share float64 // 0..1
}

// Of returns the amount in bytes on a node that has so many.
func (a MemoryAmount) Of(bytes float64) float64 { return a.Bytes + a.Share*bytes }

// UnmarshalText reads it.
func (a *MemoryAmount) UnmarshalText(text []byte) (err error) {
	a.Bytes, a.Share, err = parseAmount(string(text), enrolment.ParseBytes, "memory; allowed are amounts such as 2GiB")
	return err
}

// parseAmount reads a share, or an amount of what is named.
func parseAmount(s string, parse func(string) (float64, error), of string) (amount, share float64, err error) {
	share, isShare, err := parseShare(s)
	if isShare || s == "0" {
		return 0, share, err
	}
	if amount, err = parse(s); err != nil {
		return 0, 0, fmt.Errorf(`%q is not an amount of %s, or shares such as "10%%"`, s, of)
	}
	return amount, 0, nil
}

// parseShare reads "10%"; isShare is false for anything without a percent sign.
func parseShare(s string) (share float64, isShare bool, err error) {
	number, isShare := strings.CutSuffix(s, "%")
	if !isShare {
		return 0, false, nil
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0 && v < 100) {
		return 0, true, fmt.Errorf("%q is not a share; allowed are 0%% to below 100%%", s)
	}
	return v / 100, true, nil
}
