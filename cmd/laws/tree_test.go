package laws

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/signalbox-dev/signalbox"

// root is the repository's root, seen from this package's folder, where tests run.
const root = "../.."

// pkg is one folder with Go files.
type pkg struct {
	dir   string // slash-separated, from the root
	files map[string]*ast.File
	tests map[string]*ast.File
}

// lawful are the nested modules that the laws are about. Others are left out: nested modules keep
// heavy dependencies out of this one.
var lawful = []string{"cmd/signalbox-ydb", "cmd/signalbox-ydb/sdktest", "cmd/signalbox-mcp", "client/grpcsignalbox"}

// tree is every Go file of the repository, and of the nested modules that are lawful. They are
// parsed once for all laws, which only read them.
var tree struct {
	once sync.Once
	list []*pkg
	fset *token.FileSet
	err  error
}

func packages(t *testing.T) ([]*pkg, *token.FileSet) {
	t.Helper()
	tree.once.Do(func() {
		tree.fset = token.NewFileSet()
		tree.list, tree.err = parse(tree.fset)
	})
	if tree.err != nil {
		t.Fatal(tree.err)
	}
	if len(tree.list) < 8 {
		t.Fatalf("found %d packages from %s, expected the whole repository", len(tree.list), root)
	}
	return tree.list, tree.fset
}

func parse(fset *token.FileSet) (list []*pkg, err error) {
	byDir := map[string]*pkg{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" ||
				d.Name() == "signalbox-data" || d.Name() == "bin") {
				return filepath.SkipDir
			}
			if rel != "." && !slices.Contains(lawful, rel) {
				if m, _ := filepath.Glob(filepath.Join(path, "go.mod")); len(m) > 0 {
					return filepath.SkipDir
				}
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		p := byDir[dir]
		if p == nil {
			p = &pkg{dir: dir, files: map[string]*ast.File{}, tests: map[string]*ast.File{}}
			byDir[dir] = p
			list = append(list, p)
		}
		if strings.HasSuffix(rel, "_test.go") {
			p.tests[rel] = f
		} else {
			p.files[rel] = f
		}
		return nil
	})
	return list, err
}

// inFolder reports whether dir is the folder room or below it.
func inFolder(dir, room string) bool { return dir == room || strings.HasPrefix(dir, room+"/") }

func importPaths(f *ast.File) []string {
	var out []string
	for _, i := range f.Imports {
		out = append(out, strings.Trim(i.Path.Value, `"`))
	}
	return out
}

// stdlib reports whether an import path belongs to the standard library.
func stdlib(path string) bool { return !strings.Contains(strings.SplitN(path, "/", 2)[0], ".") }
