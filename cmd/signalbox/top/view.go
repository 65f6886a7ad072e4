// Package top is what the verb top shows on a full screen: the lists as lines of text, and what a
// key does to them. It is pure: the verb asks the cluster, looks at the clock and has the terminal.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// The lists of a View between which Tab goes.
const (
	listSemaphores = iota
	listSessions
	lists
)

// order is an order of a list: its name in --sort and the help, and the column that has it.
type order struct {
	name   string
	column string
}

// semaphoreOrders and sessionOrders are the orders of the two lists, the first by default. Equal
// rows follow in the order of the first.
var (
	semaphoreOrders = []order{{"waiters", "waiters"}, {"wait", "oldest"}, {"grants", "grants/s"},
		{"owners", "owners"}, {"name", "semaphore"}}
	sessionOrders = []order{{"holds", "holds"}, {"waits", "waits"}, {"id", "session"}}
)

// SortSemaphores sorts semaphores by the order of a name.
func SortSemaphores(list []admin.TopSemaphore, order string) {
	slices.SortFunc(list, func(a, b admin.TopSemaphore) int {
		first := 0
		switch order {
		case "grants":
			first = cmp.Compare(b.GrantsPerSecond, a.GrantsPerSecond)
		case "wait":
			first = cmp.Compare(b.OldestWait, a.OldestWait)
		case "owners":
			first = cmp.Compare(b.Owners, a.Owners)
		case "name":
			first = cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Name, b.Name))
		}
		return cmp.Or(first, cmp.Compare(b.Waiters, a.Waiters), cmp.Compare(b.GrantsPerSecond, a.GrantsPerSecond),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Name, b.Name))
	})
}

func sortSessions(list []admin.TopSession, order string) {
	slices.SortFunc(list, func(a, b admin.TopSession) int {
		first := 0
		switch order {
		case "holds":
			first = cmp.Compare(b.Held, a.Held)
		case "waits":
			first = cmp.Compare(b.Waiting, a.Waiting)
		case "id":
			first = cmp.Compare(a.ID, b.ID)
		}
		return cmp.Or(first, cmp.Compare(b.Held+b.Waiting, a.Held+a.Waiting), cmp.Compare(a.ID, b.ID))
	})
}

// Orders are the names of the orders of semaphores.
func Orders() (names []string) {
	for _, o := range semaphoreOrders {
		names = append(names, o.name)
	}
	return names
}

// View is what a full screen shows, as lines. It has no clock, terminal or connection. The caller
// sets the exported fields.
type View struct {
	Width, Height int
	Color         bool
	Source        string // where it was asked
	Interval      time.Duration
	Now           time.Time
	Deadlocks     []string // a sentence each, as of the last look for them

	paused bool
	top    *admin.Top // nil: nothing was answered yet
	at     time.Time  // of top
	err    error      // of the last refresh

	list     int        // that the keys are about
	order    [lists]int // in semaphoreOrders and sessionOrders
	selected [lists]ID  // a row that is gone leaves the selection where it was
	at0      [lists]int // place of the selected row
	first    [lists]int // first row that is shown
	filter   string
	editing  bool // keys go to the filter
	help     bool

	detail *detail // nil: the lists
}

// ID names a row: a semaphore, or a session without a name.
type ID struct {
	Path, Name string
	Session    uint64
}

// detail shows one row.
type detail struct {
	id    ID
	lines []string // nil: it was not answered yet
	first int
}

// Answer is what was asked for the screen: the lists, or what is shown about a row.
type Answer struct {
	Top   *admin.Top
	ID    ID // of the row; empty: the lists
	Lines []string
	Err   error
	At    time.Time
}

// Answered takes an answer.
func (v *View) Answered(a Answer) {
	switch {
	case a.ID != (ID{}):
		if v.detail != nil && v.detail.id == a.ID {
			v.detail.lines = a.Lines
			if a.Err != nil {
				v.detail.lines = []string{"", terminal.Sanitize(a.Err.Error())}
			}
			v.detail.first = max(0, min(v.detail.first, len(v.detail.lines)-1))
		}
	case a.Err != nil:
		v.err = a.Err
	default:
		v.top, v.at, v.err = a.Top, a.At, nil
	}
}

