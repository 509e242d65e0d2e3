package books

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func put(t *testing.T, dir, name string, text []byte) {
	t.Helper()
	if err := Place(filepath.Join(dir, name), text); err != nil {
		t.Fatal(err)
	}
}

func read1(t *testing.T, d *Directory) ([]Found, []File) {
	t.Helper()
	var found []Found
	files, err := d.Read(time.Unix(0, 10*day), func(f Found) { found = append(found, f) })
	if err != nil {
		t.Fatal(err)
	}
	return found, files
}

func TestDirectory(t *testing.T) {
	h, other := newHost(t, "gpu-7"), newHost(t, "gpu-8")
	dir := filepath.Join(t.TempDir(), "books")
	d := NewDirectory(dir, trusting(t, h, other).But(other.key.PublicKey()), "")
	if found, files := read1(t, d); len(found)+len(files) != 0 || d.Changed() {
		t.Fatal("a directory that is missing holds something")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if !d.Changed() {
		t.Error("the directory came, and nobody noticed")
	}
	put(t, dir, "gpu-7"+Suffix, h.book(t, day, known(1)))
	put(t, dir, "gpu-8"+Suffix, other.book(t, day, known(1)))
	put(t, dir, ".gpu-9"+Suffix+".XyZ", []byte("rsync is at it"))
	put(t, dir, "README", []byte("of no interest"))
	found, files := read1(t, d)
	if len(found) != 1 || len(files) != 2 || files[1].Reason != Own {
		t.Fatalf("%+v", files)
	}
	if d.Changed() {
		t.Error("nothing has changed")
	}
	put(t, dir, "gpu-7"+Suffix, h.book(t, 2*day, known(2))) // a rename, as rsync does
	if !d.Changed() {
		t.Fatal("a book was replaced, and nobody noticed")
	}
	put(t, dir, "again"+Suffix, h.book(t, day, known(3)))
	if found, files = read1(t, d); len(found) != 1 || len(found[0].Known) != 2 || files[0].Reason != Older || files[1].Reason != "" {
		t.Errorf("%+v", files)
	}
	put(t, dir, "again"+Suffix, h.book(t, 3*day, known(3)))
	if found, files = read1(t, d); len(found) != 1 || len(found[0].Known) != 3 || files[0].Reason != "" || files[1].Reason != Older {
		t.Errorf("%+v", files)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if !d.Changed() {
		t.Error("the directory went, and nobody noticed")
	}
	if _, err := d.Read(time.Now(), nil); !errors.Is(err, fs.ErrNotExist) || d.Changed() {
		t.Errorf("a directory that is gone is taken for an empty one: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if found, files = read1(t, d); len(found)+len(files) != 0 {
		t.Errorf("%+v", files)
	}
}

// TestClockOnceAhead: a book that was made by a clock far ahead keeps no later one away.
func TestClockOnceAhead(t *testing.T) {
	h := newHost(t, "gpu-7")
	dir := t.TempDir()
	put(t, dir, "a"+Suffix, h.book(t, 400*day, known(1)))
	put(t, dir, "b"+Suffix, h.book(t, 9*day, known(2)))
	d := NewDirectory(dir, trusting(t, h), "")
	if found, files := read1(t, d); len(found) != 1 || len(found[0].Known) != 2 || files[0].Reason != Older {
		t.Errorf("%+v", files)
	}
	ahead, _ := ReadFile(filepath.Join(dir, "a"+Suffix), trusting(t, h))
	later, _ := ReadFile(filepath.Join(dir, "b"+Suffix), trusting(t, h))
	path, now := filepath.Join(dir, "kept"), time.Unix(0, 10*day)
	if err := Keep(path, &ahead[0], trusting(t, h), "", now); err != nil {
		t.Error(err)
	}
	if err := Keep(path, &later[0], trusting(t, h), "", now); err != nil {
		t.Error(err)
	}
	if err := Keep(path, &ahead[0], trusting(t, h), "", now); err == nil {
		t.Error("a book of a clock ahead replaced another")
	}
	if err := os.Remove(filepath.Join(dir, "b"+Suffix)); err != nil {
		t.Fatal(err)
	}
	if found, files := read1(t, d); len(found) != 1 || files[0].Reason != "" || files[0].Text == "" {
		t.Errorf("alone it is not used, or not told of: %+v", files)
	}
}

// TestConfigMap: a volume of Kubernetes turns one link to another folder; all files change at once.
func TestConfigMap(t *testing.T) {
	h := newHost(t, "gpu-7")
	dir := t.TempDir()
	for i, folder := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, folder), "b"+Suffix, h.book(t, day, known(i+1)))
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link("..data/b"+Suffix, "b"+Suffix)
	d := NewDirectory(dir, trusting(t, h), "")
	if found, files := read1(t, d); len(found) != 1 || len(found[0].Known) != 1 {
		t.Fatalf("%+v", files)
	}
	link("..2", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if !d.Changed() {
		t.Fatal("the links were turned, and nobody noticed")
	}
	if found, files := read1(t, d); len(found) != 1 || len(found[0].Known) != 2 {
		t.Errorf("%+v", files)
	}
}

// TestWhatIsNoBook: nothing of it is waited for, opened or read to its end, and a good book beside
// it is used.
func TestWhatIsNoBook(t *testing.T) {
	h := newHost(t, "gpu-7")
	dir, outside := t.TempDir(), t.TempDir()
	put(t, dir, "good"+Suffix, h.book(t, day, known(1)))
	put(t, outside, "secret", h.book(t, day, known(1)))
	want := map[string]Reason{"good" + Suffix: ""}
	add := func(name string, reason Reason, err error) {
		if err != nil {
			t.Fatal(err)
		}
		want[name+Suffix] = reason
	}
	at := func(name string) string { return filepath.Join(dir, name+Suffix) }
	add("fifo", Irregular, syscall.Mkfifo(at("fifo"), 0o644))
	add("folder", Irregular, os.Mkdir(at("folder"), 0o755))
	add("absolute", Outside, os.Symlink(filepath.Join(outside, "secret"), at("absolute")))
	add("upwards", Outside, os.Symlink("../../../../../../../etc/passwd", at("upwards")))
	add("dangling", Unreadable, os.Symlink("nowhere", at("dangling")))
	add("loop", Outside, os.Symlink("loop"+Suffix, at("loop")))
	f, err := os.Create(at("huge"))
	add("huge", TooBig, err)
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(at("device"), syscall.S_IFCHR|0o644, 1<<8|5); err == nil { // /dev/zero
		want["device"+Suffix] = Irregular
	} else {
		t.Logf("needs CAP_MKNOD for a device: %v", err)
	}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	found, files := read1(t, NewDirectory(dir, trusting(t, h), ""))
	goruntime.ReadMemStats(&after)
	if len(found) != 1 {
		t.Errorf("%d books", len(found))
	}
	for _, f := range files {
		if reason, ok := want[f.Name]; !ok || f.Reason != reason {
			t.Errorf("%s: %q (%s), want %q", f.Name, f.Reason, f.Text, reason)
		}
		delete(want, f.Name)
	}
	if len(want) != 0 {
		t.Errorf("not told of: %v", want)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d MiB were allocated for one book of one job", used>>20)
	}
}

// TestUnreadable: a book of another owner's mode, as nobody but root meets.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs another user than root")
	}
	h := newHost(t, "gpu-7")
	dir := t.TempDir()
	put(t, dir, "b"+Suffix, h.book(t, day, known(1)))
	if err := os.Chmod(filepath.Join(dir, "b"+Suffix), 0); err != nil {
		t.Fatal(err)
	}
	if found, files := read1(t, NewDirectory(dir, trusting(t, h), "")); len(found) != 0 || files[0].Reason != Unreadable {
		t.Errorf("%+v", files)
	}
}

