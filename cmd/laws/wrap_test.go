package laws

import (
	"flag"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	update   = flag.Bool("update", false, "wrap comments and pages that are too wide")
	updateIn = flag.String("in", "", "with -update: only in what begins with this path")
)

var (
	// ownLayout matches a line of a comment or a page that is not joined with its neighbours.
	ownLayout = regexp.MustCompile(`^(\s|[-+*•#>|]|[0-9]+[.)]\s|[A-Z]+:$|go:)`)
	pageItem  = regexp.MustCompile(`^\s*(([-*+]|[0-9]+[.)])\s+)?`)
)

// wrapWords fills lines of a width; the first begins with first, the others with rest. No line
// begins with what would be the mark of a list.
func wrapWords(words []string, first, rest string, width int) (lines []string) {
	line, empty := first, true
	for _, w := range words {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > width && !ownLayout.MatchString(w+" ") {
			lines = append(lines, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+w, false
	}
	return append(lines, line)
}

// wrapComments wraps the wide paragraphs among the comments of a file.
func wrapComments(t *testing.T, fset *token.FileSet, name string, f *ast.File) {
	lines := strings.Split(read(t, name), "\n")
	changed := false
	for i := len(f.Comments) - 1; i >= 0; i-- { // from below, so that numbers of lines stay true
		group := f.Comments[i]
		first, last := fset.Position(group.Pos()).Line-1, fset.Position(group.End()).Line-1
		indent := lines[first][:len(lines[first])-len(strings.TrimLeft(lines[first], "\t"))]
		if !strings.HasPrefix(lines[first], indent+"//") {
			continue
		}
		var out, words []string
		wide := false
		flush := func(from, to int) {
			if wide {
				changed = true
				for _, l := range wrapWords(words, "", "", maxColumns-4*len(indent)-3) {
					out = append(out, indent+"// "+l)
				}
			} else {
				out = append(out, lines[from:to]...)
			}
			words, wide = nil, false
		}
		from := first
		for n := first; n <= last; n++ {
			text, ok := strings.CutPrefix(lines[n], indent+"// ")
			if !ok || ownLayout.MatchString(text) || strings.Contains(text, "://") {
				flush(from, n)
				out = append(out, lines[n])
				from = n + 1
				continue
			}
			words = append(words, strings.Fields(text)...)
			wide = wide || columns(lines[n]) > maxColumns
		}
		flush(from, last+1)
		lines = append(lines[:first:first], append(out, lines[last+1:]...)...)
	}
	if changed {
		write(t, name, strings.Join(lines, "\n"))
	}
}

// wrapPage wraps the wide paragraphs and list items of a page.
func wrapPage(t *testing.T, name string, text []byte) {
	lines := strings.Split(string(text), "\n")
	var out []string
	prose := proseLines(text)
	for n := 0; n < len(lines); n++ {
		if n >= len(prose) || strings.TrimSpace(prose[n].text) == "" || strings.HasPrefix(prose[n].text, "#") {
			out = append(out, lines[n])
			continue
		}
		end, wide := n+1, columns(lines[n]) > maxColumns
		for end < len(prose) && strings.TrimSpace(prose[end].text) != "" && !listItem.MatchString(lines[end]) &&
			!strings.HasPrefix(lines[end], "#") {
			wide = wide || columns(lines[end]) > maxColumns
			end++
		}
		if wide {
			mark := pageItem.FindString(lines[n])
			words := strings.Fields(strings.Join(lines[n:end], " ")[len(mark):])
			out = append(out, wrapWords(words, mark, strings.Repeat(" ", len(mark)), maxColumns)...)
		} else {
			out = append(out, lines[n:end]...)
		}
		n = end - 1
	}
	if joined := strings.Join(out, "\n"); joined != string(text) {
		write(t, name, joined)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
