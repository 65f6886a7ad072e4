package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// The lists of a topView between which Tab goes.
const (
	listSemaphores = iota
	listSessions
	lists
)

// topOrder is an order of a list: its name in --sort and the help, and the column that has it.
type topOrder struct {
	name   string
	column string
}

// semaphoreOrders and sessionOrders are the orders of the two lists, the first by default. Equal
// rows follow in the order of the first.
var (
	semaphoreOrders = []topOrder{{"waiters", "waiters"}, {"wait", "oldest"}, {"grants", "grants/s"},
		{"owners", "owners"}, {"name", "semaphore"}}
	sessionOrders = []topOrder{{"holds", "holds"}, {"waits", "waits"}, {"id", "session"}}
)

func sortSemaphores(list []admin.TopSemaphore, order string) {
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

// topView is what a full screen shows, as lines. It has no clock, terminal or connection.
type topView struct {
	width, height int
	color         bool
	source        string // where it was asked
	interval      time.Duration
	paused        bool

	top *admin.Top // nil: nothing was answered yet
	at  time.Time  // of top
	now time.Time
	err error // of the last refresh

	deadlocks []topDeadlock // as of the last look for them

	list     int          // that the keys are about
	order    [lists]int   // in semaphoreOrders and sessionOrders
	selected [lists]topID // a row that is gone leaves the selection where it was
	at0      [lists]int   // place of the selected row
	first    [lists]int   // first row that is shown
	filter   string
	editing  bool // keys go to the filter
	help     bool

	detail *topDetail // nil: the lists
}

// topID names a row: a semaphore, or a session without a name.
type topID struct {
	path, name string
	session    uint64
}

// topDetail is what is shown about one row.
type topDetail struct {
	id    topID
	lines []string // nil: it was not answered yet
	first int
}

// semaphores are those that the filter lets through, in order.
func (v *topView) semaphores() (list []admin.TopSemaphore) {
	if v.top == nil {
		return nil
	}
	for _, s := range v.top.Semaphores {
		if v.matches(s.Path, s.Name) {
			list = append(list, s)
		}
	}
	sortSemaphores(list, semaphoreOrders[v.order[listSemaphores]].name)
	return list
}

func (v *topView) sessions() (list []admin.TopSession) {
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

func (v *topView) matches(texts ...string) bool {
	return slices.ContainsFunc(texts,
		func(t string) bool { return strings.Contains(strings.ToLower(t), strings.ToLower(v.filter)) })
}

// ids are the rows of a list.
func (v *topView) ids(list int) (ids []topID) {
	if list == listSessions {
		for _, s := range v.sessions() {
			ids = append(ids, topID{path: s.Path, session: s.ID})
		}
		return ids
	}
	for _, s := range v.semaphores() {
		ids = append(ids, topID{path: s.Path, name: s.Name})
	}
	return ids
}

// find puts the selection of a list on its row, or on the one that took its place.
func (v *topView) find(list int) (ids []topID) {
	ids = v.ids(list)
	if i := slices.Index(ids, v.selected[list]); i >= 0 {
		v.at0[list] = i
	} else {
		v.move(list, ids, v.at0[list])
	}
	return ids
}

// move selects the row at a place, or the nearest one.
func (v *topView) move(list int, ids []topID, at int) {
	v.at0[list] = max(0, min(at, len(ids)-1))
	v.selected[list] = topID{}
	if len(ids) > 0 {
		v.selected[list] = ids[v.at0[list]]
	}
}

// render is the screen, one text for each row.
func (v *topView) render() []string {
	lines := []string{v.titleLine(), v.statusLine()}
	switch {
	case v.help:
		for _, line := range topHelp {
			lines = append(lines, fit(line, v.width))
		}
	case v.detail != nil:
		lines = append(lines, v.detailLines(v.height-3)...)
	case v.top != nil:
		lines = append(lines, v.tables(v.height-3)...)
	}
	lines = lines[:min(len(lines), max(0, v.height-1))]
	for len(lines) < v.height-1 {
		lines = append(lines, "")
	}
	return append(lines, v.keysLine())
}

const reverse = "\x1b[7m"

// bar is a line in reverse over the whole width.
func (v *topView) bar(text string) string { return paint(v.color, reverse, fit(text, v.width)) }

func (v *topView) titleLine() string {
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
		text += fmt.Sprintf("  %d/%d instances  %s req/s", answered, len(v.top.Instances), shortRate(requests))
	}
	text += "  " + sanitize(v.source) // last: it may be cut
	pace := "every " + v.interval.String()
	if v.paused {
		pace = "PAUSED"
	}
	right := "  " + pace + "  " + v.now.Format("15:04:05")
	n := utf8.RuneCountInString(right)
	return paint(v.color, bold, fit(text, v.width-n)+fit(right, min(v.width, n)))
}

// statusLine says what is wrong, or what is left out.
func (v *topView) statusLine() string {
	switch {
	case v.err != nil && v.top == nil:
		return paint(v.color, red, fit("no answer yet: "+sanitize(v.err.Error()), v.width))
	case v.err != nil:
		return paint(v.color, red, fit(fmt.Sprintf("this is %s old: %s", age(v.now.Sub(v.at)), sanitize(v.err.Error())), v.width))
	case v.top == nil:
		return fit("waiting for the first answer", v.width)
	case len(v.deadlocks) > 0:
		text := v.deadlocks[0].String()
		if more := len(v.deadlocks) - 1; more > 0 {
			text = fmt.Sprintf("%d deadlocks; %s", more+1, text)
		}
		return paint(v.color, red, fit(text, v.width))
	case v.editing || v.filter != "":
		shown, all := len(v.semaphores())+len(v.sessions()), len(v.top.Semaphores)+len(v.top.Sessions)
		return fit(fmt.Sprintf("filter %q: %d of %d rows", v.filter, shown, all), v.width)
	case !slices.ContainsFunc(v.top.Instances, func(i admin.TopInstance) bool { return i.Activity != nil }):
		return fit("what instances do is shown to identities with the right read on /", v.width)
	}
	return ""
}

func (v *topView) keysLine() string {
	text := v.keys([]string{"s sort", "/ filter", "Tab list", "↑↓ choose", "Enter why", "p pause"}, "? help  q quit")
	switch {
	case v.editing:
		text = "filter: " + sanitize(v.filter) + "_   Enter keep  Esc clear"
	case v.help:
		text = "any key: back"
	case v.detail != nil:
		text = "Esc back  ↑↓ scroll  r refresh  q quit"
	}
	return v.bar(text)
}

// keys are the keys that fit, with those that are always shown at the end.
func (v *topView) keys(list []string, always string) string {
	text := ""
	for _, k := range list {
		if utf8.RuneCountInString(text+k+"  "+always) > v.width {
			break
		}
		text += k + "  "
	}
	return text + always
}

var topHelp = strings.Split(`
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

func (v *topView) detailLines(height int) []string {
	d := v.detail
	title := "why: semaphore " + sanitize(d.id.name)
	if d.id.session != 0 {
		title = "session " + strconv.FormatUint(d.id.session, 10)
	}
	lines := []string{v.bar(title + "  node " + sanitize(d.id.path))}
	if d.lines == nil {
		return append(lines, fit("asking", v.width))
	}
	for _, line := range d.lines[min(d.first, len(d.lines)):] {
		lines = append(lines, fit(line, v.width))
	}
	return lines[:min(len(lines), max(1, height))]
}
