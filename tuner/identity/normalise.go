package identity

import (
	"path"
	"strings"
)

// hole stands where a number was.
const hole = "\x01"

// longID is from how many characters on letters and digits in one piece are a name that was made,
// not chosen: an id of a run, a hash, a token.
const longID = 20

// shortID is the same of hexadecimal digits, of which at least one is a digit and one a letter.
const shortID = 7

// Normalise takes out of a word what differs from run to run: numbers with their units, dates and
// times, and ids. found are those, as they stood. "--lr=0.001" gives "--lr=" with a hole,
// "run-2026-11-27" gives "run-" with one. Digits behind a letter belong to a name, and stay, since they
// choose what is run: "resnet50", "t5", "fp16". Behind what counts runs ("seed7", "epoch12") they do not.
//
// Names that were drawn at random for one run go too, and are in no found: "/tmp/tmpab12cd3f/out"
// gives "/tmp/tmp" with a hole, and "/out". What below a directory "tmp" may have been chosen as well is in found.
//
// A program's own name is what is run, whatever its digits: "step2.py" is not "step3.py".
func Normalise(word string) (text string, found []string) {
	if at := strings.LastIndexByte(word, '/') + 1; program(word) && !drawnMixed(word[at:]) {
		text, found = Normalise(word[:at])
		return text + word[at:], found
	}
	var out strings.Builder
	tmp, clock := strings.Index("/"+word, "/tmp/"), false
	for i := 0; i < len(word); {
		if at, n, chosen := transient(word, i, tmp, clock); n > 0 {
			out.WriteString(word[i:at] + hole)
			if chosen {
				found = append(found, word[at:at+n])
			}
			i, clock = at+n, false
			continue
		}
		n := piece(word[i:])
		if n == 0 { // no letter, no digit
			out.WriteByte(word[i])
			i++
			continue
		}
		p, from := word[i:i+n], 0
		switch {
		case uuid(word[i:]):
			n = uuidLen
		case made(p):
		case number(word[i:]) > 0:
			n = number(word[i:])
		case counts(p) > 0 && number(word[i+counts(p):]) > 0:
			from = counts(p)
			n = from + number(word[i+from:])
		default:
			from = n
		}
		out.WriteString(word[i : i+from])
		if from < n {
			out.WriteString(hole)
			found = append(found, word[i+from:i+n])
		}
		clock = from == 0 && n == len("101112") && digits(word[i:]) == n
		i += n
	}
	return collapse(out.String()), found
}

// program reports whether a word ends as the name of a program does.
func program(word string) bool {
	switch path.Ext(word) {
	case ".py", ".sh", ".pl", ".R", ".r", ".jl", ".js", ".mjs", ".ts", ".lua", ".rb", ".jar", ".m", ".ipynb":
		return true
	}
	return false
}

// collapse makes one hole of several with nothing but what joins numbers between them: a date, a time,
// a version, a list of sizes. A sign belongs to its number where a value begins there.
func collapse(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] != hole[0] {
			out = append(out, s[i])
			continue
		}
		n := len(out)
		if n >= 2 && out[n-1] == '-' && strings.IndexByte("=:,", out[n-2]) >= 0 {
			n--
		}
		switch { // what stands before a hole that is there has been looked at
		case n >= 1 && out[n-1] == hole[0]:
			n--
		case n >= 2 && out[n-2] == hole[0] && strings.IndexByte("-:_.,/+", out[n-1]) >= 0:
			n -= 2
		}
		out = append(out[:n], hole[0])
	}
	if string(out) == "-"+hole {
		return hole
	}
	return string(out)
}

// uuidLen is how long a UUID is, with its dashes.
const uuidLen = 36

func uuid(s string) bool {
	if len(s) < uuidLen {
		return false
	}
	for i := range uuidLen {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && !hex(s[i]) {
			return false
		}
	}
	return len(s) == uuidLen || !digit(s[uuidLen]) && !letter(s[uuidLen])
}

// span is how many bytes of a kind a text begins with.
func span(s string, kind func(byte) bool) int {
	for i := range len(s) {
		if !kind(s[i]) {
			return i
		}
	}
	return len(s)
}

// piece is how many letters and digits a text begins with.
func piece(s string) int { return span(s, func(c byte) bool { return digit(c) || letter(c) }) }

// number is how much of a text is one number with its unit: digits, a fraction, an exponent, and at
// most three letters that no letter or digit follows ("64", "1e-4", "0.1", "32G", "500ms", "20261127T101112Z").
// 0: it begins with none.
func number(s string) int {
	i := digits(s)
	if i == 0 {
		return 0
	}
	n := withUnit(s, i) // the longest that no name goes on with counts: of "0.00abcdefg" it is "0"
	if i < len(s) && s[i] == '.' {
		if k := digits(s[i+1:]); k > 0 {
			i += 1 + k
			n = max(n, withUnit(s, i))
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		at := i + 1
		if at < len(s) && (s[at] == '-' || s[at] == '+') {
			at++
		}
		if k := digits(s[at:]); k > 0 {
			i = at + k
			n = max(n, withUnit(s, i))
		}
	}
	if i < len(s) && s[i] == 'T' { // of a time behind a date
		if k := digits(s[i+1:]); k > 0 {
			n = max(n, withUnit(s, i+1+k))
		}
	}
	return n
}

// withUnit is the length of a number of i characters with its unit; 0: a name goes on, as in "3dunet" and "2d4x".
func withUnit(s string, i int) int {
	unit := piece(s[i:])
	if unit > 3 || strings.ContainsAny(s[i:i+unit], "0123456789") {
		return 0
	}
	return i + unit
}

func digits(s string) int { return span(s, digit) }

// made reports whether a piece is an id that no person chose.
func made(p string) bool {
	numbers, letters, other := 0, 0, 0
	for i := 0; i < len(p); i++ {
		switch {
		case digit(p[i]):
			numbers++
		case hex(p[i]):
			letters++
		default:
			other++
		}
	}
	return numbers > 0 && letters > 0 && other == 0 && len(p) >= shortID || len(p) >= longID && numbers >= 3 && letters+other > 0
}

// counts is how long the name is that a piece begins with, if what follows it counts runs or steps,
// or is a date; else 0.
func counts(p string) int {
	k := span(p, func(c byte) bool { return !digit(c) })
	switch strings.ToLower(p[:k]) {
	case "v", "run", "seed", "step", "iter", "epoch", "trial", "fold", "job", "task", "ckpt", "checkpoint", "exp", "lr", "wd", "bs",
		"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec":
		return k
	}
	return 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func hex(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// letter: what is not ASCII is part of a name too.
func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }
