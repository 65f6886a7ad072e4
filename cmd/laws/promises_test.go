package laws

import (
	"go/ast"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// promiseForms are the forms of tests in their order, as the last column of PROMISES names them.
var promiseForms = []string{"test", "full", "long", "soak"}

// withoutServer is what stands there if none of the row's tests has a server or processes.
const withoutServer = "pure"

// promiseTest is a test, and where it runs.
type promiseTest struct {
	dir, file string
	form      int  // in promiseForms
	serves    bool // its package's tests have a server, a raft group or processes
}

// TestPromisesNameTheirForm: the last column of the table of PROMISES is the shortest form in which a test that the
// row names runs against a server, a raft group or processes. Each test, file and package that a row names exists.
func TestPromisesNameTheirForm(t *testing.T) {
	tests, dirs := promiseTests(t)
	rows := 0
	for line := range strings.Lines(read(t, "server/PROMISES.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 3 || strings.Contains(cells[0], "promise |") ||
			strings.TrimSpace(cells[0]) == "promise" {
			continue
		}
		rows++
		promise := strings.TrimSpace(cells[0])
		if len(cells) != 4 {
			t.Errorf("%s: the row has %d columns; the last one of four is the form", promise, len(cells))
			continue
		}
		best := len(promiseForms)
		for _, x := range promiseNames(t, promise, cells[2], tests, dirs) {
			if x.serves {
				best = min(best, x.form)
			}
		}
		want := withoutServer
		if best < len(promiseForms) {
			want = promiseForms[best]
		}
		if got := strings.TrimSpace(cells[3]); got != want {
			t.Errorf("%s: the form is %q, and the tests that the row names say %q", promise, got, want)
		}
	}
	if rows < 40 {
		t.Fatalf("found %d promises", rows)
	}
}

var inBackticks = regexp.MustCompile("`([^`]+)`")

// promiseNames are the tests that a cell names: by their names, by their file, or, where a clause names neither, by
// their package.
func promiseNames(t *testing.T, promise, cell string, tests map[string][]promiseTest, dirs []string) (all []promiseTest) {
	for clause := range strings.SplitSeq(cell, ";") {
		var names, in []string
		for _, m := range inBackticks.FindAllStringSubmatch(clause, -1) {
			switch name := m[1]; {
			case strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz"):
				names = append(names, name)
			case strings.HasSuffix(name, "_test.go"):
				of := slices.Concat(slices.Collect(maps.Values(tests))...)
				of = slices.DeleteFunc(of, func(x promiseTest) bool { return x.file != name && filepath.Base(x.file) != name })
				if len(of) == 0 {
					t.Errorf("%s: no test is in a file %s", promise, name)
				}
				all = append(all, of...)
			default:
				for _, dir := range dirs {
					if dir == name || strings.HasSuffix(dir, "/"+name) && !slices.Contains(dirs, name) {
						in = append(in, dir)
					}
				}
			}
		}
		for _, name := range names {
			of := tests[name]
			if len(of) > 1 {
				of = slices.DeleteFunc(slices.Clone(of), func(x promiseTest) bool { return !slices.Contains(in, x.dir) })
			}
			if len(of) == 0 {
				t.Errorf("%s: there is no %s, or several packages have one; name its package, as in `TestX` of `server`", promise, name)
			}
			all = append(all, of...)
		}
		if len(names) == 0 {
			for _, list := range tests {
				for _, x := range list {
					if slices.Contains(in, x.dir) {
						all = append(all, x)
					}
				}
			}
		}
	}
	return all
}

// promiseTests are all tests by name, and the folders that have any.
func promiseTests(t *testing.T) (byName map[string][]promiseTest, dirs []string) {
	list, _ := packages(t)
	byName = map[string][]promiseTest{}
	for _, p := range list {
		least := 0 // make full runs nested modules
		for _, nested := range lawful {
			if inFolder(p.dir, nested) {
				least = 1
			}
		}
		serves := p.dir == "shard/replica"
		skips := map[string]int{} // what a function of the package skips up to
		for range 2 {             // the second time with what the functions that it calls skip
			for _, f := range p.tests {
				for _, d := range f.Decls {
					if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && f.Recv == nil {
						skips[f.Name.Name] = skippedUntil(f, skips)
					}
				}
			}
		}
		for name, f := range p.tests {
			for _, path := range importPaths(f) {
				if path == "os/exec" || path == module+"/server" || path == module+"/server/servertest" {
					serves = true
				}
			}
			for _, d := range f.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv != nil || f.Name.Name == "TestMain" ||
					!strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
					continue
				}
				byName[f.Name.Name] = append(byName[f.Name.Name], promiseTest{p.dir, name, max(least, skips[f.Name.Name]), false})
			}
		}
		if len(p.tests) == 0 {
			continue
		}
		dirs = append(dirs, p.dir)
		for _, list := range byName {
			for i := range list {
				if list[i].dir == p.dir {
					list[i].serves = serves
				}
			}
		}
	}
	return byName, dirs
}

// skippedUntil is the form before which a function skips its test, by a statement of its own or of a function that
// it calls.
func skippedUntil(f *ast.FuncDecl, skips map[string]int) (until int) {
	for _, s := range f.Body.List {
		x, ok := s.(*ast.ExprStmt)
		if !ok {
			continue
		}
		call, ok := x.X.(*ast.CallExpr)
		if !ok {
			continue
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			until = max(until, skips[fun.Name])
		case *ast.SelectorExpr:
			if fun.Sel.Name != "SkipUntil" || len(call.Args) != 3 {
				continue
			}
			if form, ok := call.Args[1].(*ast.SelectorExpr); ok {
				until = max(until, slices.Index(promiseForms, strings.ToLower(form.Sel.Name)))
			}
		}
	}
	return until
}
