package disk

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/statefile"
)

const day = 24 * 3600 * int64(1e9)

func open(t *testing.T) (*statefile.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// filled is a Store of two jobs.
func filled() *profiles.Store {
	b := profiles.NewStore()
	for i, unit := range []string{"torch.backward", "graph launches"} {
		c := policies.Cost{TrainerCPU: 0.02, LoaderCPU: 0.05, Device: 0.05, Batch: 0.05, Loaders: 2, Ticks: 50}
		p := profiles.Print{Unit: unit, Image: "train:1", Steps: 50}.With(profiles.TrainerCPU, c.TrainerCPU).With(profiles.LoaderCPU, c.LoaderCPU).
			With(profiles.DeviceWait, c.Device).With(profiles.Loaders, 2).With(profiles.Ranks, 1)
		b.Update(0, profiles.Measurement{Name: unit, UnixNs: day + int64(i), Print: p, Cost: c})
	}
	return b
}

func asides(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.corrupt-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestEmptyIsNormal(t *testing.T) {
	s, dir := open(t)
	b, err := Load(s, day)
	if err != nil || b.Len() != 0 || len(asides(t, dir)) != 0 {
		t.Errorf("%d known, %v", b.Len(), err)
	}
}

func TestRoundTrip(t *testing.T) {
	s, _ := open(t)
	want := filled().All()
	if err := Save(s, want); err != nil {
		t.Fatal(err)
	}
	b, err := Load(s, 2*day)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(want)
	y, _ := json.Marshal(b.All())
	if string(x) != string(y) {
		t.Errorf("saved %s\nloaded %s", x, y)
	}
}

// TestBadFilesAreSetAside: none of them stops anything; each is told of once, and
// what is learned next is kept.
func TestBadFilesAreSetAside(t *testing.T) {
	for name, text := range map[string]string{
		"corrupt":                   `{"format":"trimtab-state","version":1,"topic":"finger`,
		"another program's":         `[1,2,3]`,
		"a newer envelope":          `{"format":"trimtab-state","version":9,"topic":"fingerprints","data":{}}`,
		"another version's content": `{"format":"trimtab-state","version":1,"topic":"fingerprints","data":{"version":7,"known":[]}}`,
		"nothing but poison":        `{"format":"trimtab-state","version":1,"topic":"fingerprints","data":{"version":1,"known":[{"id":1,"jobs":-4},"x",{"id":2,"print":{"unit":"u","values":{"vram":-1e999}}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			if err := os.WriteFile(filepath.Join(dir, topic+".json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := Load(s, day)
			if err == nil || b == nil || b.Len() != 0 {
				t.Fatalf("%v, %v: want an empty book and word of it", b, err)
			}
			if got := asides(t, dir); len(got) != 1 || !strings.Contains(err.Error(), got[0]) {
				t.Errorf("set aside %v; told %v", got, err)
			}
			if err := Save(s, filled().All()); err != nil {
				t.Errorf("what is learned next: %v", err)
			}
			if again, err := Load(s, 2*day); err != nil || again.Len() != 2 {
				t.Errorf("the next start: %d known, %v", again.Len(), err)
			}
		})
	}
}

// TestOneBrokenEntryCostsItself: the others are known on.
func TestOneBrokenEntryCostsItself(t *testing.T) {
	s, dir := open(t)
	if err := Save(s, filled().All()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, topic+".json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	poisoned := strings.Replace(string(text), `"correction": 1`, `"correction": 900`, 1)
	if poisoned == string(text) {
		t.Fatal("nothing was poisoned")
	}
	if err := os.WriteFile(path, []byte(poisoned), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Load(s, 2*day)
	if b.Len() != 1 || err == nil || !strings.Contains(err.Error(), "correction") {
		t.Errorf("%d known, %v", b.Len(), err)
	}
}

// TestFullDiskKeepsWhatWas: a directory that takes no file stands for a full disk.
func TestFullDiskKeepsWhatWas(t *testing.T) {
	s, dir := open(t)
	if err := Save(s, filled().All()[:1]); err != nil {
		t.Fatal(err)
	}
	gone := dir + "-away"
	if err := os.Rename(dir, gone); err != nil {
		t.Fatal(err)
	}
	if err := Save(s, filled().All()); err == nil {
		t.Error("saved without a place")
	}
	if err := os.Rename(gone, dir); err != nil {
		t.Fatal(err)
	}
	if b, err := Load(s, 2*day); err != nil || b.Len() != 1 {
		t.Errorf("%d known, %v: want what was saved before", b.Len(), err)
	}
}

func TestTooManyEntries(t *testing.T) {
	raw := []json.RawMessage{}
	for range 5 * profiles.MaxKnown {
		raw = append(raw, json.RawMessage(`{}`))
	}
	b, err := decode(raw, day)
	if b.Len() != 0 || err == nil || len(err.Error()) > 2000 {
		t.Errorf("%d known; told %d bytes", b.Len(), len(err.Error()))
	}
}

func TestVersionIsSaid(t *testing.T) {
	s, dir := open(t)
	if err := s.PutState(topic, content{Version: version + 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(s, day); !errors.Is(err, ErrVersion) || len(asides(t, dir)) != 1 {
		t.Errorf("%v", err)
	}
}

// TestDamagedRest: what stands before the fault is known on, and the versions that know nothing of
// the rest read what stands outside of it.
func TestDamagedRest(t *testing.T) {
	s, _ := open(t)
	if err := Save(s, most(true)[:2*maxPlain]); err != nil {
		t.Fatal(err)
	}
	var c content
	if err := s.GetState(topic, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Known) != maxPlain {
		t.Errorf("%d stand outside, want %d", len(c.Known), maxPlain)
	}
	c.More = c.More[:len(c.More)/2]
	if err := s.PutState(topic, c); err != nil {
		t.Fatal(err)
	}
	b, err := Load(s, 2*day)
	if b.Len() < maxPlain || b.Len() >= 2*maxPlain || err == nil {
		t.Errorf("%d known, %v", b.Len(), err)
	}
}
