package books

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/profiles"
)

const day = 24 * 3600 * int64(1e9)

// known are n jobs as a host measures them.
func known(n int) []profiles.Known {
	var out []profiles.Known
	for i := range n {
		c := policies.Cost{TrainerCPU: 0.02 + float64(i)/1000, LoaderCPU: 0.05, Device: 0.05, Batch: 0.05, Loaders: 2, Ticks: 50}
		p := profiles.Print{Unit: "torch.backward", Image: "registry.example/secret:1", Steps: 50}.With(profiles.TrainerCPU, c.TrainerCPU).With(profiles.LoaderCPU, c.LoaderCPU).
			With(profiles.DeviceWait, c.Device).With(profiles.Loaders, 2).With(profiles.Ranks, 1)
		job := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{byte(i)}, 12))
		runs := profiles.EndsOf(profiles.End{Run: 0xdeadbeefdeadbeef, Setting: profiles.Setting{Job: job, Kernel: "private", Driver: "private"}, CPUs: 2})
		out = append(out, profiles.Known{Ends: runs, ID: uint64(i + 1), Name: "private", Print: p, Jobs: 1, FirstUnixNs: day, LastUnixNs: day, Learned: profiles.Learned{Cost: c, Correction: 1}})
	}
	return out
}

// host is a host with a key of its own.
type host struct {
	name string
	key  ssh.Signer
}

func newHost(t *testing.T, name string) host {
	t.Helper()
	key, err := HostKey(filepath.Join(t.TempDir(), "state", "book_key"))
	if err != nil {
		t.Fatal(err)
	}
	return host{name, key}
}

func (h host) public() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(h.key.PublicKey()))) + " " + h.name
}

