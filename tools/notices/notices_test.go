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

// TestHeads: a C header's notice goes along, without what else its comments say, and only of folders that
// are linked.
func TestHeads(t *testing.T) {
	dir := folder(t, "LICENSE", "a/plain.h", "b/other.h")
	for name, text := range map[string]string{
		"a/made.h":  "/*** VERSION ***/\r\n/*\r\n * Copyright of somebody.\r\n */\n\n/*\nManual\n*/\nint f();\n/* Copyright of the code */\n",
		"a/later.h": "int g();\n/* Copyright of the code */\n",
		"b/other.h": "/* Copyright of what is not linked */\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := notices([]module{{path: "example.com/m", version: "v1.0.0", folders: []string{"a"}, dir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	want := intro + "\n" + strings.Repeat("=", 80) + "\nexample.com/m v1.0.0\n\n---- LICENSE\n\ntext of LICENSE\n" +
		"\n---- a/made.h\n\n/*\n * Copyright of somebody.\n */\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// TestHeadersThatWeCompile: NVIDIA's, from which the bindings of trimtab-nvml are made, and libbpf's.
func TestHeadersThatWeCompile(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := notices([]module{{path: "github.com/NVIDIA/go-nvml", dir: strings.TrimSpace(string(out)), folders: []string{"pkg/nvml"}}, {path: libbpf, dir: "../../bpf"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"---- pkg/nvml/nvml.h\n", "NVIDIA DISCLAIMS ALL WARRANTIES", "U.S. Government End Users.", "---- LICENSE.libbpf\n", "Alexei Starovoitov",
		"2. Redistributions in binary form must reproduce"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("not in it: %s", want)
		}
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
