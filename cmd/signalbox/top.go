package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

const (
	minTopInterval = 500 * time.Millisecond
	defaultTopRows = 20
	topTimeout     = 5 * time.Second // of one refresh
	topLookEvery   = 5 * time.Second // for deadlocks, which takes four calls
)

func topCmd(a *app) *cobra.Command {
	c := command("top [PATH]", "Show what the cluster is busiest with",
		`Show instances with their rates and latencies, the semaphores with the longest queues, the oldest
waits and the most grants, and the sessions that hold or wait for the most semaphores. It covers
all coordination nodes that you may read, or those at PATH and below it. --node is not used.

On a terminal it prints the lists again and again over the former ones, until Ctrl-C; in a pipe,
and with --once, once. "signalbox sem why" says who holds a semaphore, who waits, and since when.
A terminal that cannot move its cursor gets the lists one below the other. -o json prints one
document, -o jsonl one a line at each interval until Ctrl-C.

It needs the right read. What instances do is shown to identities with that right on /. The lists
cost the servers the same with ten semaphores as with millions.

Behind the oldest wait, ! says that it can never be granted, and p9 is its priority. What is
left is the time until the first owner's hold ends by itself. Preempted owners have to yield.
Deadlocks are named above the lists, if one of the four oldest waits is in one or behind one.`)
	c.Example = `  signalbox top
  signalbox top /billing --sort wait
  signalbox top --once --rows 5
  signalbox top -o json`
	once := c.Flags().Bool("once", false, "Print the lists once and exit.")
	var interval time.Duration
	durationVar(c.Flags(), &interval, "interval", 2*time.Second, "Time between two refreshes, at least 500ms.")
	order := c.Flags().String("sort", "waiters", "Order of the semaphores: waiters, wait, grants, owners or name.")
	rows := c.Flags().Int("rows", defaultTopRows, "Rows of each list, 1 to 100. A terminal shows what fits.")
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		t := &topRun{inv: inv, path: strings.Join(args, ""), interval: interval, rows: *rows, order: *order,
			fills: !cmd.Flags().Changed("rows")}
		switch {
		case !slices.Contains(topOrders, *order):
			return usagef("--sort %q is unknown; choose waiters, wait, grants, owners or name", *order)
		case *rows < 1 || *rows > admin.MaxTopRows:
			return usagef("--rows %d is out of range; choose 1 to %d", *rows, admin.MaxTopRows)
		case interval < minTopInterval:
			return usagef("--interval %s is too short; give at least %s", interval, minTopInterval)
		case t.path != "" && t.path[0] != '/':
			return usagef("PATH %q does not start with /; write it like /services/billing", t.path)
		}
		var err error
		if t.admin, err = inv.admin(); err != nil {
			return err
		}
		out, isFile := a.stdout.(*os.File)
		onTerminal := isFile && terminal.Is(a.stdout)
		switch format := inv.values["output"]; {
		case *once || format == "json" || format == "table" && !onTerminal:
			return t.print(inv.ctx)
		case format == "jsonl" || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "":
			return t.repeat(t.print)
		}
		return t.refresh(out)
	})
	return c
}

// topRun is one run of the verb.
type topRun struct {
	inv      *invocation
	admin    *admin.Client
	path     string
	interval time.Duration
	order    string // of the semaphores
	rows     int
	fills    bool // as many rows as there is room for

	found  []topDeadlock // when it looked last
	looked time.Time
}

// print prints the lists once.
func (t *topRun) print(ctx context.Context) error { return t.lists(ctx, t.inv.printer(), 0) }

// lists prints the lists. Names are shortened to what a width leaves them; 0 is as wide as they are.
func (t *topRun) lists(ctx context.Context, out *printer, width int) error {
	lists, err := t.admin.Top(ctx, t.path, t.rows)
	if err != nil {
		return err
	}
	if time.Since(t.looked) >= topLookEvery {
		t.found, t.looked = t.deadlocks(ctx, suspects(lists)), time.Now()
	}
	deadlocks := t.found
	sortTop(lists.Semaphores, t.order)
	lists.Semaphores = lists.Semaphores[:min(t.rows, len(lists.Semaphores))]
	r := row{
		{"instances", "instances", rowsOf(lists.Instances, topInstanceRow)},
		{"semaphores", "semaphores", rowsOf(lists.Semaphores, topSemaphoreRow)},
		{"sessions", "sessions", rowsOf(lists.Sessions, topSessionRow)},
	}
	if out.format != "table" {
		return out.item(append(r, field{"deadlocks", "", rowsOf(deadlocks, topDeadlockRow)}))
	}
	for _, i := range lists.Instances {
		if i.Err == nil || width == 0 {
			continue
		}
		if _, err := fmt.Fprintf(out.w, "%s does not answer: %v\n", i.Name, i.Err); err != nil {
			return err
		}
	}
	if width > 0 {
		shortenNames(lists.Semaphores, width)
	}
	for _, d := range deadlocks {
		if _, err := fmt.Fprintf(out.w, "%s; `signalbox sem why` says who\n", &d); err != nil {
			return err
		}
	}
	return out.item(r)
}

