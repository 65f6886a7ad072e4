package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"

	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/signalbox-dev/signalbox/server/servertest/former"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// promised are the packages that programs import, by module: what they export stays.
var promised = []struct {
	module   string
	packages []string
}{
	{".", []string{"./client", "./client/admin", "./client/discovery", "./client/process",
		"./client/process/assign", "./client/ratelimit", "./client/recipes", "./client/rollout", "./server/servertest"}},
	{"client/grpcsignalbox", []string{"."}},
	{"client/otelsignalbox", []string{"."}},
}

// versionConstant is the constant whose value is another one with each minor version.
const versionConstant = "client.Version"

// TestKeptAPI: what the release before exports this tree exports too. A minor version may break
// what CHANGELOG.md names under "Breaking", such as `client.Lease.Reduce`; a patch breaks nothing.
func TestKeptAPI(t *testing.T) {
	releases := former.Releases(t, root)
	if len(releases) == 0 {
		t.Skip("no release is older than this tree")
	}
	last := releases[len(releases)-1]
	tree, err := meta.ParseVersion(release.TreeVersion)
	if err != nil {
		t.Fatal(err)
	}
	listed := ""
	if tree.Major != last.Version.Major || tree.Minor != last.Version.Minor {
		listed = breaking(string(must(os.ReadFile(filepath.Join(root, "CHANGELOG.md")))), last.Version.String())
	}
	source := last.Source(t)
	for _, p := range promised {
		// With these flags the release's program is built too, so that it is compiled once.
		was := exported(t, filepath.Join(source, p.module), p.packages, "CGO_ENABLED=0", "GOFLAGS=-trimpath")
		is := exported(t, filepath.Join(root, p.module), p.packages)
		for path, pkg := range was {
			for _, problem := range broken(pkg, is[path], listed) {
				t.Errorf("release %s, %s: %s", last.Version, path, problem)
			}
		}
	}
}

// exported loads what packages of a module export. env says how Go compiles them.
func exported(t *testing.T, module string, patterns []string, env ...string) map[string]*types.Package {
	t.Helper()
	list, err := packages.Load(&packages.Config{
		Context: t.Context(), Dir: module, Mode: packages.NeedName | packages.NeedTypes,
		Env: append(append(os.Environ(), "GOWORK=off"), env...),
	}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	loaded := map[string]*types.Package{}
	for _, p := range list {
		for _, problem := range p.Errors {
			t.Fatal(problem)
		}
		loaded[p.PkgPath] = p.Types
	}
	if len(loaded) != len(patterns) {
		t.Fatalf("%s has %d packages of %q", module, len(loaded), patterns)
	}
	return loaded
}

// breaking returns what CHANGELOG.md lists under "Breaking" above a release.
func breaking(changes, release string) (listed string) {
	since, _, _ := strings.Cut(changes, "\n## "+release+" ")
	for _, section := range strings.Split(since, "\n### ")[1:] {
		if rest, ok := strings.CutPrefix(section, "Breaking\n"); ok {
			rest, _, _ = strings.Cut(rest, "\n## ")
			listed += rest
		}
	}
	return listed
}

// broken lists what programs that compile with a package of a release miss in this tree's, nil if
// it is gone, unless it is listed.
func broken(was, is *types.Package, listed string) (problems []string) {
	if is == nil {
		is = types.NewPackage(was.Path(), was.Name())
	}
	for _, c := range apidiff.Changes(was, is).Changes {
		name, _, _ := strings.Cut(c.Message, ":")
		name = was.Name() + "." + strings.NewReplacer("(*", "", ")", "").Replace(name)
		if name == versionConstant && strings.Contains(c.Message, "value changed") {
			continue
		}
		if !c.Compatible && !strings.Contains(listed, "`"+name+"`") {
			problems = append(problems,
				c.Message+"; leave it, and add what is new, or list `"+name+"` under \"Breaking\" in CHANGELOG.md")
		}
	}
	return problems
}

// TestBrokenAPI: names that are gone or changed are found, unless they are listed; new ones are not.
func TestBrokenAPI(t *testing.T) {
	const was = "package p\nfunc F(int) {}\ntype T struct{ A int }\nfunc (*T) M() {}\nconst C = 1\n"
	listed := breaking("# Changes\n\n## 0.4.0\n\n### New\n\n- `p.T.M` is gone.\n\n"+
		"### Breaking\n\n- `p.F` takes a string.\n\n"+
		"## 0.3.0 - 2026-01-01\n\n### Breaking\n\n- `p.T.M`\n", "0.3.0")
	for _, x := range []struct {
		is   string
		want []string
	}{
		{was, nil},
		{was + "func G() {}\nfunc (T) N() {}\n", nil},
		{strings.Replace(was, "A int", "A, B int", 1), nil},
		{strings.Replace(was, "func (*T) M() {}", "", 1), []string{"p.T.M"}},
		{strings.Replace(was, "A int", "A string", 1), []string{"p.T.A"}},
		{strings.Replace(was, "C = 1", "c = 1", 1), []string{"p.C"}},
		{strings.Replace(was, "C = 1", "C = 2", 1), []string{"p.C"}},
		{strings.Replace(was, "F(int)", "F(string)", 1), nil}, // it is listed
		{"", []string{"p.C", "p.T"}},
	} {
		problems := broken(checked(t, was), checked(t, x.is), listed)
		if len(problems) != len(x.want) {
			t.Errorf("%q: %q", x.is, problems)
			continue
		}
		for _, name := range x.want {
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, "`"+name+"`") }) {
				t.Errorf("%q: %q, want one of %s", x.is, problems, name)
			}
		}
	}
}

// checked returns the types of a package's text; nil for none.
func checked(t *testing.T, text string) *types.Package {
	t.Helper()
	if text == "" {
		return nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check("example.com/p", fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
