package laws

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words that once named things of this project and say nothing to a newcomer.
// What is right of each is the word to use. English text may use them; names may not.
var privateWords = map[string]string{
	"desk": "hosted shard", "desks": "hosted shards",
	"door": "listener, transport", "doors": "listener, transport",
	"reign": "leadership",
	"party": "session record", "parties": "session records",
	"guest": "remote session", "guests": "remote sessions",
	"bond": "binding's shared data", "pledged": "unlogged attach",
	"vouch": "renew", "vouches": "renews", "vouched": "renewed",
	"retake":  "take over again",
	"strewn":  "sent on several connections",
	"ear":     "handler",
	"told":    "notified",
	"tell":    "notify",
	"tells":   "notifies",
	"news":    "events",
	"letter":  "message",
	"letters": "messages",
	"mail":    "inbox",
	"crowd":   "workload",
	"excess":  "throttle",
	"kick":    "wake",
	"nudge":   "notify",
	"rouse":   "wake",
	"sentry":  "failure detector driver", "sentinel": "failure detector",
	"mesh":  "peer transport",
	"young": "nursery or delayed", "dying": "ending", "stranded": "orphaned", "bury": "purge",
	"dismantle": "remove", "belongings": "holdings", "things": "references",
	"settle": "confirm, resolve or drain", "settled": "confirmed, resolved or drained",
	"standing": "queue status, member status or startup state",
	"insist":   "retry", "salvage": "recover", "calm": "suppress elections",
	"descend": "process tree",
	"duties":  "leader tasks", "judge": "classify", "introduce": "describe remote session",
	"deal": "assign", "parked": "idle",
}

// TestNamesUseTheFieldsWords: no file and no declared name has a private word in it.
func TestNamesUseTheFieldsWords(t *testing.T) {
	list, fset := packages(t)
	report := func(place, name string) {
		for _, w := range splitName(name) {
			if better, private := privateWords[w]; private {
				t.Errorf("%s: %s has the word %q; say %s", place, name, w, better)
			}
		}
	}
	for _, p := range list {
		for _, files := range []map[string]*ast.File{p.files, p.tests} {
			for file, f := range files {
				report(file, strings.TrimSuffix(path.Base(file), ".go"))
				declared(f, func(id *ast.Ident) { report(fset.Position(id.Pos()).String(), id.Name) })
				metricNames(f, func(lit *ast.BasicLit, name string) { report(fset.Position(lit.Pos()).String(), name) })
			}
		}
	}
}

// TestFilesDifferByMoreThanAnS: no two files of a folder have names that only an s tells apart.
func TestFilesDifferByMoreThanAnS(t *testing.T) {
	list, _ := packages(t)
	for _, p := range list {
		all := map[string]bool{}
		for _, files := range []map[string]*ast.File{p.files, p.tests} {
			for file := range files {
				all[file] = true
			}
		}
		for file := range all {
			dir, name := path.Split(strings.TrimSuffix(file, ".go"))
			words := strings.Split(name, "_")
			for i, w := range words {
				words[i] = w + "s"
				if other := dir + strings.Join(words, "_") + ".go"; all[other] {
					t.Errorf("%s and %s differ by an s; give each a noun of its own", file, other)
				}
				words[i] = w
			}
		}
	}
}

// splitName gives the words of a name in lower case.
func splitName(name string) (words []string) {
	word := ""
	runes := []rune(name)
	for i, r := range runes {
		boundary := unicode.IsUpper(r) && (i == 0 || !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if boundary || !unicode.IsLetter(r) {
			if word != "" {
				words = append(words, word)
			}
			word = ""
		}
		if unicode.IsLetter(r) {
			word += string(unicode.ToLower(r))
		}
	}
	if word != "" {
		words = append(words, word)
	}
	return words
}

// declared calls f for each name that a file declares.
func declared(file *ast.File, f func(*ast.Ident)) {
	each := func(list []ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				f(id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f(n.Name)
		case *ast.TypeSpec:
			f(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				f(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				f(id)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				each(n.Lhs)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				each([]ast.Expr{n.Key, n.Value})
			}
		}
		return true
	})
}

var metricName = regexp.MustCompile(`\bsignalbox_[a-z0-9_]+`)

// metricNames calls f for each metric that a string of a file names.
func metricNames(file *ast.File, f func(lit *ast.BasicLit, name string)) {
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			for _, name := range metricName.FindAllString(lit.Value, -1) {
				f(lit, name)
			}
		}
		return true
	})
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{
		"HTTPServer": "http server", "newURL": "new url", "signalbox_peer_bytes": "signalbox peer bytes",
		"x2y": "x y", "ServeTCP": "serve tcp",
	} {
		if got := strings.Join(splitName(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