// repeat prints the lists at each interval, until a signal.
func (t *topRun) repeat(print func(context.Context) error) error {
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(t.inv.longCtx, 2*topTimeout) // the lists, and then deadlocks
		err := print(ctx)
		cancel()
		if t.inv.longCtx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-t.inv.longCtx.Done():
			return nil
		}
	}
}

// refresh prints the lists over the former ones on a terminal. While nobody answers those stay, with
// the reason above them.
func (t *topRun) refresh(out *os.File) error {
	shown, at := "", time.Time{}
	return t.repeat(func(ctx context.Context) error {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		if t.fills { // both lists, below some instances
			t.rows = min(max(3, (height-14)/2), admin.MaxTopRows)
		}
		var b strings.Builder
		title := time.Now().Format(time.TimeOnly)
		switch err := t.lists(ctx, &printer{w: &b, format: "table"}, width); {
		case t.inv.longCtx.Err() != nil:
			return nil
		case err == nil:
			shown, at = b.String(), time.Now()
		case shown == "":
			return err
		default:
			title += ", as of " + at.Format(time.TimeOnly) + ": " + terminal.Sanitize(err.Error())
		}
		lines := strings.Split(strings.TrimRight(title+"\n"+shown, "\n"), "\n")
		b.Reset()
		lines = lines[:min(len(lines), max(0, height-1))]
		for i, line := range lines {
			// The erasure comes first: behind a line that fills the row, it would take the last column.
			fmt.Fprintf(&b, "\x1b[%d;1H\x1b[K%s", i+1, terminal.Cut(line, width))
		}
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[J", len(lines)+1)
		_, err = out.WriteString(b.String())
		return err
	})
}

// shortenNames leaves nodes and names what the other columns leave of a width.
func shortenNames(list []admin.TopSemaphore, width int) {
	left := max(24, width-56)
	for i := range list {
		s := &list[i]
		s.Path = shortened(s.Path, left/2)
		s.Name = shortened(s.Name, left-utf8.RuneCountInString(s.Path))
	}
}

// shortened leaves out the middle of a text that is longer than n runes.
func shortened(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:(n-1)/2]) + "…" + string(r[len(r)-n/2:])
}

func topInstanceRow(i *admin.TopInstance) row {
	r := row{{"id", "", i.ID}, {"name", "instance", i.Name}, {"address", "", i.Address}}
	a := cmp.Or(i.Activity, new(admin.TopActivity))
	shown := func(key, title string, value any, cell any) {
		switch {
		case i.Activity == nil:
			r = append(r, field{"", title, "-"})
		default:
			r = append(r, field{key, "", value}, field{"", title, cell})
		}
	}
	shown("leads", "leads", slices.Concat([]uint64{}, a.Leads), len(a.Leads))
	shown("requests_per_second", "requests/s", a.RequestsPerSecond, shortRate(a.RequestsPerSecond))
	shown("rejected_per_second", "rejected/s", a.RejectedPerSecond, shortRate(a.RejectedPerSecond))
	shown("change_p50_us", "p50", a.ChangeP50.Microseconds(), shortTime(a.ChangeP50))
	shown("change_p99_us", "p99", a.ChangeP99.Microseconds(), shortTime(a.ChangeP99))
	shown("log_write_p50_us", "", a.LogWriteP50.Microseconds(), "")
	shown("log_write_p99_us", "fsync p99", a.LogWriteP99.Microseconds(), shortTime(a.LogWriteP99))
	shown("connections", "clients", a.Connections, a.Connections)
	shown("sessions", "sessions", a.Sessions, a.Sessions)
	shown("semaphores", "semaphores", a.Semaphores, a.Semaphores)
	shown("uptime_ms", "uptime", a.Uptime.Milliseconds(), terminal.Age(a.Uptime))
	if i.Err != nil {
		r = append(r, field{"error", "", i.Err.Error()}, field{"", "error", i.Err.Error()})
	} else {
		r = append(r, field{"", "error", ""})
	}
	return r
}

