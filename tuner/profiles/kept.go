package profiles

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/tuner/identity"
)

// Ends are runs, the latest last, each in some 50 bytes: 10,000 jobs with eight of them are held, and
// of few they are asked for. In JSON they are a list of End. They are not changed, see Each.
type Ends struct {
	settings []*Setting
	text     string // how many, then each: see append
}

// EndsOf holds runs. Nothing of them is lost, but see rounded.
func EndsOf(all ...End) Ends {
	if len(all) == 0 {
		return Ends{}
	}
	var e Ends
	b := binary.AppendUvarint(make([]byte, 0, 64*len(all)), uint64(len(all)))
	for _, end := range all {
		b = e.append(b, end)
	}
	e.text, e.settings = string(b), slices.Clip(e.settings)
	return e
}

// Len is how many there are.
func (e Ends) Len() int { return int((&unpacker{e.text}).integer()) }

// IsZero reports whether there are none.
func (e Ends) IsZero() bool { return e.text == "" }

// All are the runs.
func (e Ends) All() []End {
	from := unpacker{e.text}
	out := make([]End, from.integer())
	for i := range out {
		out[i] = e.next(&from)
	}
	return out
}

// Each are the runs changed by f.
func (e Ends) Each(f func(*End)) Ends {
	all := e.All()
	for i := range all {
		f(&all[i])
	}
	return EndsOf(all...)
}

// MarshalJSON implements json.Marshaler.
func (e Ends) MarshalJSON() ([]byte, error) { return json.Marshal(e.All()) }

// UnmarshalJSON implements json.Unmarshaler.
func (e *Ends) UnmarshalJSON(text []byte) error {
	var all []End
	err := json.Unmarshal(text, &all)
	*e = EndsOf(all...)
	return err
}

// Units in which amounts are whole numbers: what the kernel's quotas are counted in at its usual period,
// a page, and a second.
const (
	perCPU    = 1e5
	pageBytes = 4096
	secondNs  = 1e9
)

// rounded is an end with its amounts in whole units, which take few bytes, and its floating point
// numbers to a part in 8,000: blocks of steps are hardly alike to one in a hundred.
func (e End) rounded() End {
	const cut = 11 // of the mantissa that go
	for _, f := range []*float32{&e.Queued, &e.Spread, &e.Slowest, &e.Least, &e.First} {
		if near := math.Float32frombits((math.Float32bits(*f) + 1<<(cut-1)) &^ (1<<cut - 1)); !math.IsInf(float64(near), 0) {
			*f = near
		}
	}
	e.CPUs, e.Allowed = math.Round(e.CPUs*perCPU)/perCPU, math.Round(e.Allowed*perCPU)/perCPU
	e.Memory = math.Ceil(e.Memory/pageBytes) * pageBytes
	e.UnixNs -= e.UnixNs % secondNs
	return e
}

func (e *Ends) append(b []byte, end End) []byte {
	from := max(0, len(e.settings)-maxIdentities*MaxEnds) // more are kept of none: a book that has them shall not cost their square
	i := slices.IndexFunc(e.settings[from:], func(s *Setting) bool { return s == end.Setting || s != nil && end.Setting != nil && *s == *end.Setting })
	if i += from; i < from { // none
		i, e.settings = len(e.settings), append(e.settings, end.Setting)
	}
	b = binary.AppendUvarint(b, uint64(i))
	b = binary.AppendUvarint(b, uint64(end.Run))
	b = appendScaled(b, end.UnixNs, secondNs)
	b = appendHashes(b, end.Numbers)
	b = appendAmount(b, end.CPUs, perCPU)
	b = appendAmount(b, end.Allowed, perCPU)
	b = appendAmount(b, end.Memory, 1./pageBytes)
	for _, f := range []float32{end.Queued, end.Rate, end.Spread, end.Slowest, end.Least, end.First} { // zeros of the mantissa's end first: varints leave them out
		b = binary.AppendUvarint(b, uint64(bits.Reverse32(math.Float32bits(f))))
	}
	return binary.AppendVarint(b, int64(end.Blocks))
}