func (h host) book(t *testing.T, made int64, jobs []profiles.Known) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, "says "+h.name, made, 0, jobs, false, h.key); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func trusting(t *testing.T, hosts ...host) Trust {
	t.Helper()
	var keys []string
	for _, h := range hosts {
		keys = append(keys, h.public())
	}
	trust, err := NewTrust(keys, false)
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

func unpacked(t *testing.T, packed []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	out, err := appendPacked(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	h := newHost(t, "gpu-7")
	text := h.book(t, 5*day, known(3))
	found, refused := Read(bytes.NewReader(text), trusting(t, h))
	if refused != nil || len(found) != 1 || found[0].Refused != nil {
		t.Fatalf("%+v, %v", found, refused)
	}
	f := found[0]
	if f.Host != "gpu-7" || f.MadeUnixNs != 5*day || len(f.Known) != 3 || f.Known[2].Learned.Cost.TrainerCPU != 0.022 {
		t.Errorf("%+v", f)
	}
	for _, secret := range []string{"private", "secret", "registry", "deadbeef"} {
		if bytes.Contains(unpacked(t, text), []byte(secret)) {
			t.Errorf("%q leaves the host", secret)
		}
	}
	var named bytes.Buffer
	if err := Write(&named, h.name, day, 0, known(1), true, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(unpacked(t, named.Bytes()), []byte("private")) {
		t.Error("names were asked for, and are left out")
	}
}

// TestRunsAreNotTold: nothing in a book hangs on which containers ran, and its readers tell the runs apart.
func TestRunsAreNotTold(t *testing.T) {
	lines := func(runs ...string) (string, []profiles.Known) {
		jobs, out := known(1), bytes.Buffer{}
		first, ends := jobs[0].Ends.All()[0], []profiles.End(nil)
		for _, run := range runs {
			first.Run = profiles.RunOf(run)
			ends = append(ends, first)
		}
		jobs[0].Ends = profiles.EndsOf(ends...)
		if err := Write(&out, "gpu-7", day, 0, jobs, true, nil); err != nil {
			t.Fatal(err)
		}
		found, refused := Read(bytes.NewReader(out.Bytes()), Trust{unsigned: true})
		if refused != nil || len(found) != 1 {
			t.Fatalf("%+v, %v", found, refused)
		}
		return string(unpacked(t, out.Bytes())), profiles.Prepare(nil, found[0].Book, 2*day).Known
	}
	one, jobs := lines("containerd/train", "docker/4f0c")
	if other, _ := lines("containerd/secret", "\x1b[31m\u202e"+strings.Repeat("x", 4096)); one != other {
		t.Errorf("containers tell books apart:\n%s%s", one, other)
	}
	if len(jobs) != 1 || jobs[0].Ends.Len() != 2 || jobs[0].Ends.All()[0].Run == jobs[0].Ends.All()[1].Run {
		t.Errorf("%+v", jobs)
	}
}

// TestSSHKeygenReadsTheSignature: the format is OpenSSH's own.
func TestSSHKeygenReadsTheSignature(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("needs ssh-keygen: apt-get install openssh-client")
	}
	h := newHost(t, "gpu-7")
	lines := strings.SplitAfter(string(unpacked(t, h.book(t, day, known(2)))), "\n")
	closing, last := lines[len(lines)-3], lines[len(lines)-2]
	sig := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(last, `{"signature":"`), "\"}\n"), `\n`, "\n")
	dir := t.TempDir()
	for name, text := range map[string]string{"sig": sig, "allowed": "gpu-7 " + h.public() + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("ssh-keygen", "-Y", "verify", "-f", filepath.Join(dir, "allowed"), "-I", "gpu-7", "-n", namespace, "-s", filepath.Join(dir, "sig"))
	cmd.Stdin = strings.NewReader(closing)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRefused: whatever is wrong with a file costs the file, with a reason.
func TestRefused(t *testing.T) {
	h, stranger := newHost(t, "gpu-7"), newHost(t, "stranger")
	good := h.book(t, day, known(3))
	plain := string(unpacked(t, good))
	var unsigned bytes.Buffer
	if err := Write(&unsigned, "gpu-7", day, 0, known(1), false, nil); err != nil {
		t.Fatal(err)
	}
	cut := strings.LastIndex(plain, `{"signature"`)
	long := bytes.Repeat([]byte("x"), maxLine+1)
	for name, c := range map[string]struct {
		text []byte
		want Reason
	}{
		"unsigned":                {unsigned.Bytes(), Unsigned},
		"of a stranger":           {stranger.book(t, day, known(1)), UnknownKey},
		"newer":                   {packed(t, strings.Replace(plain, `"version":1`, `"version":2`, 1)), Newer},
		"an entry changed":        {packed(t, strings.Replace(plain, `"jobs":1`, `"jobs":9`, 1)), Damaged},
		"another's signature":     {packed(t, plain[:cut]+string(unpacked(t, h.book(t, 2*day, known(1))))[strings.LastIndex(string(unpacked(t, h.book(t, 2*day, known(1)))), `{"signature"`):]), Forged},
		"a signature of nothing":  {packed(t, plain[:cut]+`{"signature":"junk"}`+"\n"), Forged},
		"cut in the middle":       {good[:len(good)/2], Truncated},
		"without its end":         {packed(t, plain[:cut]), Truncated},
		"half of its last line":   {packed(t, plain[:cut+10]), Truncated},
		"empty":                   {nil, Damaged},
		"no gzip":                 {[]byte("{}"), Damaged},
		"something else":          {packed(t, `{"format":"tar","version":1}`+"\n"), Damaged},
		"a line without end":      {packed(t, `{"format":"trimtab-book","version":1}`+"\n"+string(long)), TooBig},
		"more jobs than there be": {packed(t, `{"format":"trimtab-book","version":1}`+"\n"+strings.Repeat("{}\n", profiles.MaxKnown+1)), TooBig},
		"a bomb":                  {bomb(t), TooBig},
	} {
		t.Run(name, func(t *testing.T) {
			found, refused := Read(bytes.NewReader(c.text), trusting(t, h))
			for _, f := range found {
				if len(f.Known) > 0 {
					t.Errorf("%d jobs of it are used", len(f.Known))
				}
				if refused == nil {
					refused = f.Refused
				}
			}
			if refused == nil || refused.Reason != c.want || refused.Text == "" {
				t.Errorf("%+v, want %s", refused, c.want)
			}
		})
	}
}

// bomb is some kilobytes that unpack to more than is allowed.
func bomb(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.WriteString(z, `{"format":"trimtab-book","version":1}`+"\n"); err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte(" "), maxLine-2), '\n')
	for range maxPlain/len(line) + 1 {
		if _, err := z.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestNewerFields: a version that knows more has written them; what this one knows it reads.
func TestNewerFields(t *testing.T) {
	h := newHost(t, "gpu-7")
	plain := string(unpacked(t, h.book(t, day, known(1))))
	body, _, _ := strings.Cut(plain, endPrefix)
	body = strings.Replace(body, `{"id":1,`, `{"id":1,"shoeSize":44,"identities":[{"job":"x"}],`, 1)
	jobs, refused := Read(bytes.NewReader(packed(t, resigned(t, h, body, 1))), trusting(t, h))
	if refused != nil || len(jobs) != 1 || len(jobs[0].Known) != 1 {
		t.Errorf("%+v, %v", jobs, refused)
	}
}

// TestOneBrokenEntryCostsItself, and the others of a book that was signed so are used.
func TestOneBrokenEntryCostsItself(t *testing.T) {
	h := newHost(t, "gpu-7")
	body, _, _ := strings.Cut(string(unpacked(t, h.book(t, day, known(2)))), endPrefix)
	found, refused := Read(bytes.NewReader(packed(t, resigned(t, h, body+"{\"id\":\"\x1b[31m\"}\n", 3))), trusting(t, h))
	if refused != nil || len(found) != 1 || len(found[0].Known) != 2 || found[0].Broken != 1 {
		t.Errorf("%+v, %v", found, refused)
	}
}

// TestMergedKeepsSignatures: of each host the latest, and who reads it trusts the hosts, not the merger.
func TestMergedKeepsSignatures(t *testing.T) {
	a, b := newHost(t, "a"), newHost(t, "b")
	dir := t.TempDir()
	var all []Found
	for i, text := range [][]byte{a.book(t, day, known(1)), a.book(t, 2*day, known(2)), b.book(t, day, known(3))} {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		found, refused := ReadFile(path, trusting(t, a, b))
		if refused != nil {
			t.Fatal(refused)
		}
		all = append(all, found...)
	}
	text, hosts, err := Merge(all, time.Unix(0, 10*day))
	if err != nil || len(hosts) != 2 {
		t.Fatal(hosts, err)
	}
	found, refused := Read(bytes.NewReader(text), trusting(t, b))
	if refused != nil || len(found) != 2 || found[0].Refused == nil || found[0].Refused.Reason != UnknownKey || len(found[1].Known) != 3 {
		t.Errorf("%+v, %v", found, refused)
	}
	if found, _ := Read(bytes.NewReader(text), trusting(t, a, b)); len(found[0].Known) != 2 {
		t.Errorf("of a %d jobs, want those of the later book", len(found[0].Known))
	}
	// Cut after the first book, the first is good.
	if found, refused := Read(bytes.NewReader(text[:len(text)-100]), trusting(t, a, b)); len(found) != 1 || refused == nil || refused.Reason != Truncated {
		t.Errorf("%d books, %+v", len(found), refused)
	}
}

// TestMergeMakesNothingUnreadable: what no reader takes is not made.
func TestMergeMakesNothingUnreadable(t *testing.T) {
	var all []Found
	for i := range maxBooks + 1 {
		all = append(all, Found{Book: profiles.Book{Host: fmt.Sprint("gpu-", i)}, raw: []byte("x\n")})
	}
	if _, hosts, err := Merge(all[1:], time.Unix(0, day)); err != nil || len(hosts) != maxBooks {
		t.Errorf("%d: %v", len(hosts), err)
	}
	if _, _, err := Merge(all, time.Unix(0, day)); err == nil {
		t.Errorf("%d books in one file", len(all))
	}
	all[0].raw = make([]byte, maxPlain)
	if _, _, err := Merge(all[:2], time.Unix(0, day)); err == nil {
		t.Error("more bytes than are read of one file")
	}
}

func TestTrustNamesHostsOnce(t *testing.T) {
	a, b := newHost(t, "gpu-7"), newHost(t, "gpu-7")
	if _, err := NewTrust([]string{a.public(), b.public()}, false); err == nil {
		t.Error("two keys of one name")
	}
	if _, err := NewTrust([]string{a.public(), a.public()}, false); err != nil {
		t.Errorf("one key twice: %v", err)
	}
}

func TestKeys(t *testing.T) {
	h := newHost(t, "gpu-7")
	rsa := "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDKXn host"
	for line, good := range map[string]bool{
		h.public(): true, strings.TrimSuffix(h.public(), "gpu-7"): false, h.public() + "\x1b[31m": false, h.public() + " two": false,
		"from=\"x\" " + h.public(): false, "junk": false, "": false, rsa: false, h.public() + "\n" + h.public(): false,
		strings.Replace(h.public(), "gpu-7", "../../etc", 1): false, strings.Replace(h.public(), "gpu-7", ".h", 1): false, strings.Replace(h.public(), "gpu-7", "unsigned-gpu", 1): false, strings.Replace(h.public(), "gpu-7", strings.Repeat("x", 65), 1): false,
	} {
		if _, _, err := ParseKey(line); (err == nil) != good {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestHostKeyIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book_key")
	first, err := HostKey(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	second, err := HostKey(path)
	if err != nil || !bytes.Equal(first.PublicKey().Marshal(), second.PublicKey().Marshal()) {
		t.Errorf("another key at the second start: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := HostKey(path); err == nil || !strings.Contains(err.Error(), "open to others") {
		t.Errorf("a key that all can read: %v", err)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := HostKey(path); err == nil {
		t.Error("junk is a key")
	}
}

// TestKeyThatCannotBeMade: the error names the file and what to do, which is not always another user.
func TestKeyThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no-directory")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(file, "book_key")
	if _, err := HostKey(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "stateDir in the config") {
		t.Errorf("below a file: %v", err)
	}
	for err, want := range map[error]string{
		syscall.EROFS: "make the state directory writable", syscall.ENOSPC: "free disk space", syscall.EACCES: "ask as root", syscall.EPERM: "ask as root", syscall.EIO: "",
	} {
		wrapped := fmt.Errorf("state: %w", &fs.PathError{Op: "open", Path: path, Err: err})
		if got := keyFix(wrapped); !strings.Contains(got, want) || want == "" && got != "" || want != "ask as root" && strings.Contains(got, "as root") {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestPlaceKeepsWhatWas: where the copy cannot be written, what stood there stands.
func TestPlaceKeepsWhatWas(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x"+Suffix)
	if err := Place(path, []byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := Place(filepath.Join(dir, "gone", "x"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := limit
	full.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	err := Place(path, []byte("after it"))
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("written beyond what there is room for: %v", err)
	}
	text, _ := os.ReadFile(path)
	left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*"))
	if string(text) != "before" || len(left) != 0 {
		t.Errorf("%q stands, %v is left", text, left)
	}
}

// BenchmarkRead is one book of 10,000 jobs, from its bytes to what goes into a Store.
func BenchmarkRead(b *testing.B) {
	var text bytes.Buffer
	jobs := known(profiles.MaxKnown)
	for i := range jobs {
		for a := range profiles.NumAttributes {
			jobs[i].Print = jobs[i].Print.With(a, float64(a+1)*0.12345*float64(i+1))
		}
	}
	if err := Write(&text, "x", day, 0, jobs, false, nil); err != nil {
		b.Fatal(err)
	}
	trust, err := NewTrust(nil, true)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(text.Len())/1e6, "MB")
	for b.Loop() {
		found, refused := Read(bytes.NewReader(text.Bytes()), trust)
		if refused != nil || len(profiles.Prepare(nil, found[0].Book, 2*day).Known) != len(jobs) {
			b.Fatal(refused)
		}
	}
}

// Read reads the books of a file. The refusal is of what could not be read any more; the books
// before it are good.
func Read(r io.ReadSeeker, trust Trust) ([]Found, *Refusal) { return read(r, trust, false) }
