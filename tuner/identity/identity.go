// Package identity tells whether a container that starts is the same job as one that ran before:
// by its image, its words, its data, and what selects a program in its environment. Numbers that a
// sweep changes are told apart from the words that a program is chosen by. Temporary names, and where
// ranks meet, are no part of either.
//
// Of all that nothing readable is kept. Each word goes through HMAC-SHA-256 with a key of the host
// or the fleet. Equal words give equal hashes under one key, so likeness can be told. Identities of
// different keys do not compare.
//
// The trap: one identity is no proof. A shell may choose another program by a file, and whoever
// makes a container may give it any words. So what is taken over by identity is a loan or a trial,
// and the job's behaviour has the last word.
package identity

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/runtime"
)

// Start is what is known of a container when it starts. It is readable, and never stored.
type Start struct {
	ImageDigest string   // content address, "sha256:…"; "" where the engine does not tell
	Image       string   // as asked for, such as "registry.example/team/train:v3"
	Entrypoint  []string // as the engine resolved it
	Command     []string
	Env         []string // "NAME=VALUE", all of it: Of keeps what selects a program
	Mounts      []runtime.Mount
}

// Identity is what is stored of a Start: keyed hashes alone. The zero Identity is of no container.
type Identity struct {
	// Key names the key of the hashes; identities of different keys do not compare.
	Key string `json:"key"`
	// Job is of all that the same job has in common from run to run: the image's name without its
	// tag, the words with numbers left out, and what selects a program in the environment.
	Job string `json:"job"`
	// Words are the set that Job is of, each by itself, sorted. Numbers are what was left out:
	// each by the word that it stands beside and its value, sorted.
	Words   []Hash `json:"words,omitempty"`
	Numbers []Hash `json:"numbers,omitempty"`
	// Image is of the image's content, Data of what is mounted; "": not known. They may change
	// between runs of one job.
	Image string `json:"image,omitempty"`
	Data  string `json:"data,omitempty"`
}

// Bounds of what is hashed of one container: whoever makes it chooses how much there is.
const (
	// maxWords words, and as many numbers, are kept of one container.
	maxWords = 64
	// maxLooked bytes of the words are looked at, as many of the environment and of the mounts, and
	// maxWordBytes of each. Who asks waits for it.
	maxLooked    = 64 << 10
	maxWordBytes = 4096
	// KeyBytes is the length of a key.
	KeyBytes = 32
)

// Lengths of hashes, bytes: 96 bits for what must not collide, 48 for one word among others.
const (
	JobBytes  = 12
	WordBytes = 6
)

// Hash is that of one word among others, as it is written: 48 bits in base64. Many are held, so each is
// as short as it can be.
type Hash [8]byte

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return h[:], nil }

// UnmarshalText implements encoding.TextUnmarshaler. What is no hash is an error: it may be readable.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) == 0 || !Hashes(WordBytes, string(text)) {
		return errors.New("something else than a hash")
	}
	*h = Hash(text)
	return nil
}

// Hashes reports whether texts are hashes of so many bytes, or empty.
func Hashes(size int, texts ...string) bool {
	return !slices.ContainsFunc(texts, func(s string) bool {
		b, err := base64.RawURLEncoding.DecodeString(s)
		return s != "" && (err != nil || len(b) != size || len(s) != base64.RawURLEncoding.EncodedLen(size))
	})
}

// IsSet reports whether hashes are in order, and none is absent: JSON's null is not asked for its text.
func IsSet(all []Hash) bool {
	return slices.IsSortedFunc(all, Hash.Compare) && (len(all) == 0 || all[0] != Hash{})
}

// Compare orders hashes by their text, as sets are.
func (h Hash) Compare(o Hash) int { return bytes.Compare(h[:], o[:]) }

// hasher makes keyed hashes. Each kind of text has a domain of its own, so that a path that is
// also an argument does not tell of that.
type hasher struct{ key []byte }

func (h hasher) sum(size int, domain string, parts ...string) string {
	mac := hmac.New(sha256.New, h.key)
	mac.Write([]byte(domain))
	for _, p := range parts { // NUL is in no argument of a process
		mac.Write([]byte{0})
		mac.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:size])
}

// Of is the identity of a start under a key. The zero Identity: nothing is known of the start, or
// the key is too short to keep anything secret.
func Of(s Start, key []byte) Identity {
	if len(key) < KeyBytes || s.Image == "" && s.ImageDigest == "" && len(s.Entrypoint)+len(s.Command) == 0 {
		return Identity{}
	}
	h := hasher{key}
	id := Identity{Key: KeyName(key)}
	program, numbers := normalise(s)
	id.Job = h.sum(JobBytes, "job", program...)
	id.Words, id.Numbers = h.set("word", program), h.set("number", numbers)
	if s.ImageDigest != "" {
		id.Image = h.sum(WordBytes, "image", s.ImageDigest)
	}
	if data := dataOf(s.Mounts); len(data) > 0 {
		id.Data = h.sum(WordBytes, "data", data...)
	}
	return id
}