func (e Ends) next(from *unpacker) (end End) {
	end.Setting = e.settings[from.integer()]
	end.Run = RunID(from.integer())
	end.UnixNs = from.scaled(secondNs)
	end.Numbers = from.hashes()
	end.CPUs, end.Allowed, end.Memory = from.amount(perCPU), from.amount(perCPU), from.amount(1./pageBytes)
	for _, f := range []*float32{&end.Queued, &end.Rate, &end.Spread, &end.Slowest, &end.Least, &end.First} {
		*f = math.Float32frombits(bits.Reverse32(uint32(from.integer())))
	}
	n := from.integer()
	end.Blocks = int32(n>>1) ^ -int32(n&1)
	return end
}

// appendScaled adds n in whole units, or as it is where it is none.
func appendScaled(b []byte, n, unit int64) []byte {
	if n >= 0 && n%unit == 0 {
		return binary.AppendUvarint(b, uint64(n/unit)<<1)
	}
	return binary.LittleEndian.AppendUint64(append(b, 1), uint64(n))
}

// appendAmount does so with per parts of a whole.
func appendAmount(b []byte, x, per float64) []byte {
	if n := math.Round(x * per); n >= 0 && n < 1<<52 && n/per == x {
		return binary.AppendUvarint(b, uint64(n)<<1)
	}
	return binary.LittleEndian.AppendUint64(append(b, 1), math.Float64bits(x))
}

// appendHashes adds the bits that texts of hashes stand for, or the texts where one stands for none.
func appendHashes(b []byte, all []identity.Hash) []byte {
	packed := binary.AppendUvarint(b, uint64(len(all))<<1)
	for _, h := range all {
		var bits [len(h)]byte
		var text identity.Hash
		n, _ := base64.RawURLEncoding.Decode(bits[:], h[:]) // what stands for none is seen by its text
		if base64.RawURLEncoding.Encode(text[:], bits[:identity.WordBytes]); n != identity.WordBytes || text != h {
			packed = binary.AppendUvarint(b, uint64(len(all))<<1|1)
			for _, h := range all {
				packed = append(packed, h[:]...)
			}
			return packed
		}
		packed = append(packed, bits[:n]...)
	}
	return packed
}

// unpacker reads what append wrote.
type unpacker struct{ text string }

func (u *unpacker) bytes(n int) (s string) {
	s, u.text = u.text[:n], u.text[n:]
	return s
}

// integer is 0 where there is none.
func (u *unpacker) integer() (n uint64) {
	for i := range len(u.text) {
		c := u.text[i]
		if n |= uint64(c&0x7f) << (7 * i); c < 0x80 {
			u.text = u.text[i+1:]
			return n
		}
	}
	return 0
}

// whole is a number of units; ok is false where 64 bits as they are stand instead.
func (u *unpacker) whole() (n uint64, ok bool) {
	if n = u.integer(); n&1 == 0 {
		return n >> 1, true
	}
	return binary.LittleEndian.Uint64([]byte(u.bytes(8))), false
}

func (u *unpacker) scaled(unit int64) int64 {
	n, ok := u.whole()
	if ok {
		return int64(n) * unit
	}
	return int64(n)
}

func (u *unpacker) amount(per float64) float64 {
	n, ok := u.whole()
	if ok {
		return float64(n) / per
	}
	return math.Float64frombits(n)
}

func (u *unpacker) hashes() []identity.Hash {
	n := u.integer()
	if n == 0 {
		return nil
	}
	out := make([]identity.Hash, n>>1)
	for i := range out {
		if n&1 != 0 {
			copy(out[i][:], u.bytes(len(out[i])))
		} else {
			base64.RawURLEncoding.Encode(out[i][:], []byte(u.bytes(identity.WordBytes)))
		}
	}
	return out
}

// Equal reports whether two are the same runs.
func (e Ends) Equal(o Ends) bool {
	return e.text == o.text && slices.EqualFunc(e.settings, o.settings, func(a, b *Setting) bool { return a == b || a != nil && b != nil && *a == *b })
}
