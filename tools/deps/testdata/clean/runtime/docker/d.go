// Package docker touches the world, as implementations may.
package docker

import (
	"os"
	"time"

	"example.com/clean/runtime"
)

// Read reads.
func Read() (runtime.Rate, time.Time) { return runtime.Rate(os.Getpid()), time.Now() }
