package laws

import (
	"go/ast"
	"testing"
)

var pure = []string{"shard", "shard/meta", "shard/leader", "shard/process", "shard/process/relay", "shard/rollout"}

// pureImports are the standard packages a pure package may use: nothing that reads a clock, draws a
// number, opens a file or starts anything.
var pureImports = map[string]bool{
	"bufio": true, "bytes": true, "cmp": true, "container/heap": true, "container/list": true, "crypto/hmac": true, "crypto/sha256": true,
	"crypto/subtle": true, "encoding/binary": true, "encoding/hex": true, "errors": true, "fmt": true, "hash": true, "hash/crc32": true,
	"hash/crc64": true, "hash/fnv": true, "io": true, "iter": true, "maps": true, "math": true, "math/bits": true, "slices": true, "sort": true,
	"strconv": true, "strings": true, "sync": true, "unicode/utf8": true, "unsafe": true,
}

func TestPurePackagesArePure(t *testing.T) {
	list, fset := packages(t)
	seen := 0
	for _, p := range list {
		isPure := false
		for _, d := range pure {
			isPure = isPure || p.dir == d
		}
		if !isPure {
			continue
		}
		seen++
		for name, f := range p.files {
			for _, path := range importPaths(f) {
				if stdlib(path) && !pureImports[path] {
					t.Errorf("%s imports %s, which a pure package may not", name, path)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s starts a goroutine in a pure package", fset.Position(n.Pos()))
				case *ast.ChanType:
					t.Errorf("%s uses a channel in a pure package", fset.Position(n.Pos()))
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "sync" && x.Obj == nil && n.Sel.Name != "Locker" {
						t.Errorf("%s uses sync.%s in a pure package: callers keep Apply apart from reads", fset.Position(n.Pos()), n.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if seen != len(pure) {
		t.Fatalf("found %d of the pure packages %v", seen, pure)
	}
}