// SortBy orders the semaphores.
func (v *View) SortBy(order string) { v.order[listSemaphores] = slices.Index(Orders(), order) }

// Paused reports whether the lists stay as they are.
func (v *View) Paused() bool { return v.paused }

// Detail is the row that is explained; false: the lists are shown.
func (v *View) Detail() (ID, bool) {
	if v.detail == nil {
		return ID{}, false
	}
	return v.detail.id, true
}

// semaphores are those that the filter lets through, in order.
func (v *View) semaphores() (list []admin.TopSemaphore) {
	if v.top == nil {
		return nil
	}
	for _, s := range v.top.Semaphores {
		if v.matches(s.Path, s.Name) {
			list = append(list, s)
		}
	}
	SortSemaphores(list, semaphoreOrders[v.order[listSemaphores]].name)
	return list
}

func (v *View) sessions() (list []admin.TopSession) {
	if v.top == nil {
		return nil
	}
	for _, s := range v.top.Sessions {
		if v.matches(s.Path, s.Description, s.Client, strconv.FormatUint(s.ID, 10)) {
			list = append(list, s)
		}
	}
	sortSessions(list, sessionOrders[v.order[listSessions]].name)
	return list
}

func (v *View) matches(texts ...string) bool {
	return slices.ContainsFunc(texts,
		func(t string) bool { return strings.Contains(strings.ToLower(t), strings.ToLower(v.filter)) })
}

// ids are the rows of a list.
func (v *View) ids(list int) (ids []ID) {
	if list == listSessions {
		for _, s := range v.sessions() {
			ids = append(ids, ID{Path: s.Path, Session: s.ID})
		}
		return ids
	}
	for _, s := range v.semaphores() {
		ids = append(ids, ID{Path: s.Path, Name: s.Name})
	}
	return ids
}

// find puts the selection of a list on its row, or on the one that took its place.
func (v *View) find(list int) (ids []ID) {
	ids = v.ids(list)
	if i := slices.Index(ids, v.selected[list]); i >= 0 {
		v.at0[list] = i
	} else {
		v.move(list, ids, v.at0[list])
	}
	return ids
}

// move selects the row at a place, or the nearest one.
func (v *View) move(list int, ids []ID, at int) {
	v.at0[list] = max(0, min(at, len(ids)-1))
	v.selected[list] = ID{}
	if len(ids) > 0 {
		v.selected[list] = ids[v.at0[list]]
	}
}

// Render is the screen, one text for each row.
func (v *View) Render() []string {
	lines := []string{v.titleLine(), v.statusLine()}
	switch {
	case v.help:
		for _, line := range helpLines {
			lines = append(lines, terminal.Fit(line, v.Width))
		}
	case v.detail != nil:
		lines = append(lines, v.detailLines(v.Height-3)...)
	case v.top != nil:
		lines = append(lines, v.tables(v.Height-3)...)
	}
	lines = lines[:min(len(lines), max(0, v.Height-1))]
	for len(lines) < v.Height-1 {
		lines = append(lines, "")
	}
	return append(lines, v.keysLine())
}

// bar is a line in reverse over the whole width.
func (v *View) bar(text string) string {
	return terminal.Paint(v.Color, terminal.Reverse, terminal.Fit(text, v.Width))
}

func (v *View) titleLine() string {
	text := "signalbox top"
	if v.top != nil {
		answered, requests := 0, 0.0
		for _, i := range v.top.Instances {
			if i.Err == nil {
				answered++
			}
			if i.Activity != nil {
				requests += i.Activity.RequestsPerSecond
			}
		}
		text += fmt.Sprintf("  %d/%d instances  %s req/s", answered, len(v.top.Instances), ShortRate(requests))
	}
	text += "  " + terminal.Sanitize(v.Source) // last: it may be cut
	pace := "every " + v.Interval.String()
	if v.paused {
		pace = "PAUSED"
	}
	right := "  " + pace + "  " + v.Now.Format("15:04:05")
	n := utf8.RuneCountInString(right)
	return terminal.Paint(v.Color, terminal.Bold, terminal.Fit(text, v.Width-n)+terminal.Fit(right, min(v.Width, n)))
}