// KeyName tells keys apart without telling anything of them.
func KeyName(key []byte) string { return hasher{key}.sum(WordBytes, "trimtab identity key") }

// Word is the keyed hash of one text that an identity does not hold, such as a host's name.
func Word(key []byte, domain, text string) string { return hasher{key}.sum(WordBytes, domain, text) }

// set hashes words one by one; each is kept once.
func (h hasher) set(domain string, words []string) []Hash {
	var out []Hash
	for _, w := range words[:min(len(words), maxWords)] {
		out = append(out, Hash([]byte(h.sum(WordBytes, domain, w))))
	}
	slices.SortFunc(out, Hash.Compare)
	return slices.Compact(out)
}

// normalise returns what of a start the same job has in common from run to run, and the numbers
// that it differs by. Of the latter each names what it stands beside.
func normalise(s Start) (program, numbers []string) {
	program = append(program, "image "+repository(s.Image, s.ImageDigest))
	beside, before, hosts := "", "", false
	for _, w := range wordsOf(s) {
		text, found := Normalise(withoutPerRun(before, w, hosts))
		before, hosts = w, launches(hosts, w)
		program = append(program, text)
		for _, n := range found[:min(len(found), maxWords-len(numbers))] {
			numbers = append(numbers, beside+" "+text+" "+n)
		}
		if beside = ""; strings.HasPrefix(w, "-") {
			beside = text
		}
	}
	for _, e := range selecting(s.Env) {
		text, found := Normalise(e)
		program = append(program, "env "+text)
		for _, n := range found[:min(len(found), maxWords-len(numbers))] {
			numbers = append(numbers, "env "+text+" "+n)
		}
	}
	return program, numbers
}

// wordsOf are the words of entrypoint and command; a shell's line is as many as it shows.
func wordsOf(s Start) (out []string) {
	left := maxLooked
	for _, words := range [][]string{s.Entrypoint, s.Command} {
		for _, w := range words {
			out = append(out, strings.Fields(clip(w, &left))...)
		}
	}
	return out
}

// repository is an image's name without tag and digest: a new build of it is the same job's. Of an
// image without a name its content is the name.
func repository(image, digest string) string {
	name, _, _ := strings.Cut(image[:min(len(image), maxWordBytes)], "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	if name == "" || name == "sha256" {
		return digest
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/") // as Docker, and containerd, write it
}

// dataOf are the mounts that may hold data: what a program reads, named by where it comes from.
func dataOf(mounts []runtime.Mount) (out []string) {
	left := maxLooked
	for _, m := range mounts {
		switch target := path.Clean("/" + m.Target); {
		case m.Source == "", left == 0, slices.ContainsFunc([]string{"/etc/", "/proc/", "/sys/", "/dev/", "/run/", "/var/run/", "/usr/"},
			func(dir string) bool { return strings.HasPrefix(target+"/", dir) }):
			continue // of the engine, the drivers and their toolkits
		}
		text, _ := Normalise(clip(m.Source, &left)) // a folder of each run's own is not its data
		out = append(out, text)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// selecting are the variables that name what a program is to run, sorted. All others differ by host,
// by run or by person, or are secrets.
func selecting(env []string) (out []string) {
	left := maxLooked
	for _, e := range env {
		name, value, ok := strings.Cut(e[:min(len(e), maxWordBytes)], "=")
		switch strings.ToUpper(name[strings.LastIndexByte(name, '_')+1:]) {
		case "MODEL", "ARCH", "CONFIG", "SCRIPT", "TASK", "MODE", "RECIPE", "DATASET", "EXPERIMENT", "BENCHMARK", "PROGRAM", "ALGORITHM", "WORKLOAD", "ENTRYPOINT":
			if ok && value != "" && left > 0 {
				out = append(out, clip(strings.ToUpper(name)+"="+value, &left))
			}
		}
	}
	slices.Sort(out)
	return out
}

// clip is what is looked at of a text, and takes it from what is left.
func clip(s string, left *int) string {
	s = s[:min(len(s), maxWordBytes, *left)]
	*left -= len(s)
	return s
}

// Known reports whether an identity is of some container.
func (i Identity) Known() bool { return i.Job != "" }

// Same reports whether two are of one job.
func (i Identity) Same(j Identity) bool { return i.Known() && i.Key == j.Key && i.Job == j.Job }

// Common counts what two sorted sets share.
func Common(a, b []Hash) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch a[0].Compare(b[0]) {
		case -1:
			a = a[1:]
		case 1:
			b = b[1:]
		default:
			n, a, b = n+1, a[1:], b[1:]
		}
	}
	return n
}

// Valid says what of an identity that came from a file cannot be true; "" if nothing.
func (i Identity) Valid() string {
	switch {
	case i.Job == "" || i.Key == "" || !Hashes(JobBytes, i.Job) || !Hashes(WordBytes, i.Key, i.Image, i.Data):
		return "an identity that holds something else than hashes"
	case len(i.Words) > maxWords || len(i.Numbers) > maxWords:
		return "an identity of more than there can be"
	case !IsSet(i.Words) || !IsSet(i.Numbers):
		return "an identity that is not in order"
	}
	return ""
}
