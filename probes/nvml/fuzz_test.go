package nvml

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }

// sayingChild is a child that says so, and ends.
func sayingChild(t *testing.T, say func(out io.Writer)) *process {
	t.Helper()
	replies, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	page, file, err := wire.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	close(ended)
	p := &process{page: page, asks: nowhere{io.Discard}, replies: replies, answers: make(chan wire.Answer, answersQueued), quit: make(chan struct{}), done: ended}
	p.readers.Go(p.listen)
	p.readers.Go(func() {
		say(child)
		_ = child.Close()
	})
	t.Cleanup(func() {
		close(p.quit)
		_ = replies.Close()
		p.readers.Wait()
		page.Close()
		_ = file.Close()
	})
	return p
}

// What a child says is a reading, or an error: devices each once and in order, samples once and no more
// than may wait, until the child says that it fails, is of another version, or says what is no answer.
func FuzzAnswers(f *testing.F) {
	const hello, end = `{"hello":{"protocol":2,"driver":"550","nvml":"12"}}` + "\n", `{"end":{"cpu":5,"rss":7,"outcomes":[{"call":"nvmlInit_v2","code":0}],"xids":[{"dev":"GPU-1","xid":79},{"dev":"#0","xid":13}]}}` + "\n"
	for _, s := range []string{
		hello + `{"device":{"index":0,"uuid":"GPU-a","at":1,"duty":[{"at":1,"duty":0.5}],"processes":[{"pid":7}]},"cursor":9}` + "\n" + end + `{"device":{"index":0,"at":2,"lost":"gone"}}` + "\n" + end,
		hello + `{"device":{"index":1,"uuid":"GPU-b"}}` + "\n" + `{"device":{"index":1,"uuid":"MIG-c","parent":"GPU-b"}}` + "\n" + end + end,
		`{"hello":{"protocol":1}}` + "\n", `{"failed":{"why":"no driver","normal":true}}` + "\n", `{"device":{"index":-9223372036854775808}}` + "\n" + end, "{}\n\nnot JSON", end + "{",
	} {
		f.Add([]byte(s), uint16(0))
	}
	f.Add([]byte(`{"device":{"uuid":"GPU-a","duty":[{"at":1,"duty":1}]}}`+"\n"), uint16(maxPending+3))
	f.Fuzz(func(t *testing.T, b []byte, times uint16) {
		said := bytes.Repeat(b, 1+min(int(times), (1<<20)/(len(b)+1)))
		p := sayingChild(t, func(out io.Writer) { _, _ = out.Write(said) }) // who listens may have had enough
		r := &Reader{o: Options{ProcRoot: t.TempDir()}.withDefaults(), book: newBook(), news: make(chan struct{})}
		var err error
		for err == nil {
			if _, err = r.reading(t.Context(), p); err == nil {
				checkBook(t, r)
			}
		}
		fail, quiet := (*wire.Failure)(nil), (*silence)(nil)
		if !errors.As(err, &fail) && !errors.Is(err, errNotOurs) && (!errors.As(err, &quiet) || !quiet.dead) {
			t.Fatalf("%q ends a reading with %v", b, err)
		}
		if hello := r.book.hello; hello != (wire.Hello{}) && hello.Protocol != wire.Protocol {
			t.Fatalf("%+v is believed", hello)
		}
		checkBook(t, r)
	})
}

// checkBook delivers what a book holds.
func checkBook(t *testing.T, r *Reader) {
	t.Helper()
	known := len(r.book.devices)
	if known > maxDevices {
		t.Fatalf("%d devices are kept", known)
	}
	list, err := r.Read(t.Context())
	if err != nil || len(list) != known {
		t.Fatalf("%d devices are told of %d, %v", len(list), known, err)
	}
	seen := map[string]bool{}
	for i, d := range list {
		id := cmp.Or(d.UUID, wire.IndexID(d.Index))
		if seen[id] || len(d.Duty) > maxPending || i > 0 && d.Index < list[i-1].Index {
			t.Fatalf("%q at %d, again: %v, with %d samples", id, i, seen[id], len(d.Duty))
		}
		seen[id] = true
	}
	again, _ := r.Read(t.Context())
	for i, d := range again {
		if len(d.Duty) > 0 || d.UUID != list[i].UUID {
			t.Fatalf("read twice: %+v after %+v", d, list[i])
		}
	}
}
