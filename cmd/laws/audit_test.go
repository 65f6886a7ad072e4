package laws

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// auditTitle is the form of an event's title.
var auditTitle = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)

// TestAuditTitlesAreListed: the page of the audit log has each title that the code writes out.
func TestAuditTitlesAreListed(t *testing.T) {
	list, _ := packages(t)
	page := read(t, "server/audit/DESIGN.md")
	found := 0
	need := func(name string, e ast.Expr) {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		title, err := strconv.Unquote(lit.Value)
		if err != nil || !auditTitle.MatchString(title) {
			return
		}
		found++
		if !strings.Contains(page, "`"+title+"`") {
			t.Errorf("%s writes the audit event %s, which server/audit/DESIGN.md does not list", name, title)
		}
	}
	for _, p := range list {
		for name, f := range p.files {
			if p.dir != "server/audit" && name != "shard/meta/audit.go" && !importsAudit(f) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.KeyValueExpr:
					if key, ok := x.Key.(*ast.Ident); ok && key.Name == "Title" {
						need(name, x.Value)
					}
				case *ast.AssignStmt:
					for i, to := range x.Lhs {
						if s, ok := to.(*ast.SelectorExpr); ok && s.Sel.Name == "Title" && len(x.Rhs) == len(x.Lhs) {
							need(name, x.Rhs[i])
						}
					}
				case *ast.CallExpr: // of a function that makes an event of a title
					if fn, ok := x.Fun.(*ast.Ident); ok && (fn.Name == "auditRequest" || name == "shard/meta/audit.go") {
						for _, arg := range x.Args {
							need(name, arg)
						}
					}
				}
				return true
			})
		}
	}
	if found < 30 {
		t.Errorf("only %d titles were found: the test does not see how they are written", found)
	}
}

func importsAudit(f *ast.File) bool {
	for _, path := range importPaths(f) {
		if path == module+"/server/audit" {
			return true
		}
	}
	return false
}
