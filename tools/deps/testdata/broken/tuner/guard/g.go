// Package guard outgrows its reader.
package guard

// Wide has a field too many.
type Wide struct {
	A, B, C, D, E, F, G, H, I, J, K, L, M int
	N, O, P, Q, R, S, T, U, V, W, X, Y, Z int
}

// Long has a line too many.
func Long(n int) int {
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	n++
	return n
}
