package laws

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"testing"
)

var (
	quantity = regexp.MustCompile(`%d|[0-9]`)
	advice   = regexp.MustCompile(
		`[;:] .*\b(retry|again|wait|read|end|close|stop|release|leave|raise|use|open|watch|share|connect|withdraw|unregister|low)\b`)
)

// TestOverloadedNamesItsLimit: a sentence that goes with OVERLOADED, in one call or literal with
// it, says how much there is or may be, and what to do.
func TestOverloadedNamesItsLimit(t *testing.T) {
	list, fset := packages(t)
	seen := 0
	for _, p := range list {
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				var parts []ast.Expr
				switch x := n.(type) {
				case *ast.CallExpr:
					parts = x.Args
				case *ast.CompositeLit:
					parts = x.Elts
				default:
					return true
				}
				overloaded := false
				for _, part := range parts {
					if kv, ok := part.(*ast.KeyValueExpr); ok {
						part = kv.Value
					}
					if sel, ok := part.(*ast.SelectorExpr); ok && sel.Sel.Name == "StatusOverloaded" {
						overloaded = true
					}
				}
				for _, text := range sentences(parts) {
					if !overloaded || len(text) < 20 || text == "%s; send the message again later" {
						continue // a name, or what begins with a sentence that is made right before
					}
					seen++
					if !quantity.MatchString(text) || !advice.MatchString(text) {
						t.Errorf("%s: OVERLOADED with %q; say how much there is or may be, and what to do", fset.Position(n.Pos()), text)
					}
				}
				return true
			})
		}
	}
	if seen < 15 {
		t.Errorf("only %d sentences were found", seen)
	}
}

// sentences are the string literals among expressions, and the formats of those that are calls of
// fmt.Sprintf.
func sentences(parts []ast.Expr) (list []string) {
	for _, part := range parts {
		switch x := part.(type) {
		case *ast.KeyValueExpr:
			list = append(list, sentences([]ast.Expr{x.Value})...)
		case *ast.CallExpr:
			list = append(list, sentences(x.Args)...)
		case *ast.BasicLit:
			if text, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
				list = append(list, text)
			}
		}
	}
	return list
}