func topSemaphoreRow(s *admin.TopSemaphore) row {
	used := "-"
	if s.Limit > 0 {
		used = cell(amount(s.Used)) + "/" + cell(amount(s.Limit))
	}
	if s.DrainedSlots > 0 {
		used += fmt.Sprintf(" (%d drained)", s.DrainedSlots)
	}
	if s.Left > 0 {
		used += " (" + shortWait(s.Left) + " left)"
	}
	owners := strconv.Itoa(s.Owners)
	if s.PreemptedOwners > 0 {
		owners += fmt.Sprintf(" (%d preempted)", s.PreemptedOwners)
	}
	var priority any
	if s.Priority != nil {
		priority = *s.Priority
	}
	return row{
		{"node", "node", s.Path}, {"name", "name", s.Name}, {"grants_per_second", "", s.GrantsPerSecond},
		{"", "grants/s", shortRate(s.GrantsPerSecond)},
		{"waiters", "waiters", s.Waiters}, {"oldest_wait_ms", "", s.OldestWait.Milliseconds()},
		{"", "oldest", oldestWait(s)}, {"owners", "", s.Owners}, {"", "owners", owners},
		{"count", "", amount(s.Used)}, {"limit", "", amount(s.Limit)}, {"", "used/limit", used},
		{"ephemeral", "", s.Ephemeral}, {"stuck", "", s.Stuck},
		{"oldest_priority", "", priority}, {"drained_slots", "", s.DrainedSlots},
		{"left_ms", "", s.Left.Milliseconds()}, {"preempted_owners", "", s.PreemptedOwners},
	}
}

func topSessionRow(s *admin.TopSession) row {
	return row{
		{"session_id", "session", sessionID(s.ID)}, {"node", "node", s.Path}, {"holds", "holds", s.Held},
		{"waits", "waits", s.Waiting},
		{"client", "client", s.Client}, {"detached", "detached", s.Detached}, {"description", "description", s.Description},
	}
}

// topOrders are the orders of semaphores. Equal rows follow in the order of the first.
var topOrders = []string{"waiters", "wait", "grants", "owners", "name"}

func sortTop(list []admin.TopSemaphore, order string) {
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
	return terminal.Age(d)
}

// oldestWait is how long the first waiter waits, and its level: 3m12s p9. A ! says that it is
// stuck.
func oldestWait(s *admin.TopSemaphore) string {
	wait := "-"
	if s.Waiters > 0 {
		wait = shortWait(s.OldestWait)
	}
	if s.Stuck {
		wait += "!"
	}
	if s.Priority != nil {
		wait += fmt.Sprint(" p", *s.Priority)
	}
	return wait
}

const (
	// topLooks is how many semaphores, those with the oldest waits, are asked for deadlocks. Each
	// costs reads of the sessions that wait.
	topLooks = 4
	// topLookAfter is how old a wait is before it is suspicious.
	topLookAfter = 2 * time.Second
)

// topDeadlock is a deadlock that was read twice.
type topDeadlock struct {
	path     string
	names    []string // of the semaphores that its sessions wait for
	sessions []uint64
}

func (d *topDeadlock) String() string {
	names := make([]string, len(d.names))
	for i, name := range d.names {
		names[i] = terminal.Sanitize(name)
	}
	return fmt.Sprintf("deadlock in %s: %s: %d sessions wait for each other, and none of them can go on",
		terminal.Sanitize(d.path), explain.List(names), len(d.sessions))
}

func topDeadlockRow(d *topDeadlock) row {
	ids := make([]sessionID, len(d.sessions))
	for i, id := range d.sessions {
		ids[i] = sessionID(id)
	}
	return row{{"node", "", d.path}, {"names", "", d.names}, {"sessions", "", ids}}
}

// suspects are the semaphores with the oldest waits, the oldest first.
func suspects(lists *admin.Top) []admin.TopSemaphore {
	waits := slices.DeleteFunc(slices.Clone(lists.Semaphores), func(s admin.TopSemaphore) bool {
		return s.Waiters == 0 || s.OldestWait < topLookAfter
	})
	sortTop(waits, "wait")
	return waits[:min(len(waits), topLooks)]
}

// deadlocks looks for deadlocks at the oldest waits, as sem why does. What cannot be read is left
// out: the lists are there all the same.
func (t *topRun) deadlocks(ctx context.Context, of []admin.TopSemaphore) (found []topDeadlock) {
	c, err := t.inv.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	looks := make([]*topDeadlock, len(of))
	var looking sync.WaitGroup
	for i, s := range of {
		looking.Go(func() {
			n, err := c.Node(ctx, s.Path)
			if err != nil {
				return
			}
			w, err := n.ExplainWait(ctx, s.Name, 0)
			if err != nil || w.Deadlock == nil || !w.Deadlock.Confirmed {
				return
			}
			d := &topDeadlock{path: s.Path, sessions: w.Deadlock.Sessions}
			for _, step := range w.Deadlock.Steps {
				if step.Name != "" {
					d.names = append(d.names, step.Name)
				}
			}
			slices.Sort(d.names)
			d.names = slices.Compact(d.names)
			looks[i] = d
		})
	}
	looking.Wait()
	for _, d := range looks {
		if d != nil && !slices.ContainsFunc(found, func(x topDeadlock) bool {
			return x.path == d.path && slices.Equal(x.sessions, d.sessions)
		}) {
			found = append(found, *d)
		}
	}
	return found
}
