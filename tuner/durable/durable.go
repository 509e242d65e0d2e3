// Package durable keeps a value in memory and on disk, so that who reads it never waits
// for the disk, and who changes it says which of the two comes first. The file itself is
// the caller's.
package durable

import (
	"reflect"
	"sync"
)

// Value is a value and its file. Its methods may be called concurrently. What is in it is
// replaced, never changed in place: Get gives it out as it is, and edits return another.
type Value[T any] struct {
	save func(T) error
	file sync.Mutex // held while save runs; taken before mu
	mu   sync.Mutex // held for moments: readers never wait for the disk
	v    T
	// unsaved: v may be ahead of the disk.
	unsaved bool
}

// New begins with what the disk holds. save must be durable when it returns.
func New[T any](v T, save func(T) error) *Value[T] { return &Value[T]{v: v, save: save} }

// Get returns what is in force.
func (d *Value[T]) Get() T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.v
}

// Change saves first: what is in force is not ahead of the disk, and on an error it has not
// changed. The edit is made again on what Edit has changed while the disk was at work.
func (d *Value[T]) Change(edit func(T) T) error {
	d.file.Lock()
	defer d.file.Unlock()
	d.mu.Lock()
	next := edit(d.v)
	same := !d.unsaved && reflect.DeepEqual(next, d.v)
	d.unsaved = false
	d.mu.Unlock()
	if same {
		return nil
	}
	err := d.save(next)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.unsaved = true // the file may hold either
		return err
	}
	d.v = edit(d.v)
	return nil
}

// Edit is in force at once, and durable after the next Save. It never waits for the disk.
func (d *Value[T]) Edit(edit func(T) T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := edit(d.v)
	d.unsaved = d.unsaved || !reflect.DeepEqual(next, d.v)
	d.v = next
}

// Save makes durable what is in force, if it is not. After an error the next one tries again.
func (d *Value[T]) Save() error {
	d.file.Lock()
	defer d.file.Unlock()
	d.mu.Lock()
	v, unsaved := d.v, d.unsaved
	d.unsaved = false
	d.mu.Unlock()
	if !unsaved {
		return nil
	}
	err := d.save(v)
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.unsaved = true
	}
	return err
}
