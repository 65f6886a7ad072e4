package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
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
	semaphoreOrders = []topOrder{{"waiters", "waiters"}, {"wait", "oldest"}, {"grants", "grants/s"}, {"owners", "owners"}, {"name", "semaphore"}}
	sessionOrders   = []topOrder{{"holds", "holds"}, {"waits", "waits"}, {"id", "session"}}
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
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), strings.ToLower(v.filter)) })
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

// topAction is what the loop does after a key.
type topAction uint8

const (
	topNothing topAction = iota
	topQuit
	topSuspend
	topRepaint
	topRefresh
	topOpen // what is asked about v.detail.id
)

// press handles a key.
func (v *topView) press(k key) topAction {
	switch {
	case k == keyInterrupt:
		return topQuit
	case k == keySuspend:
		return topSuspend
	case k == keyRepaint:
		return topRepaint
	case v.editing:
		v.edit(k)
		return topNothing
	case v.help:
		v.help = false
		if k == 'q' {
			return topQuit
		}
		return topNothing
	case v.detail != nil:
		return v.pressDetail(k)
	}
	ids := v.find(v.list)
	page := max(1, v.height/2)
	switch k {
	case 'q':
		return topQuit
	case '?', 'h':
		v.help = true
	case '/':
		v.editing = true
	case keyEscape:
		v.filter = ""
	case keyTab, keyLeft, keyRight:
		v.list = (v.list + 1) % lists
	case keyUp, 'k':
		v.move(v.list, ids, v.at0[v.list]-1)
	case keyDown, 'j':
		v.move(v.list, ids, v.at0[v.list]+1)
	case keyPageUp:
		v.move(v.list, ids, v.at0[v.list]-page)
	case keyPageDown:
		v.move(v.list, ids, v.at0[v.list]+page)
	case keyHome:
		v.move(v.list, ids, 0)
	case keyEnd:
		v.move(v.list, ids, len(ids)-1)
	case 's':
		v.order[v.list] = (v.order[v.list] + 1) % len(v.orders(v.list))
		v.move(v.list, v.ids(v.list), 0)
	case ' ', 'p':
		v.paused = !v.paused
	case 'r':
		return topRefresh
	case keyEnter:
		if len(ids) > 0 {
			v.detail = &topDetail{id: v.selected[v.list]}
			return topOpen
		}
	}
	return topNothing
}

func (v *topView) orders(list int) []topOrder {
	if list == listSessions {
		return sessionOrders
	}
	return semaphoreOrders
}

// maxFilter bounds the filter, in runes.
const maxFilter = 60

func (v *topView) edit(k key) {
	switch {
	case k == keyEnter:
		v.editing = false
	case k == keyEscape:
		v.editing, v.filter = false, ""
	case k == keyClear:
		v.filter = ""
	case k == keyBackspace:
		_, n := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-n]
	case k >= ' ' && utf8.RuneCountInString(v.filter) < maxFilter:
		v.filter += string(rune(k))
	}
}

func (v *topView) pressDetail(k key) topAction {
	d := v.detail
	page := max(1, v.height-4)
	switch k {
	case 'q':
		return topQuit
	case keyEscape, keyEnter, keyBackspace, keyLeft:
		v.detail = nil
	case keyUp, 'k':
		d.first--
	case keyDown, 'j':
		d.first++
	case keyPageUp:
		d.first -= page
	case keyPageDown, ' ':
		d.first += page
	case keyHome:
		d.first = 0
	case keyEnd:
		d.first = len(d.lines)
	case 'r':
		return topOpen
	}
	d.first = max(0, min(d.first, len(d.lines)-1))
	return topNothing
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
	text := "signalbox top  " + sanitize(v.source)
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
	pace := "every " + v.interval.String()
	if v.paused {
		pace = "PAUSED"
	}
	right := "  " + pace + "  " + v.now.Format("15:04:05")
	return paint(v.color, bold, fit(text, v.width-utf8.RuneCountInString(right))+fit(right, min(v.width, utf8.RuneCountInString(right))))
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
	case v.editing || v.filter != "":
		shown, all := len(v.semaphores())+len(v.sessions()), len(v.top.Semaphores)+len(v.top.Sessions)
		return fit(fmt.Sprintf("filter %q: %d of %d rows", v.filter, shown, all), v.width)
	case !slices.ContainsFunc(v.top.Instances, func(i admin.TopInstance) bool { return i.Activity != nil }):
		return fit("what instances do is shown to identities with the right read on /", v.width)
	}
	return ""
}

