package laws

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// maxCodeColumns is the width of a line of Go; a tab counts four.
const maxCodeColumns = 140

// tableLine matches what has a line of its own in a literal: an element in braces, or a key and a
// string.
var tableLine = regexp.MustCompile("^((\"[^\"]*\"|`[^`]*`|[\\w.]+): +)?(&?\\{.*\\}|\"[^\"]*\"|`[^`]*`),?$")

// TestCodeFitsTheWidth: a line of code has at most maxCodeColumns columns, unless it is a line of a
// table, or has a string that would be as wide on a line of its own.
func TestCodeFitsTheWidth(t *testing.T) {
	list, _ := packages(t)
	for _, p := range list {
		for name := range p.files {
			reportWideLines(t, name)
		}
		for name := range p.tests {
			reportWideLines(t, name)
		}
	}
}

func reportWideLines(t *testing.T, name string) {
	text := read(t, name)
	for _, line := range wideLines(text) {
		t.Errorf("%s:%d: %d columns, more than %d: break the line where its parts begin",
			name, line, columns(strings.Split(text, "\n")[line-1]), maxCodeColumns)
	}
}

// wideLines are the numbers of the lines of a file that are too wide, and can be broken. A comment
// on lines of its own has another width.
func wideLines(text string) (list []int) {
	if strings.HasPrefix(text, "// Code generated") {
		return nil
	}
	lines := strings.Split(text, "\n")
	whole := map[int]bool{} // a string or a comment leaves no place to break
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	for {
		at, kind, value := s.Scan()
		if kind == token.EOF {
			break
		}
		first := file.Line(at)
		indent := len(lines[first-1]) - len(strings.TrimLeft(lines[first-1], "\t"))
		alone := strings.TrimSpace(lines[first-1]) == strings.SplitN(value, "\n", 2)[0]
		for i, part := range strings.Split(value, "\n") {
			switch {
			case kind == token.STRING && (i > 0 || 4*(indent+1)+columns(part) > maxCodeColumns):
				whole[first+i] = true
			case kind == token.COMMENT && (i > 0 || alone):
				whole[first+i] = true
			}
		}
	}
	for i, line := range lines {
		if columns(line) > maxCodeColumns && !whole[i+1] && !tableLine.MatchString(strings.TrimSpace(line)) {
			list = append(list, i+1)
		}
	}
	return list
}

func TestWideLines(t *testing.T) {
	wide := strings.Repeat("x", maxCodeColumns-40)
	calls := strings.Repeat("f(1, 2)\n", 3)
	for text, want := range map[string]bool{
		"\tf(a, \"" + wide + "\")\n":                                                           false,
		"\tf(a, \"" + wide + "\", strconv.Itoa(the.number.of.something))\n":                    true,
		"\tf(a, \"" + wide + strings.Repeat("x", 40) + "\", b)\n":                              false,
		"\tf(a, `" + wide + strings.Repeat("x", 40) + "\n` + b)\n":                             false,
		"\tf(a, `\n" + wide + strings.Repeat("x", 40) + "\n` + b)\n":                           false,
		"\t{\"" + wide + "\", a, someFunction(the, arguments, of, it, all), and, more},\n":     false,
		"\t\"key\": {\"" + wide + "\", a, someFunction(the, arguments, of, it, all), more},\n": false,
		"\tx := []row{{\"" + wide + "\", a, someFunction(the, arguments, of, it, all)}}\n":     true,
		"\ta := b // " + wide + strings.Repeat(" x", 20) + "\n":                                true,
		"\t// " + wide + strings.Repeat(" x", 20) + "\n":                                       false,
	} {
		if got := wideLines("package p\n" + calls + text); (len(got) > 0) != want {
			t.Errorf("wide lines %v, want any: %v\n%s", got, want, text)
		}
	}
}
