package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// program is an executable that was built by go build.
type program struct {
	file string
	info *debug.BuildInfo
}

// module is what a program was linked from: Go's own is stdlib.
type module struct {
	path, version, dir string
	folders            []string // of the linked packages
}

const stdlib = "stdlib"

func readPrograms(files []string) ([]program, error) {
	if len(files) == 0 {
		return nil, errors.New("no program is named")
	}
	var programs []program
	for _, file := range files {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		programs = append(programs, program{file, info})
	}
	return programs, nil
}

// linked are the modules of all programs and where their source lies, by path.
func linked(ctx context.Context, root string, programs []program) ([]module, error) {
	goroot, err := goSays(ctx, root, nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	found := map[string]module{stdlib: {path: stdlib, version: programs[0].info.GoVersion, dir: strings.TrimSpace(string(goroot))}}
	for _, p := range programs {
		if err := addPackages(ctx, root, p, found); err != nil {
			return nil, fmt.Errorf("%s: %w", p.file, err)
		}
		for _, d := range p.info.Deps {
			if d.Replace != nil {
				return nil, fmt.Errorf("%s: %s is replaced by %s, which would go by the wrong name", p.file, d.Path, d.Replace.Path)
			}
			if m := found[d.Path]; m.version != d.Version {
				return nil, fmt.Errorf("%s: %s %s is linked, but go list finds %q here: build it anew", p.file, d.Path, d.Version, m.version)
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b module) int { return strings.Compare(a.path, b.path) }), nil
}

// addPackages lists a program's packages, for the machine and with the tags that it was built for.
func addPackages(ctx context.Context, root string, p program, found map[string]module) error {
	var env []string
	args := []string{"list", "-deps", "-json=Dir,Module"}
	for _, s := range p.info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED":
			env = append(env, s.Key+"="+s.Value)
		case "-tags":
			args = append(args, "-tags="+s.Value)
		}
	}
	out, err := goSays(ctx, root, env, append(args, p.info.Path)...)
	if err != nil {
		return err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list's output: %w", err)
		}
		if pkg.Module == nil || pkg.Module.Main {
			continue
		}
		m := found[pkg.Module.Path]
		m.path, m.version, m.dir = pkg.Module.Path, pkg.Module.Version, pkg.Module.Dir
		folder, err := filepath.Rel(m.dir, pkg.Dir)
		if err != nil {
			return err
		}
		if !slices.Contains(m.folders, folder) {
			m.folders = append(m.folders, folder)
		}
		found[m.path] = m
	}
}

func goSays(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
