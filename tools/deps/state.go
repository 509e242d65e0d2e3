package main

import (
	"go/ast"
	"go/token"
	"strings"
)

// allowDirective, with a reason, above a package-level variable says that it is
// never written after its declaration (or, once, that the linker sets it).
const allowDirective = "//trimtab:table "

// checkState finds package-level variables that could change, and init functions.
// Sentinel errors, compiled regular expressions, embedded files, byte spellings
// of a string (keys of a store) and interface assertions need no leave; anything
// else carries allowDirective.
func (m *module) checkState(p *pkg, add addFunc) {
	for _, f := range p.files {
		if ast.IsGenerated(f) {
			continue
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					add("%s: init function: construct explicitly in cmd", m.at(p, d.Pos()))
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					m.checkVars(p, d, add)
				}
			}
		}
	}
}

func (m *module) checkVars(p *pkg, d *ast.GenDecl, add addFunc) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || allowedBy(d.Doc) || allowedBy(v.Doc) {
			continue
		}
		for i, name := range v.Names {
			if name.Name == "_" || (len(v.Values) == len(v.Names) && harmless(v.Values[i])) {
				continue
			}
			add("%s: package-level variable %s: pass it in, make it a function, or say %q above it", m.at(p, name.Pos()), name.Name, allowDirective+"WHY")
		}
	}
}

// allowedBy reports whether a comment allows the variable below it: by our
// directive with a reason, or because the compiler fills it from files.
func allowedBy(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
		if reason, ok := strings.CutPrefix(c.Text, allowDirective); ok && strings.TrimSpace(reason) != "" {
			return true
		}
	}
	return false
}

// harmless reports whether a value is one that nobody has cause to replace.
func harmless(value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	if array, ok := call.Fun.(*ast.ArrayType); ok && array.Len == nil && len(call.Args) == 1 {
		elem, isName := array.Elt.(*ast.Ident)
		_, isLiteral := call.Args[0].(*ast.BasicLit)
		return isName && elem.Name == "byte" && isLiteral
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return false
	}
	switch x.Name + "." + sel.Sel.Name {
	case "errors.New", "fmt.Errorf", "regexp.MustCompile":
		return true
	}
	return false
}
