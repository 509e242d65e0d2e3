package originals_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

func file(name string) originals.File {
	f := originals.For(runtime.Container{ID: runtime.ID{Engine: "docker", Container: name, Boot: "b00t", StartTick: 9}, Name: name,
		InitPID: 4711, GPUs: []string{"all"}, Cgroup: runtime.Cgroup{Mode: runtime.CgroupHybrid, ID: 12, Unified: "/u/" + name,
			V1: map[string]string{"cpu": "/cpu/" + name}}})
	f.Knobs[runtime.KnobCPUQuota] = originals.Knob{Original: "40000 100000", Written: "150000 100000", Writing: "160000 100000"}
	f.Knobs[runtime.KnobMemoryLimit] = originals.Knob{Original: "1024", Written: "2048", Pending: "why"}
	return f
}

var known = cmpopts.IgnoreUnexported(originals.File{}, originals.Knob{})

func newStore(t *testing.T) *originals.Store {
	return originals.New(originals.Options{Dir: filepath.Join(t.TempDir(), "deep", "originals")})
}

func TestSaveLoadRemove(t *testing.T) {
	s := newStore(t)
	want := file("a")
	if files, err := s.List(); len(files) != 0 || err != nil {
		t.Fatalf("before the first save: %v, %v", files, err)
	}
	if err := s.Save(want); err != nil {
		t.Fatal(err)
	}
	got, ok, err := s.Load(want.ID)
	if diff := cmp.Diff(want, got, known); diff != "" || !ok || err != nil {
		t.Fatal(ok, err, diff)
	}
	if info, err := os.Stat(s.Dir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, %v", info.Mode(), err)
	}
	if err := s.Save(file("b")); err != nil {
		t.Fatal(err)
	}
	files, err := s.List()
	if diff := cmp.Diff([]originals.File{want, file("b")}, files, known); diff != "" || err != nil {
		t.Fatal(err, diff)
	}
	for range 2 {
		if err := s.Remove(want.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := s.Load(want.ID); ok || err != nil {
		t.Error(ok, err)
	}
}

// frozen is the format as version 1 wrote it. It must be readable for ever: never edit it.
const frozen = `{
  "cgroup": {"mode": "hybrid", "id": 12, "unified": "/u/a", "v1": {"cpu": "/cpu/a"}},
  "gpus": ["all"],
  "identity": {"engine": "docker", "container": "a", "boot": "b00t", "start": 9},
  "initPID": 4711,
  "knobs": {
    "cpu.quota": {"original": "40000 100000", "writing": "160000 100000", "written": "150000 100000"},
    "memory.limit": {"debt": "why", "original": "1024", "written": "2048"}
  },
  "name": "a",
  "version": 1
}`

func TestFrozenFormat(t *testing.T) {
	got, err := originals.Decode([]byte(frozen))
	if diff := cmp.Diff(file("a"), got, known); diff != "" || err != nil {
		t.Fatal(err, diff)
	}
	again, err := originals.Encode(file("a"))
	if err != nil {
		t.Fatal(err)
	}
	strip := func(s string) string { return strings.NewReplacer(" ", "", "\n", "").Replace(s) }
	if diff := cmp.Diff(strip(summed()), strip(string(again))); diff != "" {
		t.Error("the format has changed:", diff)
	}
}

// summed is frozen with the sums that are written since.
func summed() string {
	return strings.NewReplacer(`"original": "40000 100000"`, `"original": "40000 100000", "sum": "31b8a390"`,
		`"original": "1024"`, `"original": "1024", "sum": "8c996bce"`).Replace(frozen)
}

// TestCarried: what a write that may still land sets again is on record as long as one is under way.
func TestCarried(t *testing.T) {
	first, second := runtime.Values{runtime.KnobCpuset: "0-3"}, runtime.Values{runtime.KnobCpuset: "0-1"}
	f := file("a") // a write of the quota is under way
	for _, stands := range []runtime.Values{first, second, first} {
		f.Carry(stands)
	}
	data, err := originals.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	if f, err = originals.Decode(data); err != nil || !cmp.Equal(f.Carried, []runtime.Values{first, second}) || !cmp.Equal(f.InFlight()[3:], f.Carried) {
		t.Errorf("%+v, %v", f, err)
	}
	// It is a help: where it is not what it should be, the owner's values are read all the same.
	broken := strings.Replace(string(data), `"carried": [`, `"carried": [7,`, 1)
	if odd, err := originals.Decode([]byte(broken)); err != nil || broken == string(data) || len(odd.Carried) > 0 || len(odd.Knobs) != len(f.Knobs) {
		t.Errorf("%+v, %v", odd, err)
	}
	for n := range 20 {
		f.Carry(runtime.Values{runtime.KnobCpuset: runtime.IntValue(int64(n))})
	}
	if len(f.Carried) != 4 {
		t.Errorf("%d are kept", len(f.Carried))
	}
	k := f.Knobs[runtime.KnobCPUQuota]
	k.Writing = ""
	f.Knobs[runtime.KnobCPUQuota] = k
	if data, err = originals.Encode(f); err != nil || strings.Contains(string(data), "carried") || len(f.InFlight()) != 3 {
		t.Errorf("%s, %v", data, err)
	}
	if f.Carry(second); !cmp.Equal(f.Carried, []runtime.Values{second}) {
		t.Errorf("of writes that have ended: %v", f.Carried)
	}
}

// TestAChangedOriginalIsNotBelieved: a disk that flips a digit, or a knob's name, makes another limit.
func TestAChangedOriginalIsNotBelieved(t *testing.T) {
	for _, change := range [][2]string{{"40000 100000", "90000 100000"}, {`"1024"`, `"1025"`}, {"memory.limit", "memory.high"}, {"31b8a390", "31b8a391"}} {
		if _, err := originals.Decode([]byte(strings.Replace(summed(), change[0], change[1], 1))); !errors.Is(err, originals.ErrCorrupt) {
			t.Errorf("%q as %q: %v", change[0], change[1], err)
		}
	}
	// An earlier version keeps the sum, and changes all else.
	f, err := originals.Decode([]byte(strings.Replace(summed(), `"written": "2048"`, `"written": "4096"`, 1)))
	if err != nil || f.Knobs[runtime.KnobMemoryLimit].Written != "4096" {
		t.Errorf("%+v, %v", f.Knobs, err)
	}
}

// TestUnknownFieldsStay: a later version's file passes through this one unharmed.
func TestUnknownFieldsStay(t *testing.T) {
	later := strings.NewReplacer(
		`"version": 1`, `"version": 3, "sealed": {"by": "later"}`,
		`"debt": "why"`, `"debt": "why", "since": 77`,
		`"start": 9`, `"start": 9, "namespace": "moby"`,
		`"id": 12`, `"id": 12, "slice": "s"`).Replace(frozen)
	f, err := originals.Decode([]byte(later))
	if err != nil {
		t.Fatal(err)
	}
	k := f.Knobs[runtime.KnobMemoryLimit]
	k.Pending = ""
	f.Knobs[runtime.KnobMemoryLimit] = k
	delete(f.Knobs, runtime.KnobCPUQuota)
	data, err := originals.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"version": 3`, `"by": "later"`, `"since": 77`, `"namespace": "moby"`, `"slice": "s"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is lost in\n%s", want, data)
		}
	}
	if strings.Contains(string(data), "debt") || strings.Contains(string(data), "cpu.quota") {
		t.Errorf("removed fields are back in\n%s", data)
	}
}

