package process

import (
	"bytes"
	"testing"
)

// A process writes its own arguments and environment.
func FuzzOwnWords(f *testing.F) {
	f.Add([]byte("RANK=3\x00LOCAL_RANK=1\x00"))
	f.Add([]byte("RANK=-1\x00OMPI_COMM_WORLD_RANK=99999999999\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if argsHash(b) != argsHash(bytes.ReplaceAll(b, []byte("1"), []byte("23"))) {
			t.Fatalf("%q is told by its numbers", b)
		}
		if rank, ok := rankOf(b); ok && rank < 0 {
			t.Fatalf("%q says rank %d", b, rank)
		}
	})
}
