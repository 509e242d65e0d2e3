package enrolment

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// The labels.
const (
	labelPrefix     = "trimtab."
	labelMode       = "trimtab.mode"
	labelEnable     = "trimtab.enable"
	labelKnobs      = "trimtab.knobs"
	labelCPUMin     = "trimtab.cpu.min"
	labelCPUMax     = "trimtab.cpu.max"
	labelMemoryMin  = "trimtab.memory.min"
	labelMemoryMax  = "trimtab.memory.max"
	labelImportance = "trimtab.importance"
	labelClass      = "trimtab.class"
	labelJob        = "trimtab.job"
	labelTeam       = "trimtab.team"
	labelLoans      = "trimtab.loans"
	// LabelRateLog holds the expression that finds steps in the container's log.
	LabelRateLog = "trimtab.rate.log"
	// labelGPUSignal names the signal that the init process is sent when its GPUs are
	// hidden or shown, where the host's config allows it.
	labelGPUSignal = "trimtab.gpu.signal"
)

// LabelNames lists the labels that trimtab reads.
func LabelNames() []string {
	return []string{labelMode, labelEnable, labelKnobs, labelCPUMin, labelCPUMax, labelMemoryMin, labelMemoryMax,
		labelImportance, labelClass, labelLoans, labelJob, labelTeam, LabelRateLog, labelGPUSignal}
}

const (
	maxRegexBytes = 512 // of an expression for the log
	maxProblems   = 16  // shown for one container; an image can carry thousands of labels
	maxValueBytes = 128 // no label of ours has a use for more
	maxWordBytes  = 63  // of a team or job: it becomes a metric's label
	maxShownBytes = 48  // of a bad value, in a problem
	maxCPUs       = 1 << 16
)

// labels is what a container's labels ask, as far as it could be read.
type labels struct {
	mode       policies.Mode // "" if none
	badMode    string        // the label of the mode that could not be read
	knobs      []string
	hasKnobs   bool
	cpu        policies.Range
	memory     policies.Range
	importance int
	class      string
	job, team  string
	loans      policies.LoanMode
	problems   []string
}

func hasLabel(all map[string]string) bool {
	for k := range all {
		if strings.HasPrefix(k, labelPrefix) {
			return true
		}
	}
	return false
}

// parseLabels reads the trimtab labels; each one that is malformed is named with
// what is allowed, and disturbs no other.
func parseLabels(all map[string]string) labels {
	var out labels
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, labelPrefix) {
			continue
		}
		if err := out.read(name, all[name]); err != nil {
			out.problems = append(out.problems, fmt.Sprintf("label %s=%s: %s", shown(name), shown(all[name]), err))
		}
	}
	out.enable(all)
	out.dropInverted(labelCPUMin, labelCPUMax, &out.cpu)
	out.dropInverted(labelMemoryMin, labelMemoryMax, &out.memory)
	return out
}

// read takes one label.
func (l *labels) read(name, raw string) (err error) {
	value := strings.TrimSpace(raw)
	if len(raw) > maxValueBytes {
		value = "" // no reader below accepts it
	}
	switch name {
	case labelMode:
		l.mode, err = oneOf(strings.ToLower(value), policies.ModeOff, policies.ModeObserve, policies.ModeTune)
		if err != nil {
			l.badMode = name
		}
	case labelEnable: // read by enable, once the mode is known
	case labelKnobs:
		l.hasKnobs = true
		l.knobs, err = knownFamilies(strings.Split(strings.ToLower(value), ","))
	case labelCPUMin:
		l.cpu.Min, err = ParseCPUs(value)
	case labelCPUMax:
		l.cpu.Max, err = ParseCPUs(value)
	case labelMemoryMin:
		l.memory.Min, err = ParseBytes(value)
	case labelMemoryMax:
		l.memory.Max, err = ParseBytes(value)
	case labelImportance:
		l.importance, err = parseImportance(value)
	case labelClass:
		l.class, err = oneOf(strings.ToLower(value), ClassGuaranteed, ClassBestEffort)
	case labelLoans:
		l.loans, err = oneOf(strings.ToLower(value), policies.LoanModes()...)
	case labelJob:
		l.job, err = ParseWord(value)
	case labelTeam:
		l.team, err = ParseWord(value)
	case LabelRateLog:
		err = checkExpression(raw)
	case labelGPUSignal:
		_, err = parseSignal(value)
	default:
		err = fmt.Errorf("unknown label; known are %s", strings.Join(LabelNames(), ", "))
	}
	return err
}

