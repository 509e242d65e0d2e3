package inputjson

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/trimtab/trimtab/tuner/control"
)

// What is written by hand equals what json.Marshal writes, whatever the input
// holds: a field that is added to a type and not to the encoder fails here.
func TestAppendJSONEqualsMarshal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		var in Input
		fill(r, reflect.ValueOf(&in).Elem(), i%4)
		for j := range in.Containers {
			c := &in.Containers[j]
			if c.Fixed = nil; j%2 == 1 {
				var err error
				if c.Fixed, err = FixedJSON(c.Container); err != nil {
					t.Fatal(err)
				}
			}
		}
		want, err := json.Marshal(in.Input)
		if err != nil {
			t.Fatal(err)
		}
		got, err := in.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			from := max(0, at-80)
			t.Fatalf("input %d differs at byte %d:\n got …%.160s\nwant …%.160s", i, at, got[from:], want[from:])
		}
	}
}

func TestAppendJSONTellsWhatCannotBeWritten(t *testing.T) {
	var in Input
	in.Containers = []control.Container{{}}
	in.Containers[0].Enrolment.CPU.Min = math.NaN()
	if _, err := in.AppendJSON(nil); err == nil {
		t.Error("not-a-number was written")
	}
}

// fill sets a value at random: full is 0 for empty, 3 for every field set.
func fill(r *rand.Rand, v reflect.Value, full int) {
	if r.IntN(4) > full {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), full)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), full)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i), full)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i), full)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, 3)
			fill(r, value, 3)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		words := []string{"box", "a b", `"quoted"\`, "<&>", "Käse", "\x00\n", "\xff\xfe", "\u2028", ""}
		v.SetString(words[r.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64() >> (64 - v.Type().Bits()) >> r.IntN(8)))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float64:
		floats := []float64{0, math.Copysign(0, -1), 1, -3, 0.1, 1e-7, 1e-6, 123456.789, 1e15, 1e20, 1e21, 1e300, 125e6, 1.5e9, -2.5e-9}
		v.SetFloat(floats[r.IntN(len(floats))])
	default:
		panic("no way to fill a " + v.Kind().String())
	}
}

func BenchmarkAppendJSON(b *testing.B) { benchmarkJSON(b, Input.AppendJSON) }

func BenchmarkMarshalJSON(b *testing.B) {
	benchmarkJSON(b, func(in Input, _ []byte) ([]byte, error) { return json.Marshal(in.Input) })
}

func benchmarkJSON(b *testing.B, encode func(Input, []byte) ([]byte, error)) {
	var in Input
	r := rand.New(rand.NewPCG(1, 2))
	in.Containers, in.Samples = make([]control.Container, 100), nil
	for i := range in.Containers {
		fill(r, reflect.ValueOf(&in.Containers[i]).Elem(), 3)
	}
	var buf []byte
	var err error
	b.ReportAllocs()
	for b.Loop() {
		if buf, err = encode(in, buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
