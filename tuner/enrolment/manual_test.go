package enrolment

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

type memoryStore struct {
	saved []Manual
	saves int
	err   error
}

func (s *memoryStore) Load() ([]Manual, error) { return s.saved, s.err }

func (s *memoryStore) Save(all []Manual) error {
	if s.err == nil {
		s.saved, s.saves = all, s.saves+1
	}
	return s.err
}

func TestManuals(t *testing.T) {
	store := &memoryStore{}
	m, err := OpenManuals(store)
	if err != nil {
		t.Fatal(err)
	}
	a := Manual{Key: "a", Mode: "tune", Knobs: []string{"cpu"}, UntilUnixNs: 100}
	b := Manual{Key: "b", Mode: "observe"}
	for _, r := range []Manual{b, a, a} {
		if err := m.Set(r); err != nil {
			t.Fatal(err)
		}
	}
	if store.saves != 2 {
		t.Errorf("%d saves, want 2: an equal record is no change", store.saves)
	}
	if m.Get("a", Now{UnixNs: 99}) == nil || m.Get("a", Now{UnixNs: 100}) != nil || m.Get("c", Now{}) != nil {
		t.Error("a record is in force until its end, and no other is")
	}
	reopened, err := OpenManuals(store)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&a, reopened.Get("a", Now{})); diff != "" {
		t.Error(diff)
	}
	reopened.Prune(Now{UnixNs: 100}, func(key string) bool { return key == "a" })
	if err := reopened.Save(); err != nil {
		t.Fatal(err)
	}
	if len(store.saved) != 0 || reopened.Get("b", Now{}) != nil {
		t.Errorf("left after pruning: %v", store.saved)
	}
}

// TestAClockThatIsSet neither ends a record nor makes it last; one of an earlier version goes by the wall
// clock.
func TestAClockThatIsSet(t *testing.T) {
	m, err := OpenManuals(&memoryStore{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Manual{{Key: "now", Mode: "tune", UntilUnixNs: 100, UntilBootNs: 10}, {Key: "earlier", Mode: "tune", UntilUnixNs: 100}} {
		if err := m.Set(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		at           Now
		now, earlier bool
	}{
		{Now{99, 9}, true, true},
		{Now{1e9, 9}, true, false}, // set forward
		{Now{50, 10}, false, true}, // set back
		{Now{100, 10}, false, false},
	} {
		if now, earlier := m.Get("now", c.at) != nil, m.Get("earlier", c.at) != nil; now != c.now || earlier != c.earlier {
			t.Errorf("at %+v: %v and %v are in force, want %v and %v", c.at, now, earlier, c.now, c.earlier)
		}
	}
}

func TestManualsThatCannotBeSavedAreNotInForce(t *testing.T) {
	store := &memoryStore{}
	m, err := OpenManuals(store)
	if err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("no space left on device")
	if err := m.Set(Manual{Key: "a", Mode: "tune"}); !errors.Is(err, store.err) {
		t.Errorf("error %v", err)
	}
	if m.Get("a", Now{}) != nil {
		t.Error("in force without being on disk")
	}
	if m, err := OpenManuals(store); err == nil || m.Get("a", Now{}) != nil {
		t.Error("a store that cannot be read must say so and enrol nobody")
	}
}

// blockedStore saves when it is let.
type blockedStore struct {
	memoryStore
	goOn chan struct{}
}

func (s *blockedStore) Save(all []Manual) error {
	<-s.goOn
	return s.memoryStore.Save(all)
}

// Who reads or prunes does not wait while the disk is at work for a person's command.
func TestReadersOfManualsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &blockedStore{goOn: make(chan struct{}), memoryStore: memoryStore{saved: []Manual{{Key: "gone"}}}}
		m, err := OpenManuals(store)
		if err != nil {
			t.Fatal(err)
		}
		set := make(chan error, 1)
		go func() { set <- m.Set(Manual{Key: "a", Mode: "tune"}) }()
		synctest.Wait() // for the disk
		m.Prune(Now{}, func(key string) bool { return key != "gone" })
		if m.Get("a", Now{}) != nil || m.Get("gone", Now{}) != nil || len(set) > 0 {
			t.Error("in force before it is on disk, not pruned, or answered too early")
		}
		close(store.goOn)
		if err := errors.Join(<-set, m.Save()); err != nil || m.Get("a", Now{}) == nil || len(store.saved) != 1 {
			t.Errorf("on disk: %v, %v", store.saved, err)
		}
	})
}

