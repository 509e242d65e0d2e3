package books

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/hiddeco/sshsig"
)

// resigned closes lines that were changed as their host would.
func resigned(t *testing.T, h host, body string, jobs int) string {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	closing, err := json.Marshal(ending{true, jobs, hex.EncodeToString(sum[:])})
	if err != nil {
		t.Fatal(err)
	}
	closing = append(closing, '\n')
	sig, err := sshsig.Sign(bytes.NewReader(closing), h.key, sshsig.HashSHA512, namespace)
	if err != nil {
		t.Fatal(err)
	}
	last, err := json.Marshal(signed{string(sshsig.Armor(sig))})
	if err != nil {
		t.Fatal(err)
	}
	return body + string(closing) + string(last) + "\n"
}
