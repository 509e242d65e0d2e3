package fusetest_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/fusetest"
)

func TestMain(m *testing.M) {
	fusetest.Main()
	os.Exit(m.Run())
}

// write writes a file as durable state is written: beside it, synced, renamed, and the
// directory synced.
func write(dir string) error {
	temp := filepath.Join(dir, "temp")
	file, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString("value")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, "file")); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func TestDiskFails(t *testing.T) {
	below, dir := t.TempDir(), t.TempDir()
	disk, err := fusetest.OpenDisk(dir, below)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	const delay = 20 * time.Millisecond
	for _, c := range []struct {
		name  string
		fault fusetest.Fault
		want  error
		least time.Duration
	}{
		{"works", fusetest.Fault{}, nil, 0},
		{"slow", fusetest.Fault{SyncDelay: delay}, nil, 2 * delay}, // a file and its directory
		{"fails", fusetest.Fault{SyncFails: true}, syscall.EIO, 0},
		{"read-only", fusetest.Fault{ReadOnly: true}, syscall.EROFS, 0},
		{"works again", fusetest.Fault{}, nil, 0},
	} {
		if err := disk.Set(c.fault); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := write(dir); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if took := time.Since(began); took < c.least {
			t.Errorf("%s: it took %s, less than %s", c.name, took, c.least)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "value" {
			t.Errorf("%s: read %q, %v", c.name, text, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(below, "file")); err != nil || string(text) != "value" {
		t.Errorf("below: %q, %v", text, err)
	}
}
