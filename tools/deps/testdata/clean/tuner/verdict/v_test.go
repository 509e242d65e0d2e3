package verdict

import (
	"testing"

	_ "example.com/clean/runtime/docker" // tests may
)

func TestZero(t *testing.T) {
	if Zero() != 0 {
		t.Error("not zero")
	}
}