// GPUSignal is the signal that a container's label asks to be sent when its GPUs are hidden or
// shown, as "SIGUSR1"; "": none. It fails for one that may not be sent.
func GPUSignal(all map[string]string) (string, error) {
	raw := all[labelGPUSignal]
	if raw == "" {
		return "", nil
	}
	return parseSignal(raw)
}

func parseSignal(value string) (string, error) {
	name, err := oneOf(strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(value)), "SIG"), "USR1", "USR2", "HUP", "WINCH")
	if err != nil {
		return "", err
	}
	return "SIG" + name, nil
}

// enable reads trimtab.enable, the short form. The mode label is stronger, but
// off is absolute, whichever of the two says it.
func (l *labels) enable(all map[string]string) {
	raw, ok := all[labelEnable]
	if !ok {
		return
	}
	switch strings.ToLower(strings.TrimSpace(raw)) {
	case "true":
		if l.mode == "" {
			l.mode = policies.ModeTune
		}
	case "false":
		if l.mode != "" && l.mode != policies.ModeOff {
			l.problems = append(l.problems, fmt.Sprintf("label %s=false overrides %s=%s: off is absolute", labelEnable, labelMode, l.mode))
		}
		l.mode = policies.ModeOff
	default:
		l.problems = append(l.problems, fmt.Sprintf("label %s=%s: allowed are true, false", labelEnable, shown(raw)))
		if l.mode == "" && l.badMode == "" {
			l.badMode = labelEnable
		}
	}
}

// dropInverted ignores a pair whose minimum is above its maximum: which of the
// two was meant cannot be known.
func (l *labels) dropInverted(minName, maxName string, r *policies.Range) {
	if r.Max > 0 && r.Min > r.Max {
		l.problems = append(l.problems, fmt.Sprintf("label %s is above %s: both ignored", minName, maxName))
		*r = policies.Range{}
	}
}

// oneOf reads one of several words.
func oneOf[T ~string](s string, allowed ...T) (T, error) {
	if v := T(s); slices.Contains(allowed, v) {
		return v, nil
	}
	return "", fmt.Errorf("allowed are %s", strings.ReplaceAll(strings.Trim(fmt.Sprint(allowed), "[]"), " ", ", "))
}

// ParseWord reads the name of a team or a job: it becomes a label of metrics.
func ParseWord(s string) (string, error) {
	ok := s != "" && len(s) <= maxWordBytes
	for _, r := range s {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._/-", r))
	}
	if !ok {
		return "", fmt.Errorf("allowed are 1 to %d letters, digits and any of . _ / -", maxWordBytes)
	}
	return s, nil
}

// CheckFamilies returns an error that names families which do not exist.
func CheckFamilies(families []string) error {
	_, err := knownFamilies(families)
	return err
}

// formerFamily named I/O weights until the version before. No policy moved them. It is taken for one
// release, and names nothing.
const formerFamily = "io"

// knownFamilies keeps what is known of a list.
func knownFamilies(words []string) (known []string, err error) {
	var bad []string
	for _, word := range words {
		word = strings.TrimSpace(word)
		switch {
		case slices.Contains(runtime.Families(), word):
			known = append(known, word)
		case word != formerFamily:
			bad = append(bad, shown(word))
		}
	}
	if len(bad) > 0 {
		err = fmt.Errorf("no such knob: %s; allowed are %s", strings.Join(bad, ", "), strings.Join(runtime.Families(), ", "))
	}
	return known, err
}

