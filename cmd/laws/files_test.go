package laws

import (
	"go/ast"
	"strings"
	"testing"
)

// wholeFiles is where files are read or written as a whole without package file, and why.
// Everywhere else a file that is read has a bound, and what is replaced is a regular file.
var wholeFiles = map[string]string{
	"cmd/signalbox/load.go":                          "the CPU profile, after file.CheckRegular",
	"cmd/signalbox/processtree/processtree_linux.go": "/proc",
	"cmd/signalbox/rollout_follow.go":                "a payload, in a folder of its own",
	"server/audit/position.go":                       "replaced often, and not synced; after file.CheckRegular",
	"server/certs/certstest/certstest.go":            "tests",
	"server/file/file.go":                            "the package itself",
	"server/servertest/leftover/process_linux.go":    "/proc",
	"server/servertest/port/port.go":                 "/proc",
}

// TestFilesAreReadAndReplacedInOnePlace: os.ReadFile has no bound, and os.WriteFile, os.Create and
// os.Rename take whatever is there.
func TestFilesAreReadAndReplacedInOnePlace(t *testing.T) {
	list, fset := packages(t)
	used := map[string]bool{}
	for _, p := range list {
		if !strings.HasPrefix(p.dir, "server") && !inFolder(p.dir, "cmd/signalbox") &&
			!inFolder(p.dir, "cmd/signalbox-ydb") && p.dir != "cmd/signalbox-mcp" {
			continue
		}
		for name, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if of, ok := sel.X.(*ast.Ident); !ok || of.Name != "os" && of.Name != "tls" {
					return true
				}
				switch sel.Sel.Name {
				case "ReadFile", "WriteFile", "Create", "Rename", "LoadX509KeyPair":
				default:
					return true
				}
				if _, used[name] = wholeFiles[name]; !used[name] {
					t.Errorf("%s uses %s: read with file.Read, replace with file.Replace; or say why not in wholeFiles",
						fset.Position(n.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
	for place := range wholeFiles {
		if !used[place] {
			t.Errorf("%s does not read or write whole files any more; take it from wholeFiles", place)
		}
	}
}
