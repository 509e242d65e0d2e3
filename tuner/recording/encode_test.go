package recording

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/identity"
)

// What a record holds reads as what encoding/json writes of the same input, whatever that holds.
func TestRecordsReadAsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		var in, want, got control.Input
		fill(r, reflect.ValueOf(&in).Elem(), i%4)
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		line, err := encodeRecord(nil, "tick", in)
		if err != nil {
			t.Fatal(err)
		}
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil || rec.Kind != "tick" {
			t.Fatalf("%q: %v", rec.Kind, err)
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(rec.Value, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("input %d (-encoding/json +record):\n%s", i, diff)
		}
	}
}

func TestNotANumberIsToldOf(t *testing.T) {
	var in control.Input
	in.Containers = []control.Container{{}}
	in.Containers[0].Enrolment.CPU.Min = math.NaN()
	if _, err := encodeRecord(nil, "tick", in); err == nil {
		t.Error("not-a-number was written")
	}
}

// fill sets a value at random: full is 0 for empty, 3 for every field set.
func fill(r *rand.Rand, v reflect.Value, full int) {
	if h, ok := v.Addr().Interface().(*identity.Hash); ok { // any other bytes are refused: a hash is never empty
		*h = identity.Hash([]byte(identity.Word(binary.BigEndian.AppendUint64(nil, r.Uint64()), "", "")))
		return
	}
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

func BenchmarkRecord(b *testing.B) {
	var in control.Input
	r := rand.New(rand.NewPCG(1, 2))
	in.Containers = make([]control.Container, 100)
	for i := range in.Containers {
		fill(r, reflect.ValueOf(&in.Containers[i]).Elem(), 3)
	}
	var line []byte
	var err error
	b.ReportAllocs()
	for b.Loop() {
		if line, err = encodeRecord(line, "tick", in); err != nil {
			b.Fatal(err)
		}
	}
}
