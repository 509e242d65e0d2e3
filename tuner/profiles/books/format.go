// Package books shares known jobs (tuner/profiles) between hosts. A book is what one host has
// learned; a file, compressed with gzip, holds one or more, one after another. Each is lines of JSON:
//
//	{"format":"trimtab-book","version":1,"host":"gpu-7","made":UNIX-NANOSECONDS,"serial":RISES-FROM-BOOK-TO-BOOK}
//	profiles.Known, one a line
//	{"end":true,"jobs":N,"sha256":"hex of all lines before, with their ends"}
//	{"signature":"-----BEGIN SSH SIGNATURE-----…"}
//
// The signature is of the line before it, its end included, as `ssh-keygen -Y sign -n trimtab-book`
// makes it. It is absent from the last line, {}, of a book that nobody signed. Fields that a reader
// does not know it ignores; a book of a newer version it refuses, and says so. Nothing in a book
// is readable of a job unless names were asked for.
//
// The trap: books come from other hosts. Nothing of one is decoded before its signature holds: a file
// is read twice, first for its hashes alone. What is read of any is bounded.
package books

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/trimtab/trimtab/tuner/profiles"
)

const (
	format    = "trimtab-book"
	version   = 1
	namespace = "trimtab-book" // of signatures: one made for another purpose does not hold
	endPrefix = `{"end":`
)

// Bounds of what is read.
const (
	// MaxBytes of a file: 10,000 jobs take 2.4 MB with a run each, 7.7 MB with eight.
	MaxBytes = 16 << 20
	maxPlain = 128 << 20 // uncompressed, of all books in a file
	maxLine  = 32 << 10  // a job with all runs that are kept of one takes a half of it
	maxBooks = 256       // in one file
	// maxCommas are more than a job has: each may become something of hundreds of bytes. After
	// maxBroken entries that are none the others of a book are not looked at.
	maxCommas = 2048
	maxBroken = 100
)

// Reason says in a word why a book is not used; a label of metrics.
type Reason string

// Reasons.
const (
	Newer      Reason = "newer-version"
	Unsigned   Reason = "unsigned"
	UnknownKey Reason = "unknown-key"
	Forged     Reason = "bad-signature"
	TooBig     Reason = "too-big"
	Truncated  Reason = "truncated"
	Damaged    Reason = "damaged"
	Changed    Reason = "changed-while-read"
	Irregular  Reason = "not-a-regular-file"
	Outside    Reason = "outside-the-directory"
	Unreadable Reason = "unreadable"
	Older      Reason = "older-than-another"
	Replayed   Reason = "older-than-used-before"
	SetAside   Reason = "set-aside"
	Own        Reason = "of-this-host"
)

// Refusal is why a book, or what follows it in a file, is not used.
type Refusal struct {
	Reason Reason
	Text   string // with the fix, for people
}

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Host    string `json:"host"`
	Made    int64  `json:"made"`
	Serial  int64  `json:"serial,omitempty"` // 0: of an earlier trimtab, or nobody signed it
}

type ending struct {
	End    bool   `json:"end"`
	Jobs   int    `json:"jobs"`
	SHA256 string `json:"sha256"`
}

type signed struct {
	Signature string `json:"signature,omitempty"`
}

// Write makes a book of known jobs, signed by a host's key, with the next serial of it; a nil key leaves it unsigned. Names of
// containers and images are left out unless they are asked for.
func Write(w io.Writer, host string, madeUnixNs, serial int64, known []profiles.Known, names bool, key ssh.Signer) error {
	z := gzip.NewWriter(w)
	sum := sha256.New()
	out := io.MultiWriter(z, sum)
	if err := json.NewEncoder(out).Encode(header{format, version, host, madeUnixNs, serial}); err != nil {
		return err
	}
	for _, k := range known {
		line, err := lineOf(private(k, names))
		if err == nil {
			_, err = out.Write(line)
		}
		if err != nil {
			return fmt.Errorf("known job %d: %w", k.ID, err)
		}
	}
	end, err := json.Marshal(ending{true, len(known), hex.EncodeToString(sum.Sum(nil))})
	if err != nil {
		return err
	}
	end = append(end, '\n')
	var last signed
	if key != nil {
		sig, err := sshsig.Sign(bytes.NewReader(end), key, sshsig.HashSHA512, namespace)
		if err != nil {
			return fmt.Errorf("sign the book: %w", err)
		}
		last.Signature = string(sshsig.Armor(sig))
	}
	if _, err := z.Write(end); err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(last); err != nil {
		return err
	}
	return z.Close()
}

