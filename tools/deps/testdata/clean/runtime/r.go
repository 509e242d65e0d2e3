// Package runtime is plain data.
package runtime

// Rate is per second.
type Rate float64