func TestCorruptIsSetAside(t *testing.T) {
	for _, content := range []string{"", "{", "null", `{"version":0}`, strings.Replace(frozen, `"container": "a"`, `"container": "z"`, 1),
		strings.Replace(frozen, `"original": "1024"`, `"origin": "1024"`, 1), strings.Replace(frozen, `"a",`, `7,`, 1)} {
		s := newStore(t)
		bad, good := file("a"), file("b")
		if err := errors.Join(s.Save(bad), s.Save(good)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(s.Dir(), bad.ID.Key()+".json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := s.List()
		if len(files) != 1 || files[0].Name != "b" || !errors.Is(err, originals.ErrCorrupt) || !strings.Contains(err.Error(), ".corrupt") {
			t.Fatalf("%q: %d files, %v", content, len(files), err)
		}
		if _, err := s.List(); err != nil {
			t.Errorf("%q: reported again by List: %v", content, err)
		}
		if _, ok, err := s.Load(bad.ID); ok || !errors.Is(err, originals.ErrCorrupt) {
			t.Errorf("%q: a container whose originals are unknown loads as %v, %v", content, ok, err)
		}
		if kept, err := os.ReadFile(path + ".corrupt"); err != nil || string(kept) != content {
			t.Errorf("%q is not kept: %q, %v", content, kept, err)
		}
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	s := newStore(t)
	if err := s.Save(file("a")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), file("a").ID.Key()+".json")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Load(file("a").ID); ok || err == nil {
		t.Error("followed a link")
	}
}

func TestSweep(t *testing.T) {
	s := newStore(t)
	if err := s.Save(file("a")); err != nil {
		t.Fatal(err)
	}
	left := []string{filepath.Join(s.Dir(), ".tmp-1"), filepath.Join(s.Dir(), "x.json.tmp")} // the latter by earlier versions
	for _, temp := range left {
		if err := os.WriteFile(temp, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, temp := range left {
		if _, err := os.Stat(temp); !os.IsNotExist(err) {
			t.Errorf("%s stays", temp)
		}
	}
	if files, err := s.List(); len(files) != 1 || err != nil {
		t.Error(files, err)
	}
}

// TestDiskFull fills a small file system: Save fails by name, and what was saved stays.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("trimtab-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs root, to mount a small file system: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := originals.New(originals.Options{Dir: filepath.Join(dir, "originals")})
	if err := s.Save(file("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 64<<10), 0o600); err == nil {
		t.Fatal("the file system is not full")
	}
	changed := file("a")
	changed.Name = "changed"
	err := s.Save(changed)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), s.Dir()) {
		t.Errorf("got %v", err)
	}
	if got, ok, err := s.Load(file("a").ID); !ok || err != nil || got.Name != "a" {
		t.Errorf("what was saved is %+v, %v, %v", got, ok, err)
	}
	if err := s.Remove(file("a").ID); err != nil {
		t.Errorf("a full disk stands in the way of a restore: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	blocker := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := originals.New(originals.Options{Dir: filepath.Join(blocker, "originals")})
	if err := s.Save(file("a")); err == nil || !strings.Contains(err.Error(), s.Dir()) {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(frozen))
	f.Add([]byte(`{"version":2,"identity":{"engine":"e","container":"c"},"knobs":{"x":{"original":"1","n":null}},"gpus":[],"u":[1]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := originals.Decode(data)
		if err != nil {
			if !errors.Is(err, originals.ErrCorrupt) {
				t.Errorf("an error of another class: %v", err)
			}
			return
		}
		encoded, err := originals.Encode(first)
		if err != nil {
			t.Fatalf("decodes but does not encode: %v", err)
		}
		second, err := originals.Decode(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if diff := cmp.Diff(first, second, known, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestHalfAQuota: quota and period are two files of the kernel; a death between them
// leaves one of each, which is nobody else's.
func TestHalfAQuota(t *testing.T) {
	k := originals.Knob{Original: "40000 100000", Writing: "90000 50000"}
	written := originals.Knob{Original: "40000 100000", Written: "60000 100000", Writing: "90000 50000"}
	settled := originals.Knob{Original: "40000 100000", Written: "90000 50000"}
	for _, tc := range []struct {
		k      originals.Knob
		name   runtime.Knob
		stands runtime.Value
		want   bool
	}{
		{k, runtime.KnobCPUQuota, "40000 50000", true}, {k, runtime.KnobCPUQuota, "90000 100000", true}, {k, runtime.KnobCPUQuota, "90000 50000", true},
		{k, runtime.KnobCPUQuota, "70000 50000", false}, {k, runtime.KnobCPUQuota, "40000 100000", false}, {k, runtime.KnobCPUWeight, "40000 50000", false},
		{written, runtime.KnobCPUQuota, "60000 50000", true}, {written, runtime.KnobCPUQuota, "40000 50000", false},
		{settled, runtime.KnobCPUQuota, "40000 50000", false},
	} {
		if got := tc.k.Ours(tc.name, tc.stands); got != tc.want {
			t.Errorf("%+v: %s %s is ours: %v, want %v", tc.k, tc.name, tc.stands, got, tc.want)
		}
	}
}
