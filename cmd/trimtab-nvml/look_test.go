//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/test/fusetest"
)

func TestMain(m *testing.M) {
	lookFor(os.Args)
	fusetest.Main()
	os.Exit(m.Run())
}

// silentDisk is a file system at dir that does not answer, until the test ends.
func silentDisk(t *testing.T, dir string) *fusetest.Disk {
	t.Helper()
	disk, err := fusetest.OpenDisk(dir, t.TempDir())
	if err != nil {
		t.Skip(err) // it says that FUSE is missing
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := disk.Set(fusetest.Fault{Silent: true}); err != nil {
		t.Fatal(err)
	}
	return disk
}

// A folder of the loader's that does not answer is left out, and told; the library is found in another.
func TestFolderThatDoesNotAnswer(t *testing.T) {
	first, last, hung := t.TempDir(), t.TempDir(), t.TempDir()
	silentDisk(t, hung)
	library := filepath.Join(last, "libtrimtab-none.so.1")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(wire.LibraryPath, strings.Join([]string{first, hung, last}, ":"))
	type answer struct {
		found
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		f, err := lookAll(filepath.Base(library), nil, time.Second, io.Discard)
		if err == nil {
			openable(f)
		}
		answers <- answer{f, err}
	}()
	select {
	case got := <-answers:
		if got.err != nil || !slices.Equal(got.silent, []string{hung}) || !slices.Equal(got.files, []string{library}) {
			t.Errorf("found is %+v, %v", got.found, got.err)
		}
		if slices.Contains(got.folders, hung) || !slices.Contains(got.folders, first) || !slices.Contains(got.folders, last) {
			t.Errorf("folders %q", got.folders)
		}
		if diff := cmp.Diff([]string{"A=b", wire.LibraryPath + "=" + first + ":" + last}, wire.WithoutSilent([]string{"A=b", wire.LibraryPath + "=" + os.Getenv(wire.LibraryPath)}, got.silent)); diff != "" {
			t.Error(diff)
		}
	case <-time.After(time.Minute):
		t.Error("nothing is found while one folder does not answer")
	}
}

// More than may be waited for are an error that names them. Who hangs there is told, and can be told from
// another that is given the PID later.
func TestFoldersThatDoNotAnswer(t *testing.T) {
	disk := silentDisk(t, t.TempDir())
	var hung []string
	for _, name := range strings.Fields("a b c d e f") {
		hung = append(hung, filepath.Join(disk.Dir, name))
	}
	t.Setenv(wire.LibraryPath, strings.Join(hung, ":"))
	var told bytes.Buffer
	if f, err := lookAll("libtrimtab-none.so.1", nil, time.Second/2, &told); err == nil || !slices.Equal(f.silent, hung[:maxSilent+1]) || !strings.Contains(err.Error(), hung[maxSilent]) {
		t.Errorf("found is %+v, %v", f, err)
	}
	var left []string
	for lines := wire.NewLines(&told); lines.Scan(); {
		var a wire.Answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil || a.Left == nil {
			t.Fatalf("told is %q, %v", lines.Text(), err)
		}
		left = append(left, a.Left.At)
		if s, err := procfs.ReadStat("/proc", a.Left.PID); err != nil || s.Ended || s.StartTick != a.Left.StartTick {
			t.Errorf("%+v hangs, but is %+v, %v", *a.Left, s, err)
		}
	}
	if !slices.Equal(left, hung[:maxSilent+1]) {
		t.Errorf("left behind at %q", left)
	}
	// The next child is told of these: it touches none, leaves nobody there, and finds what else hangs.
	known := knownSilent([]string{"trimtab-nvml", wire.SilentFlag + left[0], wire.SilentFlag + left[1], wire.SilentFlag + left[2], wire.SilentFlag + left[3], wire.LibraryFlag + "x"})
	told.Reset()
	f, err := lookAll("libtrimtab-none.so.1", known, time.Second/2, &told)
	if err != nil || !slices.Equal(f.silent, hung) || strings.Count(told.String(), "\n") != len(hung)-len(left) {
		t.Errorf("of those that are left alone: found is %+v, %v, and told %q", f, err, told.String())
	}
	for _, dir := range known {
		if strings.Contains(told.String(), dir+`"`) {
			t.Errorf("%s was touched: %q", dir, told.String())
		}
	}
}
