package main

import "go/ast"

// sizes bound what one reader must hold in mind.
type sizes struct {
	packages                 []string
	lines                    int // of all of them together, without tests
	linesOfFunc, fieldsOfOne int
}

// checkSizes holds packages to their sizes.
func (m *module) checkSizes(s sizes, add addFunc) {
	lines := 0
	for _, p := range m.own {
		if !matches(p.rel, s.packages) {
			continue
		}
		for _, f := range p.files {
			lines += m.fset.File(f.FileStart).LineCount() - 1
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if long := m.fset.Position(n.End()).Line - m.fset.Position(n.Pos()).Line + 1; long > s.linesOfFunc {
						add("%s: %s has %d lines, of %d at the most: part it", m.at(p, n.Pos()), n.Name.Name, long, s.linesOfFunc)
					}
				case *ast.StructType:
					if fields := n.Fields.NumFields(); fields > s.fieldsOfOne {
						add("%s: a struct of %d fields, of %d at the most: part it", m.at(p, n.Pos()), fields, s.fieldsOfOne)
					}
				}
				return true
			})
		}
	}
	if lines > s.lines {
		add("%v have %d lines, of %d at the most: take something away", s.packages, lines, s.lines)
	}
}
