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

// pages for users whose commands and Go code run as shown, in the order in which a newcomer reads
// them.
var pages = []string{"README.md", "cmd/signalbox/TOUR.md", "client/README.md", "client/MIGRATING.md", "client/process/README.md",
	"client/rollout/README.md", "client/ratelimit/README.md", "server/OPERATIONS.md"}

// readPages reads all pages as one.
func readPages(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, p := range pages {
		all.WriteString(readPage(t, "../../"+p))
	}
	return all.String()
}

// TestReadmeCommands runs the commands that `signalbox dev` and `serve --tour` print, and then
// those of the pages from top to bottom, as a reader would, against one server. Each block is
// pasted into a shell of its own.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	tourCommands(t, srv)
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr(), "HOME=" + t.TempDir(), "XDG_CONFIG_HOME="}
	page := readPages(t)
	ran := 0
	for _, block := range fenced(page, "console") {
		script := "set -e\n"
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				ran++
				script += command
			}
		}
		out := expect(t, 0, env, "sh", "-c", script)
		t.Logf("%s%s", script, out)
		for _, wrong := range []string{"NO_LEADER", "STALLED", "UNSET"} {
			for line := range strings.Lines(out) {
				if strings.Contains(line, wrong) && strings.HasPrefix(line, "zone-a") { // the location that the tour is about
					t.Errorf("the tour shows a newcomer that something is wrong: %s", line)
				}
			}
		}
	}
	if ran < 10 {
		t.Fatalf("found %d commands in the pages' console blocks", ran)
	}
	module, _, _ := strings.Cut(strings.TrimPrefix(readPage(t, "../../go.mod"), "module "), "\n")
	for _, path := range []string{"README.md", "client/README.md"} {
		page := readPage(t, "../../"+path)
		if !strings.Contains(page, "```sh\ngo get "+module+"\n```") || !strings.Contains(page, "`"+module+"/client`") {
			t.Errorf("%s does not say how to get %s, or what to import", path, module)
		}
	}
}

// tourCommands runs what is printed to be pasted. Nothing of it may need to be taken apart first: a
// comment is none in an interactive zsh.
func tourCommands(t *testing.T, srv *servertest.Server) {
	t.Helper()
	var out strings.Builder
	writeTour(&out, "signalbox", srv.Addr(), srv.AdminAddr(), "", "")
	_, curl := exec.LookPath("curl")
	ran := 0
	env := ""
	for line := range strings.Lines(out.String()) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "  ")
		if strings.Contains(command, "#") {
			t.Errorf("a comment is to be pasted: %s", command)
		}
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

// TestReadmeShowsCodeThatRuns: the pages' Go blocks are functions of the SDK's examples, which run
// in its tests. A comment above each block says which.
func TestReadmeShowsCodeThatRuns(t *testing.T) {
	readme := readPages(t)
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
				t.Errorf("the page's block differs from %s in %s (-code +page):\n%s", name, path, diff)
			}
		}
		if !found {
			t.Errorf("%s has no function %s", path, name)
		}
	}
}