func (v *topView) keysLine() string {
	text := "s sort  / filter  Tab list  ↑↓ choose  Enter why  p pause  ? help  q quit"
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

var topHelp = strings.Split(`
s        sort the list by its next column; the arrow in the header shows which
/        show only rows whose node, name, session, description or client contains a text
Esc      show all rows again
Tab      go between semaphores and sessions
↑ ↓      choose a row; also j and k, PgUp, PgDn, Home, End
Enter    why: who holds a semaphore, who waits, since when; what a session holds
p        pause, or go on; also Space
r        refresh now
q        quit; also ^C. ^Z suspends

GRANTS/S an estimate over about the last 15 s, rather too low than too high
OLDEST   how long the first waiter has waited; ! if it wants more than the limit
P50 P99  latency of changes in the server over the last 5 s; FSYNC: P99 of log writes`, "\n")

// topColumn is a column of a list.
type topColumn struct {
	title string
	width int
	left  bool
	grows bool // it takes the room that is left, in the shares of the widths
	most  int  // up to this width; 0: any
	spare int  // columns with the highest number go first when there is no room; 0: never
}

// layout gives the columns widths that fill the line, behind two columns for the marker. A width of
// 0 leaves a column out.
func layout(columns []topColumn, width int) []int {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = c.width
	}
	room := func() int {
		used := 1
		for _, w := range widths {
			if w > 0 {
				used += w + 1
			}
		}
		return width - used
	}
	for room() < 0 {
		drop := -1
		for i, c := range columns {
			if widths[i] > 0 && c.spare > 0 && (drop < 0 || c.spare > columns[drop].spare) {
				drop = i
			}
		}
		if drop < 0 {
			break
		}
		widths[drop] = 0
	}
	left, shares := max(0, room()), 0
	for i, c := range columns {
		if c.grows && widths[i] > 0 {
			shares += c.width
		}
	}
	for i, c := range columns {
		if c.grows && widths[i] > 0 {
			more := left * c.width / shares
			if c.most > 0 {
				more = min(more, max(0, c.most-widths[i]))
			}
			widths[i] += more
			left -= more
			shares -= c.width
		}
	}
	return widths
}

// cells is a line of a list.
func cells(columns []topColumn, widths []int, texts []string) string {
	var b strings.Builder
	for i, text := range texts {
		if widths[i] == 0 {
			continue
		}
		b.WriteByte(' ')
		if columns[i].left {
			b.WriteString(fit(text, widths[i]))
		} else {
			b.WriteString(fitRight(text, widths[i]))
		}
	}
	return b.String()
}

// header is the line above a list; the column that it is ordered by has an arrow.
func (v *topView) header(columns []topColumn, widths []int, order string) string {
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = strings.ToUpper(c.title)
		if c.title == order {
			titles[i] += "↓"
		}
	}
	return v.bar(" " + cells(columns, widths, titles))
}

// tables are the lists in so many lines.
func (v *topView) tables(height int) (lines []string) {
	instances := v.instanceLines(max(3, height/6))
	if height >= 14 {
		lines = append(append(lines, instances...), "")
	}
	rows := height - len(lines) - 3 // two headers and a blank line
	semaphores, sessions := v.find(listSemaphores), v.find(listSessions)
	below := max(1, min(len(sessions), max(rows/3, rows-max(1, len(semaphores)))))
	above := max(1, rows-below)
	lines = append(append(lines, v.semaphoreLines(above)...), "")
	return append(lines, v.sessionLines(max(1, height-len(lines)-1))...)
}

