package laws

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

var pure = []string{
	"shard", "shard/meta", "shard/leader", "shard/process", "shard/container", "shard/process/relay", "shard/queue", "shard/ratelimit", "shard/rollout",
	"client/internal/core", "client/internal/membership", "client/internal/waitgraph", "client/internal/sessionstate",
	"server/httpapi/machine",
}

// pureImports are the standard packages a pure package may use: nothing that reads a clock, draws a
// number, opens a file or starts anything. hash/maphash draws a seed, as each map does: it is for
// tables whose order decides nothing.
var pureImports = map[string]bool{
	"bufio": true, "bytes": true, "cmp": true, "container/heap": true, "container/list": true, "crypto/hmac": true, "crypto/sha256": true,
	"crypto/subtle": true, "encoding/binary": true, "encoding/hex": true, "encoding/json": true, "errors": true, "fmt": true, "hash": true, "hash/crc32": true,
	"hash/crc64": true, "hash/fnv": true, "hash/maphash": true, "io": true, "iter": true, "maps": true, "math": true, "math/bits": true,
	"slices": true, "sort": true,
	"strconv": true, "strings": true, "sync": true, "time": true, "unicode/utf8": true, "unsafe": true,
}

// pureTime is what a pure package may use of package time: durations. Times are arguments.
var pureTime = map[string]bool{
	"Duration": true, "Nanosecond": true, "Microsecond": true, "Millisecond": true, "Second": true, "Minute": true, "Hour": true,
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
						t.Errorf("%s uses sync.%s in a pure package: callers keep its calls apart",
							fset.Position(n.Pos()), n.Sel.Name)
					}
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && x.Obj == nil && !pureTime[n.Sel.Name] {
						t.Errorf("%s uses time.%s in a pure package: times are its arguments", fset.Position(n.Pos()), n.Sel.Name)
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

// TestEngineHasOneMutex: whatever the SDK and its engine share between goroutines is guarded by the
// mutex of the driver. So there is no order of locks.
func TestEngineHasOneMutex(t *testing.T) {
	list, fset := packages(t)
	mutexes := map[string][]string{}
	for _, p := range list {
		if p.dir != "client" && p.dir != "client/internal/core" && p.dir != "client/internal/driver" && p.dir != "client/internal/wire" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Mutex" && sel.Sel.Name != "RWMutex" {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "sync" {
					mutexes[p.dir] = append(mutexes[p.dir], fset.Position(n.Pos()).String())
				}
				return true
			})
		}
	}
	for _, dir := range []string{"client", "client/internal/core", "client/internal/wire"} {
		if of := mutexes[dir]; len(of) > 0 {
			t.Errorf("%s has mutexes, at %v: what its goroutines share is the driver's to guard", dir, of)
		}
	}
	if of := mutexes["client/internal/driver"]; len(of) != 1 {
		t.Errorf("package driver has %d mutexes, at %v; it has the one of the SDK's engine", len(of), of)
	}
}

// startNothing are packages that run nothing by themselves: the laws read a table of the first, and
// tests take their size and their seeds from the others.
var startNothing = []string{"server/metrics", "server/servertest/form", "server/servertest/seeds"}

// TestSequentialPackagesAre: in the packages that the Makefile tests without the race detector
// nothing runs at the same time as anything else, in their tests neither. What they import of the
// repository is as sequential, or is only read.
func TestSequentialPackagesAre(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "Makefile"), "\nSEQUENTIAL := ")
	text, _, _ = strings.Cut(text, "\nsequential = ")
	sequential := strings.Fields(strings.ReplaceAll(text, "\\\n", " "))
	for _, d := range pure {
		if !slices.Contains(sequential, d) {
			t.Errorf("SEQUENTIAL of the Makefile lacks %s", d)
		}
	}
	list, fset := packages(t)
	seen := 0
	for _, p := range list {
		if !slices.Contains(sequential, p.dir) {
			continue
		}
		seen++
		for _, files := range []map[string]*ast.File{p.files, p.tests} {
			for name, f := range files {
				if planted(f) {
					continue
				}
				for _, path := range importPaths(f) {
					dir, own := strings.CutPrefix(path, module+"/")
					switch path {
					case "testing/synctest", "os/exec", "net", "net/http":
						t.Errorf("%s imports %s: take the package from SEQUENTIAL", name, path)
					}
					if own && !slices.Contains(append(sequential, startNothing...), dir) {
						t.Errorf("%s imports %s, which is not sequential: take the package from SEQUENTIAL", name, dir)
					}
				}
				ast.Inspect(f, func(n ast.Node) bool {
					concurrent := false
					switch n := n.(type) {
					case *ast.GoStmt, *ast.ChanType:
						concurrent = true
					case *ast.SelectorExpr:
						concurrent = n.Sel.Name == "Parallel" || n.Sel.Name == "RunParallel" || n.Sel.Name == "Go" ||
							n.Sel.Name == "AfterFunc"
					}
					if concurrent {
						t.Errorf("%s runs something at the same time: take the package from SEQUENTIAL", fset.Position(n.Pos()))
					}
					return true
				})
			}
		}
	}
	if seen != len(sequential) || seen < len(pure) {
		t.Errorf("found %d of the sequential packages %v", seen, sequential)
	}
}

// planted reports whether a file is only built to plant faults, which is not in make test.
func planted(f *ast.File) bool {
	for _, group := range f.Comments {
		if group.Pos() < f.Package && strings.Contains(group.Text()+group.List[0].Text, "go:build planted") {
			return true
		}
	}
	return false
}
