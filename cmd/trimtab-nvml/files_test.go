//go:build cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// ldconfig's folders, with files that include others, and themselves.
func TestConfFolders(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ld.so.conf":  "# a remark\n/opt/a /opt/b:/opt/c # another\nhwcap 0 nosegneg\n\ninclude more/*.conf\n/opt/d=libc6\n",
		"more/1.conf": fmt.Sprintf("/opt/e\ninclude %s/ld.so.conf.gone\n", dir), "more/2.conf": "/opt/f",
		"loop.conf": "/opt/g\ninclude loop.conf\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/opt/a", "/opt/b", "/opt/c", "/opt/e", "/opt/f", "/opt/d"}
	if diff := cmp.Diff(want, confFolders(filepath.Join(dir, "ld.so.conf"), maxIncludes, all)); diff != "" {
		t.Error(diff)
	}
	if got := confFolders(filepath.Join(dir, "loop.conf"), maxIncludes, all); len(got) != maxIncludes {
		t.Errorf("a file that includes itself is read %d times, want %d", len(got), maxIncludes)
	}
}

// LD_LIBRARY_PATH opens the folders that it names, and never the whole host or one that moves with the process.
func TestLibraryFolders(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	if err := os.Symlink("/", whole); err != nil {
		t.Fatal(err)
	}
	var touched []string
	got := libraryFolders(dir+":/:.:"+whole+":/nonexistent;/;/etc/passwd", func(path string) bool { touched = append(touched, path); return true })
	if !slices.Contains(got, dir) {
		t.Errorf("%s is not among %q", dir, got)
	}
	for _, no := range []string{"/", ".", whole, "/nonexistent", "/etc/passwd"} {
		if slices.Contains(got, no) {
			t.Errorf("%s is among %q", no, got)
		}
	}
	for _, store := range []string{"/nix/store", "/gnu/store", "/run/opengl-driver/lib"} {
		if _, err := os.Stat(store); !slices.Contains(touched, store) || (err == nil) != slices.Contains(got, store) {
			t.Errorf("%s: looked at are %q, %q are there", store, touched, got)
		}
	}
	if got := libraryFolders(dir, func(string) bool { return false }); len(got) > 0 {
		t.Errorf("touched are %q, and none may be", got)
	}
}

// all may be touched.
func all(string) bool { return true }

// What the program itself is made of is found where it is.
func TestMappedFiles(t *testing.T) {
	files, err := mappedFiles()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(files, self) || !slices.ContainsFunc(files, func(f string) bool { return filepath.Base(f) == "libc.so.6" }) {
		t.Errorf("%q", files)
	}
}

func TestNoLandlock(t *testing.T) {
	for err, want := range map[error]string{
		unix.ENOSYS: "this kernel has no Landlock (Linux 5.13 or later may have it)", unix.EOPNOTSUPP: "Landlock is not switched on in this kernel (its parameter lsm=)",
		unix.EPERM: "a filter of system calls refuses Landlock (the service's SystemCallFilter=)", unix.EIO: "Landlock does not answer: input/output error",
	} {
		if got := noLandlock(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// Under the rules a failure that they may have made names them; what is normal is so only where they did not.
func TestBlame(t *testing.T) {
	const driver = "the driver is not loaded"
	for name, c := range map[string]struct {
		failure wire.Failure
		open    error
		want    string
		normal  bool
	}{
		"no driver":            {wire.Failure{Why: driver, Normal: true}, unix.ENOENT, driver, true},
		"a node that is kept":  {wire.Failure{Why: driver, Normal: true}, unix.EACCES, driver + "; the child may not open /dev/nvidiactl: Landlock", false},
		"a file that is kept?": {wire.Failure{Why: "error 999"}, nil, "error 999; the child opens only files that docs/security.md lists (Landlock)", false},
	} {
		if got := blamed(&c.failure, c.open); !strings.HasPrefix(got.Why, c.want) || got.Normal != c.normal {
			t.Errorf("%s: %+v", name, *got)
		}
	}
	if got := (fileRules{}).blame(&wire.Failure{Why: "error 999"}); got.Why != "error 999" {
		t.Errorf("without rules: %+v", *got)
	}
	if got := (fileRules{silent: []string{"/mnt/a", "/mnt/b"}}).blame(&wire.Failure{Why: "error 999", Normal: true}); !strings.HasSuffix(got.Why, "does not answer: /mnt/a, /mnt/b") || !got.Normal {
		t.Errorf("with folders that are left out: %+v", *got)
	}
}