func (v *topView) instanceLines(most int) []string {
	columns := []topColumn{
		{title: "instance", width: 12, left: true, grows: true, most: 12}, {title: "leads", width: 5, spare: 1}, {title: "req/s", width: 7}, {title: "err/s", width: 6, spare: 2},
		{title: "p50", width: 6, spare: 3}, {title: "p99", width: 6}, {title: "fsync", width: 6, spare: 4}, {title: "clients", width: 7, spare: 5}, {title: "sessions", width: 9, spare: 6},
		{title: "semaphores", width: 10, spare: 7}, {title: "uptime", width: 7, spare: 8}, {title: "address", width: 21, left: true, spare: 9},
	}
	for _, i := range v.top.Instances {
		columns[0].most = max(columns[0].most, utf8.RuneCountInString(sanitize(i.Name))+2)
	}
	widths := layout(columns, v.width)
	lines := []string{v.header(columns, widths, "")}
	list := v.top.Instances
	cut := len(list) > most
	if cut {
		// Those that do not answer come first: they matter most.
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b admin.TopInstance) int { return cmp.Compare(bit(b.Err != nil), bit(a.Err != nil)) })
		list = list[:most-1]
	}
	for _, i := range list {
		name := sanitize(i.Name)
		if i.Err != nil {
			lines = append(lines, paint(v.color, red, fit(fmt.Sprintf("! %s does not answer: %s", name, sanitize(i.Err.Error())), v.width)))
			continue
		}
		texts := make([]string, len(columns))
		texts[0] = name
		if a := i.Activity; a != nil {
			texts = []string{
				name, strconv.Itoa(len(a.Leads)), shortRate(a.RequestsPerSecond), shortRate(a.RejectedPerSecond), shortTime(a.ChangeP50), shortTime(a.ChangeP99),
				shortTime(a.LogWriteP99), shortCount(uint64(a.Connections)), shortCount(uint64(a.Sessions)), shortCount(uint64(a.Semaphores)), age(a.Uptime), sanitize(i.Address),
			}
		}
		lines = append(lines, fit(" "+cells(columns, widths, texts), v.width))
	}
	if cut {
		lines = append(lines, fit(fmt.Sprintf("  and %d more instances", len(v.top.Instances)-len(list)), v.width))
	}
	return lines
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// window is the part of a list that is shown in so many rows, with the selected one in it.
func (v *topView) window(list, n, rows int) (first, last int) {
	f := &v.first[list]
	*f = max(v.at0[list]-rows+1, min(*f, v.at0[list]))
	*f = max(0, min(*f, n-rows))
	return *f, min(n, *f+rows)
}

// listTitle is the title of a list's first column, with the part that is shown.
func listTitle(title string, first, last, n int) string {
	if last-first == n {
		return title
	}
	return fmt.Sprintf("%s %d-%d/%d", title, first+1, last, n)
}

func (v *topView) semaphoreLines(rows int) []string {
	list := v.semaphores()
	first, last := v.window(listSemaphores, len(list), rows)
	columns := []topColumn{
		{title: "semaphore", width: 18, left: true, grows: true, most: 18}, {title: "node", width: 8, left: true, grows: true, most: 8, spare: 3}, {title: "grants/s", width: 9}, {title: "waiters", width: 8},
		{title: "oldest", width: 7}, {title: "owners", width: 7, spare: 2}, {title: "used/limit", width: 10, spare: 1},
	}
	for _, s := range list {
		columns[0].most = max(columns[0].most, utf8.RuneCountInString(sanitize(s.Name))+2)
		columns[1].most = max(columns[1].most, utf8.RuneCountInString(s.Path)+2)
	}
	columns[1].width = max(8, min(columns[1].most, v.width/7))
	widths := layout(columns, v.width)
	order := semaphoreOrders[v.order[listSemaphores]].column
	header := slices.Clone(columns)
	header[0].title = listTitle("semaphore", first, last, len(list))
	if order == "semaphore" {
		order = header[0].title
	}
	lines := []string{v.header(header, widths, order)}
	if len(list) == 0 {
		return append(lines, v.empty("semaphore was granted or waited for lately"))
	}
	for i, s := range list[first:last] {
		wait := "-"
		if s.Waiters > 0 {
			wait = shortWait(s.OldestWait)
		}
		if s.Stuck {
			wait += "!"
		}
		used := "-"
		if s.Limit > 0 {
			used = shortCount(s.Used) + "/" + shortCount(s.Limit)
		}
		texts := []string{
			fitMiddle(sanitize(s.Name), widths[0]), fitLeft(sanitize(s.Path), widths[1]), shortRate(s.GrantsPerSecond), shortCount(uint64(s.Waiters)), wait, shortCount(uint64(s.Owners)), used,
		}
		lines = append(lines, v.row(listSemaphores, first+i, cells(columns, widths, texts), s.Stuck))
	}
	return lines
}

