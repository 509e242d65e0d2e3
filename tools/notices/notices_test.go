package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shipped builds trimtab with the flags of the packages.
func shipped(t *testing.T) []program {
	t.Helper()
	if testing.Short() {
		t.Skip("links trimtab: run without -short")
	}
	file := filepath.Join(t.TempDir(), "trimtab")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "../../cmd/trimtab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	programs, err := readPrograms([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

// folder makes a module's folder with files that hold their own names.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("text of "+name+"\r\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLegalFiles: what holds for the linked packages, and nothing else.
func TestLegalFiles(t *testing.T) {
	m := module{path: "example.com/m", version: "v1.0.0", folders: []string{".", "a/b"}, dir: folder(t, "LICENSE.md", "NOTICE", "README", "license.go", "notices.go",
		"THIRD_PARTY_LICENSES/Sun-LICENSE", "a/LICENSE.txt", "a/b/COPYING", "a/b/check_license.sh", "c/LICENSE")}
	got, err := notices([]module{m})
	if err != nil {
		t.Fatal(err)
	}
	want := intro + "\n" + strings.Repeat("=", 80) + "\nexample.com/m v1.0.0\n"
	for _, name := range []string{"LICENSE.md", "NOTICE", "THIRD_PARTY_LICENSES/Sun-LICENSE", "a/LICENSE.txt", "a/b/COPYING"} {
		want += "\n---- " + name + "\n\ntext of " + name + "\n"
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// TestNoLicence: each module without one is named; a notice is none, nor is a licence further down.
func TestNoLicence(t *testing.T) {
	_, err := notices([]module{
		{path: "example.com/bare", version: "v1.0.0", dir: folder(t, "README", "license.go")},
		{path: "example.com/good", version: "v1.0.0", dir: folder(t, "COPYING")},
		{path: "example.com/notice", version: "v2.0.0", dir: folder(t, "NOTICE", "a/LICENSE"), folders: []string{"a"}},
	})
	if err == nil || !strings.Contains(err.Error(), "example.com/bare v1.0.0 has no licence file") ||
		!strings.Contains(err.Error(), "example.com/notice v2.0.0 has no licence file") || strings.Contains(err.Error(), "good") {
		t.Errorf("said: %v", err)
	}
}

// TestShipped builds once and looks at all that is said of it.
func TestShipped(t *testing.T) {
	programs := shipped(t)
	t.Run("notices", func(t *testing.T) { everyModuleIsIn(t, programs) })
	t.Run("sbom", func(t *testing.T) { sbomOf(t, programs) })
}

// everyModuleIsIn: by name, version and text, and the same bytes twice.
func everyModuleIsIn(t *testing.T, programs []program) {
	render := func() []byte {
		t.Helper()
		modules, err := linked(t.Context(), "../..", programs)
		if err != nil {
			t.Fatal(err)
		}
		text, err := notices(modules)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := render()
	if len(programs[0].info.Deps) < 30 {
		t.Errorf("only %d modules are linked", len(programs[0].info.Deps))
	}
	want := []string{"stdlib " + programs[0].info.GoVersion, "Copyright 2009 The Go Authors.", "Copyright (c) 2011 The Snappy-Go Authors", "---- THIRD_PARTY_LICENSES/Cephes-LICENSE"}
	for _, d := range programs[0].info.Deps {
		want = append(want, strings.Repeat("=", 80)+"\n"+d.Path+" "+d.Version+"\n\n---- ")
	}
	for _, s := range want {
		if !strings.Contains(string(text), s) {
			t.Errorf("not in it: %s", s)
		}
	}
	if !bytes.Equal(text, render()) {
		t.Error("a second run wrote other bytes")
	}
}

// TestOtherVersion: a program that was built before go.mod changed, or from a module by
// another name, is refused.
func TestOtherVersion(t *testing.T) {
	of := func(d *debug.Module) []program {
		info := &debug.BuildInfo{Path: "github.com/trimtab/trimtab/tools/prose", Deps: []*debug.Module{d}}
		return []program{{file: "p", info: info}}
	}
	for want, d := range map[string]*debug.Module{
		"build it anew":      {Path: "github.com/google/go-cmp", Version: "v0.0.1"},
		"is replaced by ./x": {Path: "github.com/google/go-cmp", Version: "v0.7.0", Replace: &debug.Module{Path: "./x"}},
	} {
		if _, err := linked(t.Context(), "../..", of(d)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("said: %v, want: %s", err, want)
		}
	}
}

// TestMachineAndTags: what another machine or a tag links is listed for it.
func TestMachineAndTags(t *testing.T) {
	info := &debug.BuildInfo{Path: "github.com/trimtab/trimtab/cmd/trimtab", Settings: []debug.BuildSetting{
		{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}, {Key: "CGO_ENABLED", Value: "0"}, {Key: "-tags", Value: "man"}}}
	modules, err := linked(t.Context(), "../..", []program{{"p", info}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(modules, func(m module) bool { return m.path == "github.com/cpuguy83/go-md2man/v2" }) {
		t.Error("what the tag man links is not listed")
	}
}
