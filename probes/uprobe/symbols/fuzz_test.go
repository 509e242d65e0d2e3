package symbols

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Who reads hostile files may be in a container's hands. What it says is believed within bounds, asks for no
// more packets than those hold, and is said in packets that fit where it is said again.
func FuzzGather(f *testing.F) {
	for _, s := range []string{
		`{"symbols":[{"name":"cuLaunchKernel","offset":64,"stepped":true}],"more":true}` + "\n" + `{"symbols":[{"name":"mark"}]}`,
		`{"symbols":[{"name":"x","offset":1000}]}`, `{"more":true}`, `{"none":true}`, `{"out_of_time":true,"symbols":[{"name":"\ud800\u0000"}]}`, `{"failed":"no ELF"}`, `{"symbols":[{"name":"x","offset":-1}]}`, `1`, ``,
	} {
		f.Add([]byte(s), uint64(1000), uint16(1))
	}
	f.Add([]byte(`{"symbols":[{"name":"x"}],"more":true}`), uint64(1), uint16(2*maxSymbols+1))
	f.Fuzz(func(t *testing.T, b []byte, size uint64, times uint16) {
		packets, asked := bytes.Split(b, []byte("\n")), 0
		most := len(packets) * int(times)
		found, broken, err := gather(func() ([]byte, error) {
			if asked++; asked > most {
				return nil, io.EOF
			}
			return packets[(asked-1)%len(packets)], nil
		}, size)
		if asked > 2*maxSymbols+1 || len(found) > 2*maxSymbols {
			t.Fatalf("%d packets are read, and %d symbols believed", asked, len(found))
		}
		if broken != nil {
			if len(found) > 0 || err != nil || !errors.Is(broken, errNonsense) && !errors.Is(broken, io.EOF) {
				t.Fatalf("%d symbols of who is not believed: %v, %v", len(found), broken, err)
			}
			return
		}
		for _, s := range found {
			if len(s.Name) > maxNameBytes || s.Offset >= size {
				t.Fatalf("%+v in a file of %d bytes", s, size)
			}
		}
		if err != nil {
			found = nil // callers take one or the other
		}
		said := answersTo(found, err)
		again, broken, errAgain := gather(func() ([]byte, error) {
			packet, err := json.Marshal(said[0])
			if said = said[1:]; err != nil || len(packet) > maxPacketBytes {
				t.Fatalf("a packet of %d bytes, %v", len(packet), err)
			}
			return packet, nil
		}, size)
		if diff := cmp.Diff(found, again, cmpopts.EquateEmpty()); diff != "" || broken != nil || len(said) > 0 || !same(err, errAgain) {
			t.Fatalf("%v is said again as %v, %v, with %d packets left: %s", err, errAgain, broken, len(said), diff)
		}
	})
}

// same: both nothing, or of one text.
func same(a, b error) bool { return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error()) }
