// Package helper is shipped and links testing.
package helper

import (
	"os"
	"testing"
)

// Help reads a file.
func Help(t *testing.T) { _, _ = os.ReadFile(t.Name()) }