// TestDirectoryThatIsNone: a file in its place is an error of the whole, told once it is read.
func TestDirectoryThatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "books")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewDirectory(path, Trust{}, "")
	if _, err := d.Read(time.Now(), nil); err == nil || d.Changed() {
		t.Errorf("%v", err)
	}
}

// TestChangedWhileRead: a book that is written in place meanwhile is not used, whatever came of it.
func TestChangedWhileRead(t *testing.T) {
	h := newHost(t, "gpu-7")
	path := filepath.Join(t.TempDir(), "b"+Suffix)
	if err := os.WriteFile(path, h.book(t, day, known(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	refused := opened(f, func(r io.ReadSeeker) *Refusal {
		if all, refused := scan(r, trusting(t, h)); refused != nil || len(all) != 1 || all[0].Refused != nil {
			t.Errorf("%+v, %v", all, refused)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(9, 9)); err != nil {
			t.Error(err)
		}
		return nil
	})
	if refused == nil || refused.Reason != Changed {
		t.Errorf("%+v", refused)
	}
}

// TestChangedBetween: what is decoded is what was scanned.
func TestChangedBetween(t *testing.T) {
	h := newHost(t, "gpu-7")
	all, refused := scan(bytes.NewReader(h.book(t, day, known(1))), trusting(t, h))
	if refused != nil || len(all) != 1 || all[0].Jobs != 1 || len(all[0].Known) != 0 {
		t.Fatalf("%+v, %v", all, refused)
	}
	for what, text := range map[string][]byte{"another of its": h.book(t, day, known(2)), "nothing": nil} {
		refused := decode(bytes.NewReader(text), trusting(t, h), all, false, func(int, Found) { t.Errorf("%s is used", what) })
		if refused == nil || refused.Reason != Changed {
			t.Errorf("%s: %+v", what, refused)
		}
	}
}

// TestUnsignedCostsLittle: a few kilobytes of a stranger are not unpacked into hundreds of megabytes.
func TestUnsignedCostsLittle(t *testing.T) {
	line := `{"ends":[` + strings.Repeat("{},", maxLine/3-10) + "{}]}\n"
	text := `{"format":"trimtab-book","version":1}` + "\n" + strings.Repeat(line, 1000)
	sum := sha256.Sum256([]byte(text))
	text += fmt.Sprintf(`{"end":true,"jobs":1000,"sha256":"%x"}`+"\n{}\n", sum)
	file := packed(t, text)
	var before, after goruntime.MemStats
	trusted, err := NewTrust(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	for what, trust := range map[string]Trust{"refused": trusting(t, newHost(t, "gpu-7")), "trusted": trusted} {
		goruntime.ReadMemStats(&before)
		found, refused := Read(bytes.NewReader(file), trust)
		goruntime.ReadMemStats(&after)
		if refused != nil || len(found) != 1 || (found[0].Refused != nil) != (what == "refused") || len(found[0].Known) != 0 {
			t.Fatalf("%s: %+v, %v", what, found, refused)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
			t.Errorf("%s: %d bytes took %d MiB", what, len(file), used>>20)
		}
	}
}

// FuzzRead: no bytes make it panic, and what it takes is signed.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"format":"trimtab-book","version":1,"host":"x","made":1}` + "\n" + `{"end":true,"jobs":0,"sha256":""}` + "\n{}\n"))
	f.Add([]byte(`{"format":"trimtab-book"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		member, err := appendPacked(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		found, _ := Read(bytes.NewReader(member), Trust{})
		for _, b := range found {
			if b.Refused == nil || len(b.Known) > 0 {
				t.Fatalf("taken: %+v", b)
			}
		}
	})
}
