package console

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/signalbox-dev/signalbox/client"
)

// page is what one page shows. The document and its live updates are made of the same page, so that
// they cannot differ.
type page struct {
	Status  int          `json:"-"` // of HTTP; 0: 200
	missing bool         // the object does not exist now, and may any time
	Section string       `json:"-"` // of the navigation
	Node    string       `json:"-"` // path of the coordination node that the page is about
	Title   string       `json:"-"` // what kind of object it is about, or what it lists
	Name    string       `json:"-"` // of the object, escaped; empty for a list
	Lead    string       `json:"-"` // a sentence for people who come here for the first time
	Crumbs  []link       `json:"-"`
	Filter  *filter      `json:"-"`
	Actions []link       `json:"-"`
	Login   *loginForm   `json:"-"`
	Ask     *askForm     `json:"-"`
	Confirm *confirmForm `json:"-"`

	Figure *figure `json:"figure,omitempty"`
	Notes  []note  `json:"notes"`
	Facts  []fact  `json:"facts"`
	Tables []table `json:"tables"`
}

// equal reports whether two pages show the same in what changes while they are looked at.
func (p *page) equal(q *page) bool {
	if (p.Figure == nil) != (q.Figure == nil) || !slices.Equal(p.Notes, q.Notes) {
		return false
	}
	if p.Figure != nil && (p.Figure.Text != q.Figure.Text || !p.Figure.Bar.equal(&q.Figure.Bar)) {
		return false
	}
	sameFact := func(a, b fact) bool { return a.Key == b.Key && a.Label == b.Label && a.Cell.equal(&b.Cell) }
	if !slices.EqualFunc(p.Facts, q.Facts, sameFact) {
		return false
	}
	return slices.Equal(p.Actions, q.Actions) && slices.EqualFunc(p.Tables, q.Tables, func(a, b table) bool {
		return a.ID == b.ID && a.Title == b.Title && slices.Equal(a.Columns, b.Columns) && a.Empty == b.Empty &&
			a.Count == b.Count && a.First == b.First && a.Next == b.Next && slices.EqualFunc(a.Rows, b.Rows, row.equal)
	})
}

