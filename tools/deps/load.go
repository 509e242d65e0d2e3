package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is one package of the module or of what it depends on.
type pkg struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string // without tests
	CgoFiles   []string
	Imports    []string // of GoFiles
	Module     *struct {
		Path string
		Main bool
	}

	rel   string      // path below the module; "" for foreign packages
	files []*ast.File // parsed, for packages of the module
}

// ours reports whether the package belongs to the module.
func (p *pkg) ours() bool { return p.Module != nil && p.Module.Main }

// module is everything that ./... builds, with its dependencies.
type module struct {
	path string
	pkgs map[string]*pkg // by import path
	own  []*pkg          // sorted by import path, as go list gives them
	fset *token.FileSet
}

// load reads the module whose root is dir.
func load(ctx context.Context, dir string) (*module, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,CgoFiles,Imports,Module", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // else what needs cgo is not listed; listing needs no compiler
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	m := &module{pkgs: map[string]*pkg{}, fset: token.NewFileSet()}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		p := &pkg{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list's output: %w", err)
		}
		if err := m.add(p); err != nil {
			return nil, err
		}
	}
	if len(m.own) == 0 {
		return nil, fmt.Errorf("%s: no packages", dir)
	}
	return m, nil
}

func (m *module) add(p *pkg) error {
	m.pkgs[p.ImportPath] = p
	if !p.ours() {
		return nil
	}
	m.path = p.Module.Path
	p.rel = strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, m.path), "/")
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		f, err := parser.ParseFile(m.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, f)
	}
	m.own = append(m.own, p)
	return nil
}

// at renders a position with the file's path below the module.
func (m *module) at(p *pkg, pos token.Pos) string {
	at := m.fset.Position(pos)
	return fmt.Sprintf("%s:%d", filepath.Join(p.rel, filepath.Base(at.Filename)), at.Line)
}