// lineOf is a known job as a line that readers take: its oldest runs are left out where it is too long.
func lineOf(k profiles.Known) ([]byte, error) {
	for {
		line, err := json.Marshal(k.Rounded())
		if err != nil || len(line) < maxLine || k.Ends.IsZero() {
			return append(line, '\n'), err
		}
		k.Ends = profiles.EndsOf(k.Ends.All()[1:]...)
	}
}

// jobs goes through the jobs of a book behind its first line, up to the line that says what they were,
// which it returns. They are decoded if that is wanted.
func (in *reader) jobs(line []byte, found *Found) ([]byte, *Refusal) {
	sum := sha256.New()
	for {
		sum.Write(line) // a hash takes all
		var refused *Refusal
		if line, refused = in.next(); refused != nil {
			return nil, refused
		}
		if line == nil {
			return nil, refuse(Truncated, "ends in the middle: copy it again")
		}
		if bytes.HasPrefix(line, []byte(endPrefix)) {
			break
		}
		if found.Jobs++; found.Jobs > profiles.MaxKnown {
			return nil, refuse(TooBig, "holds more than %d jobs", profiles.MaxKnown)
		}
		if !in.decode {
			continue
		}
		var k profiles.Known
		if found.Broken >= maxBroken || bytes.Count(line, []byte(",")) > maxCommas || json.Unmarshal(line, &k) != nil || k.TooMany() {
			found.Broken++
			continue
		}
		found.Known = append(found.Known, k)
	}
	var end ending
	if json.Unmarshal(line, &end) != nil || end.Jobs != found.Jobs || end.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		return nil, refuse(Damaged, "does not hold what it was made with: copy it again")
	}
	return line, nil
}

// private leaves out what is readable of a job, and what only its host can use of its runs.
func private(k profiles.Known, names bool) profiles.Known {
	if !names {
		k.Name, k.Print.Image = "", ""
	}
	n := profiles.RunID(0)
	k.Ends = k.Ends.Each(func(e *profiles.End) {
		*e = e.Private()
		// A container's engine and id can be guessed where a person chose the id, so no hash of them leaves:
		// readers only tell the runs of an entry apart.
		n++
		e.Run = n
	})
	return k
}

// Found is a book in a file. Its Host is the name that the config gives the key.
type Found struct {
	profiles.Book
	Serial  int64    // of its key's books; 0: not told
	Jobs    int      // that it holds, decoded or not
	Key     string   // fingerprint of the key that signed it; "": nobody did
	Broken  int      // entries that are no known job
	Refused *Refusal // nil: it may be used
	closing string   // the line with its hash
	raw     []byte   // uncompressed, where it is kept
}

func read(r io.ReadSeeker, trust Trust, raw bool) ([]Found, *Refusal) {
	all, refused := scan(r, trust)
	if changed := decode(r, trust, all, raw, func(i int, f Found) { all[i] = f }); changed != nil {
		return nil, changed
	}
	return all, refused
}

// scan tells of each book of a file whose it is, and whether it may be used. Nothing of its jobs is held.
func scan(r io.Reader, trust Trust) (all []Found, refused *Refusal) {
	refused = walk(r, trust, func(int) (decode, raw bool) { return false, false }, func(_ int, f Found) { all = append(all, f) })
	return all, refused
}

