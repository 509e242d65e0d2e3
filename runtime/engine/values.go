package engine

// MaxValues bounds the values of what an engine says of one container, see Values. Of most they are a few
// hundred. The most are of published ports, of which Docker tells each thirteen times.
const MaxValues = 1 << 17

// Values counts values of JSON as the text comes in pieces. Three bytes may be a value that costs 250 once it is
// decoded, so a bound of the bytes bounds no memory.
type Values struct{ quoted, escaped bool }

// Count returns how many begin in a piece: what opens an object or a list, and what separates their members.
func (v *Values) Count(piece []byte) (n int64) {
	for _, b := range piece {
		switch {
		case v.escaped:
			v.escaped = false
		case v.quoted:
			v.quoted, v.escaped = b != '"', b == '\\'
		case b == '"':
			v.quoted = true
		case b == ',', b == '{', b == '[':
			n++
		}
	}
	return n
}
