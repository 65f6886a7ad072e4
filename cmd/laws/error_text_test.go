package laws

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// matchedByText lists the errors of other modules that have no type or value: a word of their text,
// by file.
var matchedByText = map[string][]string{
	"cmd/signalbox/connect.go":          {"unknown command"},              // cobra
	"cmd/signalbox/service_watch.go":    {"can't evaluate field"},         // text/template
	"server/transport/handshake_log.go": {"didn't provide a certificate"}, // crypto/tls
	"shard/replica/engine/config.go": { // dragonboat
		"failed to lock data directory", "not the owner of the data directory", "hostname changed", "deployment ID changed",
	},
}

// TestErrorsAreNotMatchedByText: no code looks for a word in an error's text. A status, a
// protocol.Refusal or an error value tells errors apart, and sentences may change.
func TestErrorsAreNotMatchedByText(t *testing.T) {
	list, fset := packages(t)
	found := map[string][]string{}
	for _, p := range list {
		for name, f := range p.files {
			for _, d := range f.Decls {
				for _, x := range textMatches(d) {
					if slices.Contains(matchedByText[name], x.word) {
						found[name] = append(found[name], x.word)
						continue
					}
					t.Errorf("%s tells errors apart by their text: give them a value, a status or a protocol.Refusal",
						fset.Position(x.pos))
				}
			}
		}
	}
	for name, words := range matchedByText {
		for _, word := range words {
			if !slices.Contains(found[name], word) {
				t.Errorf("%s does not look for %q any more: take it from the list", name, word)
			}
		}
	}
}

type textMatch struct {
	pos  token.Pos
	word string // that is looked for, if it is a literal
}

// textMatches finds where a declaration searches an error's text, or compares it.
func textMatches(d ast.Decl) (all []textMatch) {
	texts := map[string]bool{} // variables that have an error's text
	isText := func(x ast.Expr) bool {
		switch x := x.(type) {
		case *ast.Ident:
			return texts[x.Name]
		case *ast.CallExpr:
			sel, ok := x.Fun.(*ast.SelectorExpr)
			return ok && sel.Sel.Name == "Error" && len(x.Args) == 0
		case *ast.SelectorExpr:
			of, ok := x.X.(*ast.Ident)
			return ok && x.Sel.Name == "Message" && (of.Name == "e" || of.Name == "err" || of.Name == "r" || of.Name == "refused")
		}
		return false
	}
	word := func(args ...ast.Expr) string {
		for _, a := range args {
			if l, ok := a.(*ast.BasicLit); ok && l.Kind == token.STRING {
				s, _ := strconv.Unquote(l.Value)
				return s
			}
		}
		return ""
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, x := range n.Rhs {
				if name, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
					texts[name.Name] = isText(x)
				}
			}
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			of, ok := sel.X.(*ast.Ident)
			if ok && (of.Name == "strings" || of.Name == "bytes" || of.Name == "regexp") && slices.Contains([]string{
				"Contains", "HasPrefix", "HasSuffix", "Index", "LastIndex", "EqualFold", "MatchString",
			}, sel.Sel.Name) && slices.ContainsFunc(n.Args, isText) {
				all = append(all, textMatch{n.Pos(), word(n.Args...)})
			}
		case *ast.BinaryExpr:
			empty := word(n.X, n.Y) == ""
			if (n.Op == token.EQL || n.Op == token.NEQ) && (isText(n.X) || isText(n.Y)) && !empty {
				all = append(all, textMatch{n.Pos(), word(n.X, n.Y)})
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && isText(n.Tag) {
				all = append(all, textMatch{n.Pos(), ""})
			}
		}
		return true
	})
	return all
}
