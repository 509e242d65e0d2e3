package policies

import (
	"reflect"
	"testing"
)

// TestAtMostFiftyDecide: what decides anything is one table that a person can read.
func TestAtMostFiftyDecide(t *testing.T) {
	if n := reflect.TypeFor[Constants]().NumField(); n > 50 {
		t.Errorf("%d constants, at most 50 may decide", n)
	}
}