// Shape is a hash of what updates do not bring: the buttons, the tables and their columns. They go
// with rights, and with what there is at all. A tab that shows another shape loads its page again.
func (p *page) Shape() string {
	h := xxhash.New()
	add := func(texts ...string) {
		for _, s := range texts {
			_, _ = fmt.Fprintf(h, "%q", s) // it never fails
		}
	}
	for _, a := range p.Actions {
		add("button", a.Text, a.Href)
	}
	for i := range p.Tables {
		add("table", p.Tables[i].ID)
		for _, c := range p.Tables[i].Columns {
			add(c.Title)
		}
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

func (r row) equal(x row) bool {
	same := func(a, b cell) bool { return a.equal(&b) }
	return r.Key == x.Key && r.Tone == x.Tone && slices.EqualFunc(r.Cells, x.Cells, same)
}

func (c *cell) equal(x *cell) bool {
	a, b := *c, *x
	a.Bar, b.Bar = nil, nil
	return a == b && (c.Bar == x.Bar || c.Bar != nil && x.Bar != nil && c.Bar.equal(x.Bar))
}

func (b *bar) equal(x *bar) bool { return b.Label == x.Label && slices.Equal(b.Parts, x.Parts) }

func (p *page) note(tone, text string) {
	p.Notes = append(p.Notes, note{Tone: tone, Text: text})
}

// detail adds a note that is folded.
func (p *page) detail(tone, text string) {
	p.Notes = append(p.Notes, note{Tone: tone, Text: text, Fold: true})
}

// table is one of the page's tables; nil: it has none with this id.
func (p *page) table(id string) *table {
	for i := range p.Tables {
		if p.Tables[i].ID == id {
			return &p.Tables[i]
		}
	}
	return nil
}

// fact is the text of one of the page's facts.
func (p *page) fact(key string) string {
	for i := range p.Facts {
		if p.Facts[i].Key == key {
			return p.Facts[i].Cell.Text
		}
	}
	return ""
}

// link is a link within the console.
type link struct{ Text, Href string }

// note is a sentence that somebody should read. Tone is good, warn or bad.
type note struct {
	Tone string `json:"tone"`
	Text string `json:"text"`
	Fold bool   `json:"fold,omitempty"` // it is a detail, shown when somebody asks for details
}

// fact is a labelled value.
type fact struct {
	Key   string `json:"key"` // unique in its page
	Label string `json:"label"`
	Cell  cell   `json:"cell"`
}

// figure is the picture of a semaphore: its units in a bar.
type figure struct {
	Bar  bar    `json:"bar"`
	Text string `json:"text"`
}

// filter is the form above a list.
type filter struct {
	Action       string // path of the list
	Label        string // of what is typed; empty: how names begin
	Node, Prefix string
	Order        string // as the address has it
	Outcome      string // as the address has it
	Orders       []choice
	Outcomes     []choice
}

// choice is a link to another order of a list, or another part of it.
type choice struct {
	Text, Href string
	Current    bool
}

// loginForm asks for a token. To is the address to go to then.
type loginForm struct{ To string }

// table is a list of objects.
type table struct {
	ID      string   `json:"id"` // unique in its page
	Title   string   `json:"title"`
	Kind    string   `json:"-"` // class of the style sheet: tiles, or none
	Columns []column `json:"-"`
	Rows    []row    `json:"rows"`
	Empty   string   `json:"empty"` // what is said in place of rows
	Count   string   `json:"count"` // how many there are, if more than the rows shown
	First   string   `json:"first"` // address of the first page of the list, if this is another
	Next    string   `json:"next"`  // address of the next page
}

type column struct {
	Title string
	Kind  string // num for numbers
}

// actionColumn is the last column of tables whose rows can be acted upon.
const actionColumn = "Action"

// dropActions takes the actions off a table that is part of another action's page.
func (t *table) dropActions() {
	last := len(t.Columns) - 1
	if last < 0 || t.Columns[last].Title != actionColumn {
		return
	}
	t.Columns = t.Columns[:last]
	for i := range t.Rows {
		t.Rows[i].Cells = t.Rows[i].Cells[:last]
	}
}

func newTable(id, title, empty string, columns ...column) table {
	return table{ID: id, Title: title, Empty: empty, Columns: columns}
}

func col(title string) column    { return column{Title: title} }
func numCol(title string) column { return column{title, "num"} }

// row is a line of a table. Its first cell names what the line is about.
type row struct {
	Key   string `json:"key"` // unique in its table, and the same while the object lives
	Tone  string `json:"tone,omitempty"`
	Cells []cell `json:"cells"`
}

// cell is a value: text only, never HTML.
type cell struct {
	Text string `json:"t,omitempty"`
	Kind string `json:"k,omitempty"` // class of the style sheet: name, data, num, good, warn, bad, quiet
	Href string `json:"h,omitempty"`
	At   int64  `json:"a,omitempty"` // ms since 1970: shows the time since then in place of Text
	Left bool   `json:"l,omitempty"` // it shows the time until then
	Note string `json:"n,omitempty"` // a smaller second line
	Bar  *bar   `json:"b,omitempty"`
	Line string `json:"s,omitempty"` // the points of a line in a picture of 300 x 40, of a value over time
}

// bar shows parts of a whole. Its parts have at most 1,000 thousandths together.
type bar struct {
	Label string    `json:"l"` // the same in words
	Parts []barPart `json:"p"`
}

type barPart struct {
	From  int    `json:"x"` // thousandths
	Size  int    `json:"w"`
	Kind  string `json:"k"`           // class of the style sheet: held, mine, over, now
	Title string `json:"t,omitempty"` // shown to those who point at it
}

func text(s string) cell  { return cell{Text: s} }
func quiet(s string) cell { return cell{Text: s, Kind: "quiet"} }

// none stands for no value. A narrow page leaves it out.
func none() cell { return cell{Text: "–", Kind: "quiet none"} }

func number(n uint64) cell { return cell{Text: group(n), Kind: "num"} }

// zeroQuiet is a number that matters only if it is not 0.
func zeroQuiet(n uint64) cell {
	if n == 0 {
		return cell{Text: "0", Kind: "num quiet zero"}
	}
	return number(n)
}

// units is a count or a limit.
func units(n uint64) cell { return cell{Text: amount(n), Kind: "num"} }

func amount(n uint64) string {
	if n == client.Max {
		return "max"
	}
	return group(n)
}

// nameCell is a name of an object: arbitrary bytes.
func nameCell(name, href string) cell { return cell{Text: visible(name), Kind: "name", Href: href} }

// sessionCell is a session by its description, or by its id if it has none.
func sessionCell(node string, id uint64, description string) cell {
	c := cell{Text: visible(description), Kind: "who", Href: sessionURL(node, id)}
	if description == "" {
		c.Text, c.Kind = strconv.FormatUint(id, 10), "num id"
	}
	return c
}

func duration(d time.Duration) cell {
	if d == client.Forever {
		return quiet("none")
	}
	return cell{Text: durationText(d), Kind: "num"}
}

// usedBar is the bar of a semaphore.
func usedBar(used, limit uint64) *bar {
	b := &bar{Label: amount(used) + " of " + amount(limit) + " units held"}
	if size := thousandths(used, limit); size > 0 {
		kind := "held"
		if used > limit {
			kind = "over"
		}
		b.Parts = []barPart{{From: 0, Size: size, Kind: kind}}
	}
	return b
}

// thousandths is part of whole; a part that is not 0 can be seen.
func thousandths(part, whole uint64) int {
	switch {
	case part == 0 || whole == 0:
		return 0
	case part >= whole:
		return 1000
	}
	return max(6, int(float64(part)/float64(whole)*1000))
}

// address is a path of the console with a query.
func address(path string, pairs ...string) string {
	q := make(url.Values)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

func semaphoreURL(node, name string) string {
	return address("/semaphore", "node", node, "name", encodeName(name))
}

func sessionURL(node string, id uint64) string {
	return address("/session", "node", node, "id", strconv.FormatUint(id, 10))
}
