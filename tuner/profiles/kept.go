package profiles

import (
	"bytes"
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
	settings []Setting
	text     []byte // how many, then each: see packer.end
}

// EndsOf holds runs. Nothing of them is lost, but see rounded.
func EndsOf(all ...End) Ends {
	if len(all) == 0 {
		return Ends{}
	}
	var e Ends
	p, n := packer{text: make([]byte, 0, 64*len(all))}, len(all)
	integer(&p, &n)
	for _, end := range all {
		at := e.at(end.Setting)
		p.end(&end, &at)
	}
	e.text, e.settings = slices.Clone(p.text), slices.Clone(e.settings)
	return e
}

// at is the place of a setting among those that are held, to which it is added where it is none of them. More
// are kept of no job than are looked at: a book that has them shall not cost their square.
func (e *Ends) at(s Setting) int {
	from := max(0, len(e.settings)-maxIdentities*MaxEnds)
	if i := slices.Index(e.settings[from:], s); i >= 0 {
		return from + i
	}
	e.settings = append(e.settings, s)
	return len(e.settings) - 1
}

// Len is how many there are.
func (e Ends) Len() (n int) {
	integer(&packer{text: e.text, reads: true}, &n)
	return n
}

// IsZero reports whether there are none.
func (e Ends) IsZero() bool { return len(e.text) == 0 }

// All are the runs.
func (e Ends) All() []End {
	var n, setting int
	p := packer{text: e.text, reads: true}
	integer(&p, &n)
	out := make([]End, n)
	for i := range out {
		p.end(&out[i], &setting)
		out[i].Setting = e.settings[setting]
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

// packer writes runs to a text, or reads them from it, in the same order.
type packer struct {
	text  []byte // what was written, or is still to be read
	reads bool
}

// end writes or reads a run, and the place of its setting.
func (p *packer) end(e *End, setting *int) {
	integer(p, setting)
	integer(p, &e.Run)
	at, ns := e.UnixNs/secondNs, e.UnixNs%secondNs
	integer(p, &at)
	integer(p, &ns)
	e.UnixNs = at*secondNs + ns
	p.hashes(&e.Numbers)
	p.amount(&e.CPUs, perCPU)
	p.amount(&e.Allowed, perCPU)
	p.amount(&e.Memory, 1./pageBytes)
	for _, f := range []*float32{&e.Queued, &e.Rate, &e.Spread, &e.Slowest, &e.Least, &e.First} {
		n := bits.Reverse32(math.Float32bits(*f)) // zeros of the mantissa's end first: varints leave them out
		integer(p, &n)
		*f = math.Float32frombits(bits.Reverse32(n))
	}
	integer(p, &e.Blocks)
}

// integer is a varint; of a text that has ended it reads 0.
func integer[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](p *packer, n *T) {
	if !p.reads {
		p.text = binary.AppendUvarint(p.text, uint64(*n))
		return
	}
	read, size := binary.Uvarint(p.text)
	*n, p.text = T(read), p.text[size:]
}

// amount is so many parts of a whole, or all its bits where it is none of them.
func (p *packer) amount(x *float64, per float64) {
	n, exact := uint64(1), math.Float64bits(*x)
	if whole := math.Round(*x * per); whole >= 0 && whole < 1<<52 && whole/per == *x {
		n = uint64(whole) << 1
	}
	if integer(p, &n); n&1 == 0 {
		*x = float64(n>>1) / per
		return
	}
	integer(p, &exact)
	*x = math.Float64frombits(exact)
}

// hashes are the bits that their texts stand for, or the texts where one stands for none.
func (p *packer) hashes(all *[]identity.Hash) {
	n := len(*all) << 1
	if slices.ContainsFunc(*all, func(h identity.Hash) bool { return !identity.Hashes(identity.WordBytes, string(h[:])) }) {
		n |= 1
	}
	if integer(p, &n); p.reads && n > 0 {
		*all = make([]identity.Hash, n>>1)
	}
	for i := range *all {
		h, texts := (*all)[i][:], n&1 != 0
		switch {
		case p.reads && texts:
			p.text = p.text[copy(h, p.text):]
		case p.reads:
			base64.RawURLEncoding.Encode(h, p.text[:identity.WordBytes])
			p.text = p.text[identity.WordBytes:]
		case texts:
			p.text = append(p.text, h...)
		default:
			p.text, _ = base64.RawURLEncoding.AppendDecode(p.text, h) // it stands for bits, as seen above
		}
	}
}

// Equal reports whether two are the same runs.
func (e Ends) Equal(o Ends) bool {
	return bytes.Equal(e.text, o.text) && slices.Equal(e.settings, o.settings)
}