// parseImportance reads a whole number; one out of range is clamped later, where
// the rule's range is known.
func parseImportance(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("allowed are whole numbers from %d to %d", MinImportance, MaxImportance)
	}
	return int(n), nil
}

// capProblems bounds what a hostile image can make us show.
func capProblems(problems []string) []string {
	if len(problems) <= maxProblems {
		return problems
	}
	return append(slices.Clone(problems[:maxProblems]), fmt.Sprintf("and %d more", len(problems)-maxProblems))
}

// shown is a hostile text, quoted where it is not plain, and short.
func shown(s string) string {
	clipped := s[:min(len(s), maxShownBytes)]
	q := strconv.QuoteToASCII(clipped)
	if len(q) == len(clipped)+2 && clipped != "" && !strings.Contains(clipped, " ") {
		q = clipped
	}
	if len(s) > maxShownBytes {
		q += "…"
	}
	return q
}

// checkExpression says what is wrong with an expression for the log; who follows
// the log compiles it.
func checkExpression(raw string) error {
	if len(raw) > maxRegexBytes {
		return fmt.Errorf("%d bytes are too many; allowed are regular expressions (RE2) of %d bytes at most", len(raw), maxRegexBytes)
	}
	_, err := regexp.Compile(raw)
	if bad := new(syntax.Error); errors.As(err, &bad) { // its own text holds a part of the expression as it is
		return fmt.Errorf("allowed are regular expressions as Go and RE2 know them: %s: %s", bad.Code, shown(bad.Expr))
	}
	return err
}

// ParseCPUs reads a number of CPUs above 0: "1.5".
func ParseCPUs(s string) (float64, error) {
	v, ok := parsePlain(s)
	if !ok || v <= 0 || v > maxCPUs {
		return 0, fmt.Errorf("allowed are numbers of CPUs above 0, such as 0.5 or 4")
	}
	return v, nil
}

// Bytes is an amount of memory in the config: 512MiB, 8GiB, or a number of bytes; 0 is allowed.
type Bytes int64

// UnmarshalText reads it.
func (b *Bytes) UnmarshalText(text []byte) error {
	if string(text) == "0" {
		*b = 0
		return nil
	}
	v, err := ParseBytes(string(text))
	if err != nil {
		return fmt.Errorf("%q is not an amount of memory; %w", text, err)
	}
	*b = Bytes(v)
	return nil
}

// ParseBytes reads an amount of memory above 0. Suffixes are binary whatever
// their spelling, as in Docker: k, KB and KiB are all 1024.
func ParseBytes(s string) (float64, error) {
	number, factor := s, 1.0
	if i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }); i >= 0 {
		unit := strings.ToLower(strings.TrimSpace(s[i:]))
		number = s[:i]
		switch strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i") {
		case "":
			if unit == "i" || unit == "ib" {
				number = ""
			}
		case "k":
			factor = 1 << 10
		case "m":
			factor = 1 << 20
		case "g":
			factor = 1 << 30
		case "t":
			factor = 1 << 40
		default:
			number = ""
		}
	}
	v, ok := parsePlain(number)
	if v = math.Floor(v * factor); !ok || v < 1 || v > 1<<56 {
		return 0, fmt.Errorf("allowed are amounts of memory above 0, such as 512MiB or 8GiB")
	}
	return v, nil
}

// parsePlain reads digits with at most one dot: no sign, exponent, hex or NaN.
func parsePlain(s string) (float64, bool) {
	if s == "" || len(s) > 20 || strings.Trim(s, "0123456789.") != "" || strings.Count(s, ".") > 1 {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}

// FormatBytes writes an amount of memory so that ParseBytes reads it back, to
// two decimals.
func FormatBytes(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return decimal(v) + units[i]
}

// decimal writes a number to two decimals.
func decimal(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', 2, 64), "0"), ".")
}