func (v *topView) sessionLines(rows int) []string {
	list := v.sessions()
	first, last := v.window(listSessions, len(list), rows)
	columns := []topColumn{
		{title: "session", width: 20, left: true}, {title: "holds", width: 6}, {title: "waits", width: 6}, {title: "client", width: 21, left: true, spare: 2},
		{title: "node", width: 8, left: true, spare: 3}, {title: "description", width: 14, left: true, grows: true, spare: 1},
	}
	for _, s := range list {
		columns[4].width = max(columns[4].width, min(utf8.RuneCountInString(s.Path), v.width/6))
	}
	widths := layout(columns, v.width)
	order := sessionOrders[v.order[listSessions]].column
	header := slices.Clone(columns)
	header[0].title = listTitle("session", first, last, len(list))
	if order == "session" {
		order = header[0].title
	}
	lines := []string{v.header(header, widths, order)}
	if len(list) == 0 {
		return append(lines, v.empty("session holds or waits for a semaphore"))
	}
	for i, s := range list[first:last] {
		who := sanitize(s.Client)
		if s.Detached {
			who = "detached"
		}
		texts := []string{
			strconv.FormatUint(s.ID, 10), shortCount(uint64(s.Held)), shortCount(uint64(s.Waiting)), who, fitLeft(sanitize(s.Path), widths[4]), sanitize(s.Description),
		}
		lines = append(lines, v.row(listSessions, first+i, cells(columns, widths, texts), false))
	}
	return lines
}

// empty is the row of a list without rows.
func (v *topView) empty(what string) string {
	if v.filter != "" {
		return fit("  no row matches the filter; Esc shows all", v.width)
	}
	return fit("  no "+what, v.width)
}

// row is a line of a list; the selected one is marked.
func (v *topView) row(list, at int, text string, alarm bool) string {
	if list == v.list && at == v.at0[list] {
		return v.bar(">" + text)
	}
	return paint(v.color && alarm, red, fit(" "+text, v.width))
}

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

// fitLeft cuts the beginning of a text that is too long: the end of a path says more.
func fitLeft(text string, width int) string {
	r := []rune(text)
	if len(r) <= width || width < 1 {
		return text
	}
	return "…" + string(r[len(r)-width+1:])
}

// fitMiddle cuts the middle of a text that is too long, behind its first third: names often begin
// alike, and their ends tell them apart.
func fitMiddle(text string, width int) string {
	r := []rune(text)
	if len(r) <= width || width < 2 {
		return text
	}
	head := width / 3
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

// shortCount is a number in at most five characters.
func shortCount(n uint64) string {
	switch {
	case n == client.Max:
		return "max"
	case n < 10_000:
		return strconv.FormatUint(n, 10)
	}
	return shortRate(float64(n))
}

// shortRate is a number of something a second.
func shortRate(f float64) string {
	switch {
	case f < 0.05:
		return "0"
	case f < 9.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	case f < 9_999.5:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	for _, unit := range "kMGTPE" {
		if f /= 1000; f < 99.95 {
			return strconv.FormatFloat(f, 'f', 1, 64) + string(unit)
		} else if f < 999.5 {
			return strconv.FormatFloat(f, 'f', 0, 64) + string(unit)
		}
	}
	return "many"
}

// shortTime is a latency; 0 is none.
func shortTime(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
}

// shortWait is how long somebody waits.
func shortWait(d time.Duration) string {
	if d < 10*time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return age(d)
}
