package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// fenced gives the contents of a page's fenced blocks of a language.
func fenced(page, language string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmeCommands runs the README's tour from top to bottom, as a reader would, against one server.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	ran := 0
	for _, block := range fenced(readPage(t, "../../README.md"), "console") {
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if !ok {
				continue
			}
			ran++
			t.Logf("$ %s\n%s", command, expect(t, 0, env, "sh", "-c", command))
		}
	}
	if ran < 10 {
		t.Fatalf("found %d commands in the README's console blocks", ran)
	}
}

// TestTourCommands runs what `signalbox dev` and `serve --tour` tell to paste.
func TestTourCommands(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	var out strings.Builder
	(&app{stdout: &out}).tour("signalbox", srv.Addr(), srv.AdminAddr(), "")
	_, curl := exec.LookPath("curl")
	ran := 0
	env := ""
	for line := range strings.Lines(out.String()) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "  ")
		switch {
		case !ok, strings.HasPrefix(command, "curl") && curl != nil:
			continue
		case strings.HasPrefix(command, "export "):
			env = command + "; "
			continue
		}
		ran++
		t.Logf("$ %s\n%s", command, expect(t, 0, nil, "sh", "-c", env+command))
	}
	if ran < 5 {
		t.Fatalf("found %d commands in the tour:\n%s", ran, out.String())
	}
}

// TestReadmeShowsCodeThatRuns: the README's Go blocks are functions of the SDK's examples, which run in its tests. A comment above each block says which.
func TestReadmeShowsCodeThatRuns(t *testing.T) {
	readme := readPage(t, "../../README.md")
	marks := regexp.MustCompile("(?m)^<!-- (\\w+) of ([\\w/.]+) -->\n\n```go$").FindAllStringSubmatch(readme, -1)
	blocks := fenced(readme, "go")
	if len(marks) == 0 || len(marks) != len(blocks) {
		t.Fatalf("%d go blocks, %d of them with a comment in front that says where they are from", len(blocks), len(marks))
	}
	for i, m := range marks {
		name, path := m[1], m[2]
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "../../"+path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		source := readPage(t, "../../"+path)
		found := false
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != name {
				continue
			}
			found = true
			want := source[fset.Position(fn.Pos()).Offset:fset.Position(fn.End()).Offset] + "\n"
			if diff := cmp.Diff(want, blocks[i]); diff != "" {
				t.Errorf("the README's block differs from %s in %s (-code +README):\n%s", name, path, diff)
			}
		}
		if !found {
			t.Errorf("%s has no function %s", path, name)
		}
	}
}
