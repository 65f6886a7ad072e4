package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// column is a column of a list.
type column struct {
	title string
	width int
	left  bool
	grows bool // it takes the room that is left, in the shares of the widths
	most  int  // up to this width; 0: any
	spare int  // columns with the highest number go first when there is no room; 0: never
}

// layout gives the columns widths that fill the line, behind two columns for the marker. A width of
// 0 leaves a column out.
func layout(columns []column, width int) []int {
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
func cells(columns []column, widths []int, texts []string) string {
	var b strings.Builder
	for i, text := range texts {
		if widths[i] == 0 {
			continue
		}
		b.WriteByte(' ')
		if columns[i].left {
			b.WriteString(terminal.Fit(text, widths[i]))
		} else {
			b.WriteString(terminal.FitRight(text, widths[i]))
		}
	}
	return b.String()
}

// header is the line above a list; the column that it is ordered by has an arrow.
func (v *View) header(columns []column, widths []int, order string) string {
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
func (v *View) tables(height int) (lines []string) {
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

func (v *View) instanceLines(most int) []string {
	columns := []column{
		{title: "instance", width: 12, left: true, grows: true, most: 12}, {title: "leads", width: 5, spare: 1},
		{title: "req/s", width: 7}, {title: "err/s", width: 6, spare: 2},
		{title: "p50", width: 6, spare: 3}, {title: "p99", width: 6}, {title: "fsync", width: 6, spare: 4},
		{title: "clients", width: 7, spare: 5}, {title: "sessions", width: 9, spare: 6},
		{title: "semaphores", width: 10, spare: 7}, {title: "uptime", width: 7, spare: 8},
		{title: "address", width: 21, left: true, spare: 9},
	}
	for _, i := range v.top.Instances {
		columns[0].most = max(columns[0].most, utf8.RuneCountInString(terminal.Sanitize(i.Name))+2)
	}
	widths := layout(columns, v.Width)
	lines := []string{v.header(columns, widths, "")}
	list := v.top.Instances
	cut := len(list) > most
	if cut {
		// Those that do not answer come first: they matter most.
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b admin.TopInstance) int {
			return cmp.Compare(bit(b.Err != nil), bit(a.Err != nil))
		})
		list = list[:most-1]
	}
	for _, i := range list {
		name := terminal.Sanitize(i.Name)
		if i.Err != nil {
			lines = append(lines, terminal.Paint(v.Color, terminal.Red,
				terminal.Fit(fmt.Sprintf("! %s does not answer: %s", name, terminal.Sanitize(i.Err.Error())), v.Width)))
			continue
		}
		texts := make([]string, len(columns))
		texts[0] = name
		if a := i.Activity; a != nil {
			texts = []string{
				name, strconv.Itoa(len(a.Leads)), ShortRate(a.RequestsPerSecond), ShortRate(a.RejectedPerSecond),
				ShortTime(a.ChangeP50), ShortTime(a.ChangeP99), ShortTime(a.LogWriteP99),
				shortCount(uint64(a.Connections)), shortCount(uint64(a.Sessions)), shortCount(uint64(a.Semaphores)),
				terminal.Age(a.Uptime), terminal.Sanitize(i.Address),
			}
		}
		lines = append(lines, terminal.Fit(" "+cells(columns, widths, texts), v.Width))
	}
	if cut {
		lines = append(lines, terminal.Fit(fmt.Sprintf("  and %d more", len(v.top.Instances)-len(list)), v.Width))
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
func (v *View) window(list, n, rows int) (first, last int) {
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

// listHeader is the header of a list of n rows, of which some are shown.
func (v *View) listHeader(list int, columns []column, widths []int, first, last, n int) string {
	order := v.orders(list)[v.order[list]].column
	header := slices.Clone(columns)
	header[0].title = listTitle(columns[0].title, first, last, n)
	if order == columns[0].title {
		order = header[0].title
	}
	return v.header(header, widths, order)
}

func (v *View) semaphoreLines(rows int) []string {
	list := v.semaphores()
	first, last := v.window(listSemaphores, len(list), rows)
	columns := []column{
		{title: "semaphore", width: 18, left: true, grows: true, most: 18},
		{title: "node", width: 8, left: true, grows: true, most: 8, spare: 3}, {title: "grants/s", width: 9},
		{title: "waiters", width: 8}, {title: "oldest", width: 7}, {title: "owners", width: 7, spare: 2},
		{title: "used/limit", width: 10, spare: 1},
	}
	drained := slices.ContainsFunc(list, func(s admin.TopSemaphore) bool { return s.DrainedSlots > 0 })
	if drained {
		columns = append(columns, column{title: "drained", width: 8})
	}
	preempted := slices.ContainsFunc(list, func(s admin.TopSemaphore) bool { return s.PreemptedOwners > 0 })
	if preempted {
		columns = append(columns, column{title: "preempted", width: 10})
	}
	bounds := slices.ContainsFunc(list, func(s admin.TopSemaphore) bool { return s.Left > 0 })
	if bounds {
		columns = append(columns, column{title: "left", width: 7})
	}
	if slices.ContainsFunc(list, func(s admin.TopSemaphore) bool { return s.Priority != nil }) {
		columns[4].width += 3
	}
	for _, s := range list {
		columns[0].most = max(columns[0].most, utf8.RuneCountInString(terminal.Sanitize(s.Name))+2)
		columns[1].most = max(columns[1].most, utf8.RuneCountInString(s.Path)+2)
	}
	columns[1].width = max(8, min(columns[1].most, v.Width/7))
	widths := layout(columns, v.Width)
	lines := []string{v.listHeader(listSemaphores, columns, widths, first, last, len(list))}
	if len(list) == 0 {
		return append(lines, v.empty("semaphore was granted or waited for lately"))
	}
	for i, s := range list[first:last] {
		used := "-"
		if s.Limit > 0 {
			used = shortCount(s.Used) + "/" + shortCount(s.Limit)
		}
		texts := []string{
			terminal.FitMiddle(terminal.Sanitize(s.Name), widths[0]), terminal.FitLeft(terminal.Sanitize(s.Path), widths[1]),
			ShortRate(s.GrantsPerSecond),
			shortCount(uint64(s.Waiters)), OldestWait(&s), shortCount(uint64(s.Owners)), used,
		}
		if drained {
			texts = append(texts, shortCount(uint64(s.DrainedSlots)))
		}
		if preempted {
			texts = append(texts, shortCount(uint64(s.PreemptedOwners)))
		}
		if left := "-"; bounds {
			if s.Left > 0 {
				left = ShortWait(s.Left)
			}
			texts = append(texts, left)
		}
		lines = append(lines, v.row(listSemaphores, first+i, cells(columns, widths, texts), s.Stuck))
	}
	return lines
}

func (v *View) sessionLines(rows int) []string {
	list := v.sessions()
	first, last := v.window(listSessions, len(list), rows)
	columns := []column{
		{title: "session", width: 20, left: true}, {title: "holds", width: 6}, {title: "waits", width: 6},
		{title: "client", width: 21, left: true, spare: 2}, {title: "node", width: 8, left: true, spare: 3},
		{title: "description", width: 14, left: true, grows: true, spare: 1},
	}
	for _, s := range list {
		columns[4].width = max(columns[4].width, min(utf8.RuneCountInString(s.Path), v.Width/6))
	}
	widths := layout(columns, v.Width)
	lines := []string{v.listHeader(listSessions, columns, widths, first, last, len(list))}
	if len(list) == 0 {
		return append(lines, v.empty("session holds or waits for a semaphore"))
	}
	for i, s := range list[first:last] {
		who := terminal.Sanitize(s.Client)
		if s.Detached {
			who = "detached"
		}
		texts := []string{
			strconv.FormatUint(s.ID, 10), shortCount(uint64(s.Held)), shortCount(uint64(s.Waiting)), who,
			terminal.FitLeft(terminal.Sanitize(s.Path), widths[4]), terminal.Sanitize(s.Description),
		}
		lines = append(lines, v.row(listSessions, first+i, cells(columns, widths, texts), false))
	}
	return lines
}

// empty is the row of a list without rows.
func (v *View) empty(what string) string {
	if v.filter != "" {
		return terminal.Fit("  no row matches the filter; Esc shows all", v.Width)
	}
	return terminal.Fit("  no "+what, v.Width)
}

// row is a line of a list; the selected one is marked.
func (v *View) row(list, at int, text string, alarm bool) string {
	if list == v.list && at == v.at0[list] {
		return v.bar(">" + text)
	}
	return terminal.Paint(v.Color && alarm, terminal.Red, terminal.Fit(" "+text, v.Width))
}
