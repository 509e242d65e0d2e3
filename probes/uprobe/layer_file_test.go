package uprobe

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// image is a directory of files as a pulled layer has them: modified long before they were unpacked.
func image(t testing.TB, files int) (lower string) {
	t.Helper()
	lower = t.TempDir()
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		path := filepath.Join(lower, fmt.Sprintf("lib%d.so", i))
		if err := os.WriteFile(path, text[:min(len(text), 256<<10)], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
	}
	return lower
}

// root mounts a layer as a new container's root.
func root(t testing.TB, lower string) (merged string, unmount func()) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	merged = filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work"))
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Skipf("needs overlayfs on the file system of temporary files: %v", err)
	}
	return merged, func() { _ = unix.Unmount(merged, unix.MNT_DETACH) }
}

// What an image's file holds is known in its second container, and not in one where it was changed,
// where the container may have mounted the overlay, or where its times are its builder's.
func TestLayersAreKnown(t *testing.T) {
	uprobetest.NeedsRoot(t)
	lower, tries := image(t, 1), 0
	s := newFiles()
	find := func(symbols.File, symbols.Want, time.Duration) ([]symbols.Symbol, error) {
		tries++
		return []symbols.Symbol{{Name: "cuA", Offset: uint64(tries)}}, nil
	}
	in := interest{wanted: func(string) bool { return true }}
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, path string)
		own    bool // the container's overlay
		tries  int
	}{
		{"the first", nil, false, 1},
		{"the second", nil, false, 1},
		{"written to", func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{1}, 9); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			var was, now unix.Stat_t
			err = unix.Stat(filepath.Join(lower, "lib0.so"), &was)
			for now = was; err == nil && now.Ctim == was.Ctim; { // file systems' clocks tick 100 to 1,000 times a second
				_ = os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0))
				err = unix.Stat(path, &now)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, false, 2},
		{"an overlay of its own", nil, true, 3},
		{"the third", nil, false, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			merged, unmount := root(t, lower)
			defer unmount()
			path := filepath.Join(merged, "lib0.so")
			if tc.change != nil {
				tc.change(t, path)
			}
			for range 2 {
				h := handleOf(t, path)
				k, err := s.lookInto(h, func(uint64) bool { return !tc.own }, in, find)
				if err != nil || len(k.symbols) != 1 || k.stamp != h.stamp || tries != tc.tries {
					t.Errorf("%+v, %v, read %d times, want %d", k, err, tries, tc.tries)
				}
				_ = unix.Close(h.fd)
			}
		})
	}
	// A container that changes its file while it is looked into tells only of itself.
	s = newFiles()
	merged, unmount := root(t, lower)
	defer unmount()
	path := filepath.Join(merged, "lib0.so")
	look := func(find finds) uint64 {
		h := handleOf(t, path)
		k, err := s.lookInto(h, func(uint64) bool { return true }, in, find)
		if err != nil || len(k.symbols) != 1 {
			t.Fatalf("%+v, %v", k, err)
		}
		return k.symbols[0].Offset
	}
	look(func(f symbols.File, w symbols.Want, d time.Duration) ([]symbols.Symbol, error) {
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		return []symbols.Symbol{{Name: "cuA", Offset: 666}}, nil
	})
	merged, unmountNext := root(t, lower)
	defer unmountNext()
	path = filepath.Join(merged, "lib0.so")
	if at := look(find); at == 666 {
		t.Error("what a container wrote is believed of the others of its image")
	}
	h := handle{key: fileKey{dev: 7, ino: 8}, stamp: stamp{size: 9, changedNs: 10}, modifiedNs: 10, system: unix.OVERLAYFS_SUPER_MAGIC}
	if h.layer(func(uint64) bool { return true }) != nil {
		t.Error("times that a builder gave tell a file")
	}
	h.modifiedNs--
	if h.layer(func(dev uint64) bool { return dev == 7 }) == nil {
		t.Error("times that a system gave tell none")
	}
	if h.system = unix.EXT4_SUPER_MAGIC; h.layer(func(uint64) bool { return true }) != nil {
		t.Error("a file outside of overlays is one")
	}
}

// BenchmarkLook is what a process costs that maps 200 libraries of an image: in its first container, in
// the next one, and when its size has changed.
func BenchmarkLook(b *testing.B) {
	uprobetest.NeedsRoot(b)
	const libraries = 200
	lower := image(b, libraries)
	f := NewFinder()
	defer f.Close()
	f.interest.wanted = func(string) bool { return false }
	look := func(b *testing.B, again bool) {
		merged, unmount := root(b, lower)
		defer unmount()
		for i := range libraries {
			unmap := mapFile(b, filepath.Join(merged, fmt.Sprintf("lib%d.so", i)))
			defer unmap()
		}
		p := &process{pid: int32(os.Getpid())}
		if again {
			f.newLook(p).run()
		}
		b.StartTimer()
		l := f.newLook(p)
		l.run()
		b.StopTimer()
		if l.err != nil || len(l.mapped) < libraries {
			b.Fatalf("%d files seen, %v", len(l.mapped), l.err)
		}
	}
	for _, bench := range []struct {
		name          string
		forget, again bool
	}{{"first-container", true, false}, {"next-container", false, false}, {"again", false, true}} {
		b.Run(bench.name, func(b *testing.B) {
			b.StopTimer()
			for range b.N {
				if bench.forget {
					f.files.forget()
				}
				look(b, bench.again)
			}
		})
	}
}

func mapFile(b *testing.B, path string) (unmap func()) {
	b.Helper()
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	text, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	return func() { _ = unix.Munmap(text) }
}
