package books

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/trimtab/trimtab/tuner/statefile"
)

// Trust is whose books are used. The zero Trust is nobody's.
type Trust struct {
	hosts    map[string]string // name by public key
	unsigned bool
	own      string // this host's public key: what it signed is known here
}

// But is the same trust without the books of this host's own key. All hosts may then have one
// config, and one directory.
func (t Trust) But(own ssh.PublicKey) Trust {
	t.own = string(own.Marshal())
	return t
}

// NewTrust takes public keys as `trimtab profiles key` prints them. unsigned takes also books that
// nobody signed.
func NewTrust(keys []string, unsigned bool) (Trust, error) {
	t, names := Trust{hosts: map[string]string{}, unsigned: unsigned}, map[string]string{}
	for _, line := range keys {
		key, name, err := ParseKey(line)
		if err != nil {
			return Trust{}, err
		}
		if was, twice := names[name]; twice && was != string(key.Marshal()) {
			return Trust{}, fmt.Errorf("%s is the name of two keys: of two books of one host only one is used", name)
		}
		names[name] = string(key.Marshal())
		t.hosts[string(key.Marshal())] = name
	}
	return t, nil
}

// ParseKey reads the public half of a host's key and the host's name: a line of authorized_keys.
func ParseKey(line string) (ssh.PublicKey, string, error) {
	key, name, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch name = strings.TrimSpace(name); {
	case err != nil:
		return nil, "", errors.New("is no public key; want a line such as ssh-ed25519 AAAA… gpu-7")
	case key.Type() != ssh.KeyAlgoED25519:
		return nil, "", fmt.Errorf("is a key of type %s; allowed is %s", key.Type(), ssh.KeyAlgoED25519)
	case len(options) > 0 || len(bytes.TrimSpace(rest)) > 0:
		return nil, "", errors.New("holds more than one key with its name")
	case name == "" || name != HostName(name) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, unsignedPrefix):
		return nil, "", fmt.Errorf("has no host's name after the key; allowed are up to 64 letters, digits, dots and dashes, but no dot in front, and no %q", unsignedPrefix)
	}
	return key, name, nil
}

// What a host may be called: its name is part of texts, files and arguments.
const (
	hostName    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"
	maxHostName = 64
)

// HostName is what of a name a host may be called.
func HostName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(hostName, r) {
			return r
		}
		return '-'
	}, name[:min(len(name), maxHostName)])
}

// unsignedPrefix tells a name that a book gives itself from those that the config gives.
const unsignedPrefix = "unsigned-"

// check says whose a book is, by the signature of its end.
func (t Trust) check(end []byte, armored, says string) (host, key string, refused *Refusal) {
	if armored == "" {
		host = unsignedPrefix + HostName(says)
		if !t.unsigned {
			return host, "", refuse(Unsigned, "is not signed: sign it, or allow such books by profiles.unsigned")
		}
		return host, "", nil
	}
	sig, err := sshsig.Unarmor([]byte(armored))
	if err != nil {
		return "", "", refuse(Forged, "has a signature that cannot be read: %v", err)
	}
	key = ssh.FingerprintSHA256(sig.PublicKey)
	if t.own != "" && string(sig.PublicKey.Marshal()) == t.own {
		return "", key, refuse(Own, "is of this host")
	}
	host, known := t.hosts[string(sig.PublicKey.Marshal())]
	if !known {
		return "", key, refuse(UnknownKey, "is signed by %s, which profiles.trust does not name", key)
	}
	if err := sshsig.Verify(bytes.NewReader(end), sig, sig.PublicKey, sig.HashAlgorithm, namespace); err != nil {
		return host, key, refuse(Forged, "has a signature of %s that does not hold: %v", host, err)
	}
	return host, key, nil
}

// HostKey reads the key that a host signs its books with, and makes one where there is none. It is
// only ever readable by its owner.
func HostKey(path string) (ssh.Signer, error) {
	text, err := statefile.ReadPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path); err != nil && !errors.Is(err, fs.ErrExist) { // another was first
			return nil, fmt.Errorf("the host's key %s is not there, and cannot be made: %w%s", path, err, keyFix(err))
		}
		text, err = statefile.ReadPrivate(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the host's key %s: %w%s", path, err, keyFix(err))
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("the host's key %s: %w: remove it, and the next start makes another", path, err)
	}
	return key, nil
}

// keyFix is what to do about a key that cannot be had; "" where the error says it, or nothing helps.
func keyFix(err error) string {
	switch {
	case errors.Is(err, statefile.ErrOpen), errors.Is(err, statefile.ErrNotState):
		return ": `chmod 600` it if nobody has read it, else remove it"
	case errors.Is(err, fs.ErrPermission):
		return ": ask as root"
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.ENOTDIR):
		return ": make the state directory writable, and free disk space, or name another (stateDir in the config)"
	}
	return ""
}

func makeKey(path string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "trimtab")
	if err != nil {
		return err
	}
	if err := statefile.MakeDir(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return statefile.Place(path, pem.EncodeToMemory(block), 0o600, os.Link) // Link never replaces
}

// Place puts the text of a book into a file, whole or not at all.
func Place(path string, text []byte) error {
	return statefile.Place(path, text, 0o644, os.Rename)
}

// Keep puts a book that ReadFile has read into a file of its own, makes the directory, and remembers the
// book. It does not replace a later one of the same host. Where the error is ErrSerials the book is there, and only not
// remembered.
func Keep(path string, f *Found, trust Trust, serials Serials, now time.Time) error {
	there, _ := ReadFile(path, trust) // whatever is wrong with it, it goes
	for i := range there {
		if old := &there[i]; old.Refused == nil && old.later(f, now) {
			return fmt.Errorf("%s holds a later one", path)
		}
	}
	text, err := appendPacked(nil, f.raw)
	if err != nil {
		return err
	}
	if err := statefile.MakeDir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := Place(path, text); err != nil {
		return err
	}
	return serials.take(f) // after it is there: else what stands would be the older one
}