// decode reads those books again that a scan did not refuse, and hands them over one at a time. One that
// is not what was scanned is not.
func decode(r io.ReadSeeker, trust Trust, scanned []Found, raw bool, use func(i int, f Found)) *Refusal {
	want := func(i int) bool { return i < len(scanned) && scanned[i].Refused == nil }
	left := 0
	for i := range scanned {
		if want(i) {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return refuse(Unreadable, "cannot be read: %v", err)
	}
	walk(r, trust, func(i int) (bool, bool) { return want(i), raw && want(i) }, func(i int, f Found) { // what it refuses is missing then
		if want(i) && f.Refused == nil && f.closing == scanned[i].closing {
			left--
			use(i, f)
		}
	})
	if left > 0 {
		return changed()
	}
	return nil
}

func changed() *Refusal {
	return refuse(Changed, "has changed while it was read; it is read again at the next look")
}

// walk goes through the books of a file. The jobs of a book are decoded, and its lines kept, if that is
// wanted.
func walk(r io.Reader, trust Trust, want func(i int) (decode, raw bool), each func(i int, f Found)) *Refusal {
	z, err := gzip.NewReader(io.LimitReader(r, MaxBytes))
	if err != nil {
		return refuse(Damaged, "is no book: %v", err)
	}
	limited := &io.LimitedReader{R: z, N: maxPlain}
	in := &reader{lines: bufio.NewReaderSize(limited, maxLine), limited: limited}
	for i := 0; ; i++ {
		in.decode, in.keep = want(i)
		found, refused := in.book(trust)
		switch {
		case found == nil:
			return refused
		case i == maxBooks:
			return refuse(TooBig, "holds more than %d books", maxBooks)
		}
		each(i, *found)
	}
}

// reader goes through the lines of a file.
type reader struct {
	lines   *bufio.Reader
	limited *io.LimitedReader
	decode  bool
	keep    bool
	raw     []byte
}

// next is the next line with its end, good until the one after; nil at the end of the file.
func (in *reader) next() ([]byte, *Refusal) {
	line, err := in.lines.ReadSlice('\n')
	switch {
	case err == nil:
		if in.keep {
			in.raw = append(in.raw, line...)
		}
		return line, nil
	case in.limited.N <= 0:
		return nil, refuse(TooBig, "unpacks to more than %d MiB", maxPlain>>20)
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, refuse(TooBig, "has a line of more than %d KiB", maxLine>>10)
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse(Truncated, "ends in the middle: copy it again")
	}
	return nil, refuse(Damaged, "cannot be unpacked: %v", err)
}

// book reads one; nil at the end of the file.
func (in *reader) book(trust Trust) (*Found, *Refusal) {
	in.raw = nil
	line, refused := in.next()
	if line == nil {
		return nil, refused
	}
	var head header
	if json.Unmarshal(line, &head) != nil || head.Format != format {
		return nil, refuse(Damaged, "is no book of trimtab's")
	}
	if head.Version > version {
		return nil, refuse(Newer, "is of version %d, this trimtab reads up to %d: upgrade it", head.Version, version)
	}
	found := &Found{Book: profiles.Book{MadeUnixNs: head.Made}, Serial: head.Serial}
	if line, refused = in.jobs(line, found); refused != nil {
		return nil, refused
	}
	found.closing = string(line)
	if line, refused = in.next(); refused != nil {
		return nil, refused
	}
	var last signed
	if line == nil || json.Unmarshal(line, &last) != nil {
		return nil, refuse(Truncated, "ends before its signature: copy it again")
	}
	found.Host, found.Key, found.Refused = trust.check([]byte(found.closing), last.Signature, head.Host)
	found.raw = in.raw
	if found.Refused != nil {
		found.Known = nil
	}
	return found, nil
}

// appendPacked compresses lines as a member of a gzip file: members follow one another.
func appendPacked(text, lines []byte) ([]byte, error) {
	out := bytes.NewBuffer(text)
	z := gzip.NewWriter(out)
	if _, err := z.Write(lines); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
