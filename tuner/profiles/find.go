package profiles

// Find returns the entries that fit, sorted by ID. They may be read from any goroutine: what an
// entry holds is replaced when it changes, and never written to.
func (b *Store) Find(fits func(*Known) bool) []Known {
	var out []Known
	for i := range b.known {
		if fits(&b.known[i]) {
			out = append(out, b.known[i])
		}
	}
	return out
}
