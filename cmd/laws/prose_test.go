package laws

import (
	"bufio"
	"bytes"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the width of comments and pages; a tab counts four.
const maxColumns = 100

// maxSentence is the length of a page's sentence, in words.
const maxSentence = 35

// listParts is how many commas make a table's cell a list.
const listParts = 12

// generatedPages are written by programs, or are records of runs.
func generatedPages(name string) bool {
	return inFolder(name, "bench/results") || strings.Contains(name, "/testdata/")
}

// TestCommentsFitTheWidth: a comment on lines of its own has at most maxColumns columns.
func TestCommentsFitTheWidth(t *testing.T) {
	list, fset := packages(t)
	for _, p := range list {
		for _, files := range []map[string]*ast.File{p.files, p.tests} {
			for name, f := range files {
				if *update && strings.HasPrefix(p.dir, *updateIn) {
					wrapComments(t, fset, name, f)
					continue
				}
				for _, group := range f.Comments {
					for _, c := range group.List {
						at := fset.Position(c.Pos())
						if strings.HasPrefix(c.Text, "//go:") || strings.Contains(c.Text, "://") {
							continue
						}
						indent := at.Column - 1 // tabs, where the comment has a line of its own
						lines := strings.Split(c.Text, "\n")
						wide := utf8.RuneCountInString(lines[0])+4*indent > maxColumns && ownLine(t, at.Filename, at.Line)
						for _, l := range lines[1:] {
							wide = wide || columns(l) > maxColumns
						}
						if wide {
							t.Errorf("%s: the comment has more than %d columns", at, maxColumns)
						}
					}
				}
			}
		}
	}
}

var sources = map[string][][]byte{}

// ownLine says whether a line of a file begins with a comment.
func ownLine(t *testing.T, file string, line int) bool {
	if sources[file] == nil {
		sources[file] = bytes.Split([]byte(read(t, strings.TrimPrefix(file, root+"/"))), []byte("\n"))
	}
	return bytes.HasPrefix(bytes.TrimLeft(sources[file][line-1], "\t"), []byte("//"))
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// TestPagesFitTheWidth: a line of a page has at most maxColumns columns, and a sentence at most
// maxSentence words. Tables and examples are not wrapped, and a single long word cannot be.
func TestPagesFitTheWidth(t *testing.T) {
	eachText(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") || generatedPages(name) {
			return
		}
		if *update && strings.HasPrefix(name, *updateIn) {
			wrapPage(t, name, text)
			return
		}
		report := func(line int, format string, args ...any) {
			t.Errorf("%s:%d: "+format, append([]any{name, line}, args...)...)
		}
		for _, l := range proseLines(text) {
			if columns(l.text) > maxColumns && strings.Contains(strings.TrimLeft(l.text, " -*>#"), " ") {
				report(l.number, "%d columns, more than %d", columns(l.text), maxColumns)
			}
		}
		for _, s := range pageSentences(text) {
			if n := len(strings.Fields(s.text)); n > maxSentence {
				report(s.number, "a sentence of %d words, more than %d: %s", n, maxSentence, s.text)
			}
		}
	})
}

// numbered is a piece of a page and the number of its first line.
type numbered struct {
	number int
	text   string
}

// proseLines are the lines of a page outside of tables, comments and fenced examples; an empty
// line ends a paragraph.
func proseLines(text []byte) (list []numbered) {
	fenced := ""
	scan := bufio.NewScanner(bytes.NewReader(text))
	scan.Buffer(nil, len(text)+1)
	for n := 1; scan.Scan(); n++ {
		line := scan.Text()
		start := strings.TrimLeft(line, " >")
		switch {
		case fenced != "":
			if strings.HasPrefix(start, fenced) {
				fenced = ""
			}
			line = ""
		case strings.HasPrefix(start, "```"):
			fenced, line = "```", ""
		case strings.HasPrefix(start, "|"), strings.HasPrefix(start, "<!--"):
			line = ""
		}
		list = append(list, numbered{n, line})
	}
	return list
}

var (
	listItem    = regexp.MustCompile(`^\s*([-*+]|[0-9]+[.)])\s+`)
	sentenceEnd = regexp.MustCompile(`[.!?][)"*_]*\s+`)
)

// pageSentences are the sentences of paragraphs, list items and cells of tables.
func pageSentences(text []byte) (list []numbered) {
	split := func(number int, paragraph string) {
		for _, s := range sentenceEnd.Split(paragraph, -1) {
			if strings.TrimSpace(s) != "" {
				list = append(list, numbered{number, strings.TrimSpace(s)})
			}
		}
	}
	var paragraph []string
	first := 0
	flush := func() {
		split(first, strings.Join(paragraph, " "))
		paragraph = nil
	}
	for _, l := range proseLines(text) {
		switch {
		case strings.TrimSpace(l.text) == "":
			flush()
			continue
		case listItem.MatchString(l.text), strings.HasPrefix(l.text, "#"):
			flush()
		}
		if len(paragraph) == 0 {
			first = l.number
		}
		paragraph = append(paragraph, strings.TrimSpace(listItem.ReplaceAllString(l.text, "")))
		if strings.HasPrefix(l.text, "#") {
			flush()
		}
	}
	flush()
	for _, r := range tableRows(text) {
		for _, c := range r.cells {
			if strings.Count(c, ",") >= listParts {
				continue // fields or values, no sentence
			}
			split(r.number, c)
		}
	}
	return list
}

// tableRow is a row of a table; header is the number of cells of the table's first row.
type tableRow struct {
	number, header int
	cells          []string
}

// tableRows are the rows of a page's tables.
func tableRows(text []byte) (list []tableRow) {
	fenced, header, n := false, 0, 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced || !strings.HasPrefix(line, "|") {
			header = 0
			continue
		}
		cells := tableCells(line)
		if header == 0 {
			header = len(cells)
		}
		list = append(list, tableRow{n, header, cells})
	}
	return list
}

// tableCells splits a row at its bars; an escaped one is text.
func tableCells(line string) []string {
	line = strings.ReplaceAll(line, `\|`, "\x00")
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	cells := strings.Split(line, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
	}
	return cells
}

var tableRule = regexp.MustCompile(`^:?-+:?$`)

// TestTablesAreWhole: a table has a rule below its header, and each row has the header's number of
// cells.
func TestTablesAreWhole(t *testing.T) {
	tables := 0
	eachText(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		rows := tableRows(text)
		for i, r := range rows {
			if len(r.cells) != r.header {
				t.Errorf("%s:%d: the row has %d cells, the header %d", name, r.number, len(r.cells), r.header)
			}
			if i == 0 || rows[i-1].number != r.number-1 {
				tables++
				if i+1 == len(rows) || rows[i+1].number != r.number+1 || !tableRule.MatchString(rows[i+1].cells[0]) {
					t.Errorf("%s:%d: the table has no rule below its header", name, r.number)
				}
			}
		}
	})
	if tables < 50 {
		t.Errorf("found %d tables: too few to be true", tables)
	}
}

func TestPageSentences(t *testing.T) {
	page := "# A title\n\nOne two. Three\nfour!\n\n- five six\n  seven\n- eight (nine). Ten\n\n```\nnot. this\n```\n\n| a | b |\n|---|---|\n| x \\| y. z | w |\n"
	var got []string
	for _, s := range pageSentences([]byte(page)) {
		got = append(got, s.text)
	}
	want := []string{"# A title", "One two", "Three four!", "five six seven", "eight (nine)", "Ten", "a", "b", "---",
		"---", "x | y", "z", "w"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
