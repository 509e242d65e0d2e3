package durable

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// disk is a file whose writes can be held up, and refused.
type disk struct {
	holds  []int
	writes int
	begun  chan struct{} // nil: writes are not held up
	goOn   chan error
}

func (f *disk) save(v []int) error {
	f.writes++
	if f.begun != nil {
		f.begun <- struct{}{}
		if err := <-f.goOn; err != nil {
			return err
		}
	}
	f.holds = v
	return nil
}

func (f *disk) slow() *disk {
	f.begun, f.goOn = make(chan struct{}), make(chan error)
	return f
}

// add is an edit that may be made twice.
func add(n int) func([]int) []int {
	return func(v []int) []int {
		if slices.Contains(v, n) {
			return v
		}
		return append(slices.Clone(v), n)
	}
}

// While the disk is at work readers answer and edits are in force; in the end the disk has all.
func TestNobodyWaitsForTheDisk(t *testing.T) {
	for name, write := range map[string]func(*Value[[]int]) error{
		"a save":   func(d *Value[[]int]) error { d.Edit(add(1)); return d.Save() },
		"a change": func(d *Value[[]int]) error { return d.Change(add(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := (&disk{}).slow()
				d := New(nil, f.save)
				done := make(chan error)
				go func() { done <- write(d) }()
				<-f.begun
				d.Edit(add(2)) // would not return if it waited
				if got := d.Get(); !slices.Contains(got, 2) || slices.Contains(got, 1) != (name == "a save") {
					t.Errorf("in force while the disk is at work: %v", got)
				}
				f.goOn <- nil
				if err := <-done; err != nil || !slices.Equal(f.holds, []int{1}) {
					t.Errorf("the disk has %v, %v", f.holds, err)
				}
				f.begun = nil
				if err := d.Save(); err != nil || len(f.holds) != 2 || !slices.Equal(f.holds, d.Get()) {
					t.Errorf("the disk has %v, in force is %v; %v", f.holds, d.Get(), err)
				}
			})
		})
	}
}

// What the disk refuses: a change is not in force, an edit is, and the next save tries again.
func TestRefused(t *testing.T) {
	full := errors.New("no space left on device")
	refuse := full
	var holds []int
	d := New([]int{1}, func(v []int) error {
		if refuse == nil {
			holds = v
		}
		return refuse
	})
	if err := d.Change(add(2)); !errors.Is(err, full) || len(d.Get()) != 1 {
		t.Errorf("a change: %v, %v", d.Get(), err)
	}
	d.Edit(add(3))
	if err := d.Save(); !errors.Is(err, full) || len(d.Get()) != 2 {
		t.Errorf("an edit: %v, %v", d.Get(), err)
	}
	if err := d.Change(add(4)); !errors.Is(err, full) || len(d.Get()) != 2 {
		t.Errorf("a change after it: %v, %v", d.Get(), err)
	}
	refuse = nil
	if err := d.Save(); err != nil || !slices.Equal(holds, []int{1, 3}) {
		t.Errorf("the disk has %v, %v", holds, err)
	}
}

// What is as the disk has it is not written again.
func TestUnchangedIsNotWritten(t *testing.T) {
	f := &disk{}
	d := New([]int{1}, f.save)
	d.Edit(add(1))
	if err := errors.Join(d.Save(), d.Change(add(1)), d.Change(add(2)), d.Save(), d.Save()); err != nil || f.writes != 1 {
		t.Errorf("%d writes, want 1; %v", f.writes, err)
	}
}

// What the disk took and then refused, at the sync of its folder say, it may have: the next
// save writes what is in force, though that is what was there before.
func TestTheDiskMayHaveWhatItRefused(t *testing.T) {
	var has []int
	refuse := errors.New("the folder cannot be synced")
	err := refuse
	d := New(nil, func(v []int) error { has = v; return err })
	if got := d.Change(add(1)); !errors.Is(got, refuse) || len(d.Get()) > 0 {
		t.Errorf("%v, in force %v", got, d.Get())
	}
	err = nil
	d.Edit(func(v []int) []int { return v })
	if err := d.Save(); err != nil || len(has) > 0 {
		t.Errorf("%v, on disk %v", err, has)
	}
}
