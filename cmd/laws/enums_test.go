package laws

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// notNamed are values of the protocol's types that the SDK's users have no use for, and what they
// write instead.
var notNamed = map[string]string{
	"ConsistencyDefault": "no ReadConsistency option, or a pointer to zero",
	"CountersDefault":    "a pointer to zero",
}

// TestValuesAreNamedInTheSDK: where a package of the SDK gives a type of the protocol a name of its
// own, it names the type's constants too, so that a user's switch needs no import of the protocol.
func TestValuesAreNamedInTheSDK(t *testing.T) {
	list, _ := packages(t)
	values := map[string][]string{} // of the protocol, by type
	for _, p := range list {
		if p.dir == "protocol" {
			for _, f := range p.files {
				constants(f, func(typ, name string, _ ast.Expr) { values[typ] = append(values[typ], name) })
			}
		}
	}
	checked := 0
	for _, p := range list {
		if !inFolder(p.dir, "client") || inFolder(p.dir, "client/internal") {
			continue
		}
		named := map[string]bool{}
		var aliases []string
		for _, f := range p.files {
			constants(f, func(_, _ string, value ast.Expr) { named[ofProtocol(value)] = true })
			for _, d := range f.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.TYPE {
					continue
				}
				for _, s := range g.Specs {
					if s := s.(*ast.TypeSpec); s.Assign.IsValid() && s.Name.IsExported() && ofProtocol(s.Type) != "" {
						aliases = append(aliases, ofProtocol(s.Type))
					}
				}
			}
		}
		for _, typ := range aliases {
			for _, name := range values[typ] {
				checked++
				if !named[name] && notNamed[name] == "" {
					t.Errorf("%s has a name for protocol.%s, and none for its %s", p.dir, typ, name)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d values were checked: too few to be true", checked)
	}
}

// constants calls f for each exported constant of a file: its type, if one is written, its name and
// its value, nil for one that goes on from the line before.
func constants(file *ast.File, f func(typ, name string, value ast.Expr)) {
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		typ := ""
		for _, s := range g.Specs {
			s := s.(*ast.ValueSpec)
			if id, ok := s.Type.(*ast.Ident); ok {
				typ = id.Name
			} else if len(s.Values) > 0 {
				typ = ""
			}
			for i, name := range s.Names {
				if !name.IsExported() || strings.HasPrefix(name.Name, "_") {
					continue
				}
				var value ast.Expr
				if i < len(s.Values) {
					value = s.Values[i]
				}
				f(typ, name.Name, value)
			}
		}
	}
}

// ofProtocol is X of protocol.X, empty for anything else.
func ofProtocol(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "protocol" {
			return sel.Sel.Name
		}
	}
	return ""
}
