package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trimtab/trimtab/runtime"
)

// Whatever program stands at a container, running it ends, with an answer or an error.
func FuzzEvaluate(f *testing.F) {
	for _, rules := range [][]runtime.DeviceRule{nil, {{Kind: "c", Major: 195, Minor: runtime.AnyDevice, Access: "rwm"}}} {
		p, err := allowing(rules, nil)
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		if err := p.Marshal(&b, binary.LittleEndian); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes(), uint16(195), uint16(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, major, minor uint16) {
		var p asm.Instructions
		for r := bytes.NewReader(b); r.Len() > 0; {
			var in asm.Instruction
			if err := in.Unmarshal(r, binary.LittleEndian, "fuzz"); err != nil {
				return
			}
			p = append(p, in)
		}
		slots, err := slotsOf(p)
		if err != nil {
			return
		}
		first, err := decide(slots, openRequest(int(major), int(minor)))
		if again, errAgain := decide(slots, openRequest(int(major), int(minor))); again != first || (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, %v; asked again %v, %v", first, err, again, errAgain)
		}
	})
}
