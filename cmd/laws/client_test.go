package laws

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClientIsDocumented: every exported symbol of the SDK has a comment, which begins with its
// name. None shows a type of the protocol, so a program imports the SDK alone. An alias of such a
// type is allowed only where the package's DESIGN.md names it and says why.
func TestClientIsDocumented(t *testing.T) {
	list, fset := packages(t)
	symbols := 0
	for _, p := range list {
		if !inFolder(p.dir, "client") || inFolder(p.dir, "client/internal") {
			continue
		}
		page, _ := os.ReadFile(filepath.Join(root, p.dir, "DESIGN.md")) // without one no alias is allowed
		_, aliases, _ := strings.Cut(string(page), "\n## Types of the protocol\n")
		aliases, _, _ = strings.Cut(aliases, "\n## ")
		for _, f := range p.files {
			for _, s := range exportedSymbols(f) {
				symbols++
				if !s.documented {
					t.Errorf("%s: %s has no comment", fset.Position(s.pos), s.name)
				}
				if s.text != "" && !strings.HasPrefix(s.text, s.name+" ") && !strings.HasPrefix(s.text, s.name+":") &&
					!strings.HasPrefix(s.text, s.name+",") {
					t.Errorf("%s: the comment of %s does not begin with its name", fset.Position(s.pos), s.name)
				}
				allowed := s.isAlias && strings.Contains(aliases, "`"+s.name+"`") || s.isConst && aliases != ""
				if s.usesProtocol && !allowed {
					t.Errorf("%s: %s shows a type of the protocol", fset.Position(s.pos), s.name)
				}
			}
		}
	}
	if symbols < 300 {
		t.Errorf("only %d exported symbols were found", symbols)
	}
}

// symbol is an exported name of a package: a type, function, method, field, variable or constant.
type symbol struct {
	name         string
	pos          token.Pos
	documented   bool
	usesProtocol bool
	text         string // of the comment that is its own
	isAlias      bool   // of a type
	isConst      bool
}

func exportedSymbols(f *ast.File) (list []symbol) {
	add := func(id *ast.Ident, documented bool, shape ...ast.Node) *symbol {
		if !id.IsExported() {
			return &symbol{}
		}
		list = append(list, symbol{name: id.Name, pos: id.Pos(), documented: documented, usesProtocol: namesProtocol(shape)})
		return &list[len(list)-1]
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) {
				add(d.Name, d.Doc != nil, d.Type).text = d.Doc.Text()
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					commented := d.Doc != nil || s.Doc != nil || s.Comment != nil
					text := s.Doc.Text()
					if !d.Lparen.IsValid() {
						text = d.Doc.Text()
					}
					st, ok := s.Type.(*ast.StructType)
					if !ok || !s.Name.IsExported() {
						x := add(s.Name, commented, s.Type)
						x.text, x.isAlias = text, s.Assign.IsValid()
						continue
					}
					add(s.Name, commented).text = text
					for _, field := range st.Fields.List {
						for _, id := range field.Names { // the name and the type may say enough
							add(id, true, field.Type)
						}
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						shape := []ast.Node{s.Type}
						if s.Type == nil && len(s.Values) > 0 {
							shape = []ast.Node{s.Values[0]}
						}
						commented := d.Doc != nil || s.Doc != nil || s.Comment != nil || d.Lparen.IsValid() && len(d.Specs) > 1
						add(id, commented, shape...).isConst = d.Tok == token.CONST
					}
				}
			}
		}
	}
	return list
}

// receiver is the type that a method belongs to.
func receiver(d *ast.FuncDecl) string {
	name := ""
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// namesProtocol reports whether what a reader sees of a declaration names package protocol.
// Function bodies do not count, nor values that are converted or computed.
func namesProtocol(shape []ast.Node) (found bool) {
	for _, n := range shape {
		if n == nil || n == ast.Expr(nil) {
			continue
		}
		if x, ok := n.(ast.Expr); ok {
			switch x.(type) {
			case *ast.CallExpr, *ast.BinaryExpr, *ast.FuncLit, *ast.UnaryExpr:
				continue
			}
		}
		ast.Inspect(n, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				id, ok := sel.X.(*ast.Ident)
				found = found || ok && id.Name == "protocol"
			}
			return !found
		})
	}
	return found
}