func TestSelect(t *testing.T) {
	all := []runtime.Container{
		{ID: runtime.ID{Container: "abcd1111"}, Name: "one", Image: "reg/a:1", Labels: map[string]string{composeLabel: "lab"}},
		{ID: runtime.ID{Container: "abcd2222"}, Name: "two", Image: "reg/b:1", Labels: map[string]string{composeLabel: "lab"}},
		{ID: runtime.ID{Container: "ffff3333"}, Name: "abcd", Image: "other"},
	}
	for _, tt := range []struct {
		req  state.EnableRequest
		want []string
		err  bool
	}{
		{state.EnableRequest{Name: "one"}, []string{"one"}, false},
		{state.EnableRequest{Name: "abcd"}, []string{"abcd"}, false}, // a name is over an ID prefix
		{state.EnableRequest{Name: "abcd1"}, []string{"one"}, false},
		{state.EnableRequest{Name: "abc"}, nil, true},
		{state.EnableRequest{Name: "none"}, nil, true},
		{state.EnableRequest{Image: "reg/*"}, []string{"one", "two"}, false},
		{state.EnableRequest{Image: "nothing*"}, nil, true},
		{state.EnableRequest{Compose: "lab"}, []string{"one", "two"}, false},
		{state.EnableRequest{}, nil, true},
		{state.EnableRequest{Name: "one", Compose: "lab"}, nil, true},
		{state.EnableRequest{Name: "one", Knobs: []string{"disk"}}, nil, true},
		{state.EnableRequest{Name: "one", ForNs: -1}, nil, true},
	} {
		got, err := Select(tt.req, all)
		var names []string
		for _, c := range got {
			names = append(names, c.Name)
		}
		if (err != nil) != tt.err {
			t.Errorf("%+v: error %v", tt.req, err)
		}
		if diff := cmp.Diff(tt.want, names); diff != "" {
			t.Errorf("%+v: %s", tt.req, diff)
		}
	}
	ambiguous := append(all[:2:2], runtime.Container{ID: runtime.ID{Container: "eeee"}, Name: "three"})
	if _, err := Select(state.EnableRequest{Name: "abcd"}, ambiguous); err == nil {
		t.Error("an ID prefix that fits two was taken")
	}
}

// TestSelectOfOneName: who names a container as another is named is not taken for it, in whatever order
// they are listed; its key still tells it.
func TestSelectOfOneName(t *testing.T) {
	victim := runtime.Container{ID: runtime.ID{Engine: "docker", Container: strings.Repeat("0a", 32), Boot: "60", StartTick: 7}, Name: "train"}
	for what, other := range map[string]runtime.Container{
		"by a label":      {ID: runtime.ID{Engine: "containerd", Container: "x", Boot: "60", StartTick: 8}, Name: "train"},
		"by its ID":       {ID: runtime.ID{Engine: "containerd", Container: "train", Boot: "60", StartTick: 8}, Name: "y"},
		"by the whole":    {ID: runtime.ID{Engine: "containerd", Container: "x", Boot: "60", StartTick: 8}, Name: victim.ID.Container},
		"by its short ID": {ID: runtime.ID{Engine: "containerd", Container: victim.ID.Container[:12], Boot: "60", StartTick: 8}, Name: "y"},
		"by another key":  {ID: runtime.ID{Engine: "containerd", Container: "x", Boot: "60", StartTick: 8}, Name: victim.Key()},
	} {
		for _, all := range [][]runtime.Container{{victim, other}, {other, victim}} {
			for _, name := range []string{"train", victim.ID.Container, victim.ID.Container[:12]} {
				if got, err := Select(state.EnableRequest{Name: name}, all); err == nil && got[0].Key() != victim.Key() {
					t.Errorf("%s: %.8s names %s", what, name, got[0].Key())
				} else if err != nil && !strings.Contains(err.Error(), "by its key") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if got, err := Select(state.EnableRequest{Name: victim.Key()}, all); err != nil || got[0].Key() != victim.Key() {
				t.Errorf("%s: its key names %v, %v", what, got, err)
			}
		}
	}
	longer := runtime.Container{ID: runtime.ID{Engine: "containerd", Container: "resnet50-train-2", Boot: "60", StartTick: 8}, Name: "resnet50-train-2"}
	exact := runtime.Container{ID: runtime.ID{Engine: "containerd", Container: "resnet50-train", Boot: "60", StartTick: 9}, Name: "resnet50-train"}
	if got, err := Select(state.EnableRequest{Name: exact.Name}, []runtime.Container{longer, exact}); err != nil || got[0].Key() != exact.Key() {
		t.Errorf("a name that begins another's: %v, %v", got, err)
	}
}
