package main

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// check returns all findings, sorted, each naming a place and the fix.
func (m *module) check(r rules) []string {
	found := map[string]bool{} // one place may be reached on several ways
	add := func(format string, args ...any) { found[fmt.Sprintf(format, args...)] = true }
	for _, p := range m.own {
		m.checkDirection(r, p, add)
		if !matches(p.rel, r.stateExempt) {
			m.checkState(p, add)
		}
	}
	m.checkSizes(r.sizes, add)
	for _, p := range m.own {
		if matches(p.rel, r.pure) {
			m.walk(p, func(q *pkg, chain string) bool {
				if q.ours() {
					m.checkPure(r, q, chain, add)
				}
				return q.ours()
			})
		}
		if matches(p.rel, r.shipped) {
			m.walk(p, func(q *pkg, chain string) bool {
				if slices.Contains(q.Imports, "testing") && !q.Standard {
					add("%s imports testing and is shipped (%s): move it to a _test.go file or to test/", q.ImportPath, chain)
				}
				return !q.Standard
			})
		}
	}
	return slices.Sorted(maps.Keys(found))
}

type addFunc func(format string, args ...any)

// checkDirection holds a package to its layer.
func (m *module) checkDirection(r rules, p *pkg, add addFunc) {
	if known, _ := r.allows(p.rel, ""); !known {
		add("%s: no layer in tools/deps/rules.go says what it may import", p.rel)
		return
	}
	for _, imp := range p.Imports {
		q := m.pkgs[imp]
		if q == nil || !q.ours() {
			continue
		}
		if _, ok := r.allows(p.rel, q.rel); !ok {
			add("%s imports %s: imports point cmd → tuner → policies, probes, runtime; implementations are for cmd alone", p.rel, q.rel)
		}
	}
}

// walk visits a package and what it imports, each once, breadth first, with the
// shortest chain of imports that leads there; it goes on below where visit says so.
func (m *module) walk(from *pkg, visit func(p *pkg, chain string) bool) {
	type step struct {
		p     *pkg
		chain string
	}
	seen := map[string]bool{from.ImportPath: true}
	for queue := []step{{from, m.label(from)}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if !visit(at.p, at.chain) {
			continue
		}
		for _, imp := range at.p.Imports {
			if q := m.pkgs[imp]; q != nil && !seen[imp] {
				seen[imp] = true
				queue = append(queue, step{q, at.chain + " → " + m.label(q)})
			}
		}
	}
}

func (m *module) label(p *pkg) string {
	if p.ours() && p.rel != "" {
		return p.rel
	}
	return p.ImportPath
}

// checkPure holds one package to the deny list.
func (m *module) checkPure(r rules, p *pkg, chain string, add addFunc) {
	for _, f := range p.files {
		named := map[string]string{} // name in this file → import path, where names are restricted
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			if reason, denied := r.denied(imp); denied {
				add("%s: pure code (%s) imports %s: %s", m.at(p, spec.Pos()), chain, imp, reason)
			}
			if r.denyNames[imp] == nil && r.onlyNames[imp] == nil {
				continue
			}
			name := importName(spec, imp)
			if name == "." {
				add("%s: pure code (%s) dot-imports %s: name it, so that its use can be checked", m.at(p, spec.Pos()), chain, imp)
			}
			named[name] = imp
		}
		m.checkNames(r, p, f, named, chain, add)
	}
}

// checkNames finds forbidden names; a mention counts, for a function value can be called later.
func (m *module) checkNames(r rules, p *pkg, f *ast.File, named map[string]string, chain string, add addFunc) {
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		imp, ok := named[x.Name]
		if !ok {
			return true
		}
		only := r.onlyNames[imp]
		if slices.Contains(r.denyNames[imp], sel.Sel.Name) || (only != nil && !slices.Contains(only, sel.Sel.Name)) {
			add("%s: pure code (%s) uses %s.%s: take it as an argument", m.at(p, sel.Pos()), chain, imp, sel.Sel.Name)
		}
		return true
	})
}

// importName is the name by which a file mentions an import.
func importName(spec *ast.ImportSpec, imp string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	base := path.Base(imp)
	if strings.HasPrefix(base, "v") && len(base) == 2 { // math/rand/v2 is "rand"
		base = path.Base(path.Dir(imp))
	}
	return base
}
