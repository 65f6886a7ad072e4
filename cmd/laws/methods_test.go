package laws

import (
	"go/ast"
	"testing"
)

// maxMethodFiles is the number of files that the methods of a type may be in.
const maxMethodFiles = 5

// TestTypesStayTogether: a type has methods in a few files at most. One with more gathers what
// belongs to several.
func TestTypesStayTogether(t *testing.T) {
	list, _ := packages(t)
	for _, p := range list {
		files := map[string]map[string]bool{}
		for name, f := range p.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv == nil {
					continue
				}
				of := p.dir + "." + receiver(fn)
				if files[of] == nil {
					files[of] = map[string]bool{}
				}
				files[of][name] = true
			}
		}
		for of, in := range files {
			if len(in) > maxMethodFiles {
				t.Errorf("%s has methods in %d files, more than %d: make a type of its own for what belongs together",
					of, len(in), maxMethodFiles)
			}
		}
	}
}

// TestReceiversHaveOneName: all methods of a type call their receiver the same.
func TestReceiversHaveOneName(t *testing.T) {
	list, fset := packages(t)
	for _, p := range list {
		names := map[string]string{}
		for _, files := range []map[string]*ast.File{p.files, p.tests} {
			for _, f := range files {
				for _, d := range f.Decls {
					fn, ok := d.(*ast.FuncDecl)
					if !ok || fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 {
						continue
					}
					name, of := fn.Recv.List[0].Names[0].Name, f.Name.Name+"."+receiver(fn)
					if former := names[of]; former != "" && former != name {
						t.Errorf("%s: the receiver is %s, and %s in another method of %s; one name is enough", fset.Position(fn.Pos()), name, former, of)
					}
					names[of] = name
				}
			}
		}
	}
}