// statusLine shows an error, or how many rows are left out.
func (v *View) statusLine() string {
	switch {
	case v.err != nil && v.top == nil:
		return terminal.Paint(v.Color, terminal.Red, terminal.Fit("no answer yet: "+terminal.Sanitize(v.err.Error()),
			v.Width))
	case v.err != nil:
		return terminal.Paint(v.Color, terminal.Red, terminal.Fit(fmt.Sprintf("this is %s old: %s",
			terminal.Age(v.Now.Sub(v.at)), terminal.Sanitize(v.err.Error())), v.Width))
	case v.top == nil:
		return terminal.Fit("waiting for the first answer", v.Width)
	case len(v.Deadlocks) > 0:
		text := v.Deadlocks[0]
		if more := len(v.Deadlocks) - 1; more > 0 {
			text = fmt.Sprintf("%d deadlocks; %s", more+1, text)
		}
		return terminal.Paint(v.Color, terminal.Red, terminal.Fit(text, v.Width))
	case v.editing || v.filter != "":
		shown, all := len(v.semaphores())+len(v.sessions()), len(v.top.Semaphores)+len(v.top.Sessions)
		return terminal.Fit(fmt.Sprintf("filter %q: %d of %d rows", v.filter, shown, all), v.Width)
	case !slices.ContainsFunc(v.top.Instances, func(i admin.TopInstance) bool { return i.Activity != nil }):
		return terminal.Fit("what instances do is shown to identities with the right read on /", v.Width)
	}
	return ""
}

func (v *View) keysLine() string {
	text := v.keys([]string{"s sort", "/ filter", "Tab list", "↑↓ choose", "Enter why", "p pause"}, "? help  q quit")
	switch {
	case v.editing:
		text = "filter: " + terminal.Sanitize(v.filter) + "_   Enter keep  Esc clear"
	case v.help:
		text = "any key: back"
	case v.detail != nil:
		text = "Esc back  ↑↓ scroll  r refresh  q quit"
	}
	return v.bar(text)
}

// keys are the keys that fit, with those that are always shown at the end.
func (v *View) keys(list []string, always string) string {
	text := ""
	for _, k := range list {
		if utf8.RuneCountInString(text+k+"  "+always) > v.Width {
			break
		}
		text += k + "  "
	}
	return text + always
}

var helpLines = strings.Split(`
s        sort the list by its next column; the arrow in the header shows which
/        show only rows with a text in name, node, session or description
Esc      show all rows again
Tab      go between semaphores and sessions
↑ ↓      choose a row; also j and k, PgUp, PgDn, Home, End
Enter    why: who holds a semaphore, who waits, since when; what a session holds
p        pause, or go on; also Space
r        refresh now
q        quit; also ^C. ^Z suspends

GRANTS/S an estimate over about the last 15 s, rather too low than too high
OLDEST   how long the first waiter has waited; ! if it wants more than the limit
P50 P99  latency of changes in the server over the last 5 s
FSYNC    P99 of log writes in that time`, "\n")

func (v *View) detailLines(height int) []string {
	d := v.detail
	title := "why: semaphore " + terminal.Sanitize(d.id.Name)
	if d.id.Session != 0 {
		title = "session " + strconv.FormatUint(d.id.Session, 10)
	}
	lines := []string{v.bar(title + "  node " + terminal.Sanitize(d.id.Path))}
	if d.lines == nil {
		return append(lines, terminal.Fit("asking", v.Width))
	}
	for _, line := range d.lines[min(d.first, len(d.lines)):] {
		lines = append(lines, terminal.Fit(line, v.Width))
	}
	return lines[:min(len(lines), max(1, height))]
}
