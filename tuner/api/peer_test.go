package api

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A group is looked up once, and anew after a second.
func TestGroupIDs(t *testing.T) {
	var ids groupIDs
	check := func(name string, want int) {
		t.Helper()
		if got := ids.of(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	check("adm", 4) // of Debian's base-passwd
	check("no-such-group", -1)
	ids.known["adm"], ids.known["no-such-group"] = 5, 6
	ids.asked = time.Now().Add(time.Hour) // no second goes by meanwhile
	check("adm", 5)
	check("no-such-group", 6)
	ids.asked = time.Now().Add(-time.Second)
	check("adm", 4)
	check("no-such-group", -1)
}

func TestParseGroups(t *testing.T) {
	text := "# groups\nroot:x:0:\ntrimtab:x:990:me,you\ntrimtab:x:1:late\nodd:x:-1:\nbig:x:4294967296:\nshort:x\n+nis\nlast:x:7:"
	want := map[string]int{"root": 0, "trimtab": 990, "last": 7}
	if diff := cmp.Diff(want, parseGroups(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
