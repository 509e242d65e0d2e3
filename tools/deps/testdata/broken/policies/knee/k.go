// Package knee uses randomness that nobody seeded.
package knee

import "math/rand/v2"

// Roll is not reproducible; Seeded is.
func Roll() float64 { return rand.Float64() }

// Seeded is allowed.
func Seeded(src rand.Source) *rand.Rand { return rand.New(src) }
