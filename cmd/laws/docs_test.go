package laws

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEveryPackageIsDocumented(t *testing.T) {
	list, _ := packages(t)
	for _, p := range list {
		if len(p.files) == 0 {
			continue
		}
		doc := ""
		for _, f := range p.files {
			if f.Doc != nil && len(f.Doc.Text()) > len(doc) {
				doc = f.Doc.Text()
			}
		}
		if len(doc) < 40 {
			t.Errorf("%s has no package comment that says what it is", p.dir)
		}
	}
}

// TestBenchFilesAskAQuestion: each file that measures says in its first line what question it
// answers.
func TestBenchFilesAskAQuestion(t *testing.T) {
	list, _ := packages(t)
	for _, p := range list {
		if !inFolder(p.dir, "bench") && !inFolder(p.dir, "loadgen") {
			continue
		}
		for name := range p.files {
			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			if first, _, _ := strings.Cut(string(text), "\n"); !strings.HasPrefix(first, "// ") || !strings.Contains(first, "?") {
				t.Errorf("%s does not begin with a question that it answers: %q", name, first)
			}
		}
	}
}

var mapRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_/.*-]+)`")

// TestFileMapsAreTrue: a name in the first column of a DESIGN.md's table that looks like a path is
// one.
func TestFileMapsAreTrue(t *testing.T) {
	list, _ := packages(t)
	for _, p := range list {
		text, err := os.ReadFile(filepath.Join(root, p.dir, "DESIGN.md"))
		if err != nil {
			continue // its package comment says all
		}
		for _, m := range mapRow.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "/") {
				continue
			}
			if found, _ := filepath.Glob(filepath.Join(root, p.dir, name)); len(found) == 0 {
				t.Errorf("%s/DESIGN.md names %s, which is not there", p.dir, name)
			}
		}
	}
}

var (
	testNamed = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	testMade  = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(`)
)

// TestNamedTestsExist: a test that a page names, as what holds a promise, is there.
func TestNamedTestsExist(t *testing.T) {
	made, named := map[string]bool{}, map[string]string{}
	eachText(t, func(name string, text []byte) {
		page, tests := strings.HasSuffix(name, ".md"), strings.HasSuffix(name, "_test.go")
		if tests {
			for _, m := range testMade.FindAllSubmatch(text, -1) {
				made[string(m[1])] = true
			}
		}
		if page {
			for _, m := range testNamed.FindAllSubmatch(text, -1) {
				named[string(m[1])] = name
			}
		}
	})
	for name, page := range named {
		if !made[name] {
			t.Errorf("%s names %s, which is not there", page, name)
		}
	}
	if len(named) < 20 {
		t.Errorf("%d tests are named in pages: too few to be true", len(named))
	}
}

// TestMigrationNamesExist: what the page for users of other services names in its second columns is
// there: `Type.Method`, `Func` of package client, or `package.Func` of a package beside it.
func TestMigrationNamesExist(t *testing.T) {
	list, _ := packages(t)
	names := map[string]bool{}
	for _, p := range list {
		dir, in := strings.CutPrefix(p.dir, "client/")
		if p.dir != "client" && (!in || strings.Contains(dir, "/")) {
			continue
		}
		prefix := ""
		if in {
			prefix = dir + "."
		}
		for _, f := range p.files {
			for _, d := range f.Decls {
				for _, name := range exported(d) {
					names[prefix+name] = true
				}
			}
		}
	}
	checked := 0
	for line := range strings.Lines(read(t, "client/MIGRATING.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range migrationName.FindAllStringSubmatch(cells[2], -1) {
			if checked++; !names[m[1]] {
				t.Errorf("client/MIGRATING.md names %s, which is not there", m[1])
			}
		}
	}
	if checked < 50 {
		t.Fatalf("found %d names in client/MIGRATING.md", checked)
	}
}

var migrationName = regexp.MustCompile("`((?:[a-z]+\\.)?[A-Z][A-Za-z]*(?:\\.[A-Z][A-Za-z]*)?)`")

// exported lists what a declaration of functions and types exports: `Func`, `Type`, `Type.Method`.
func exported(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return []string{receiver(d) + "." + d.Name.Name}
		}
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok {
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}
