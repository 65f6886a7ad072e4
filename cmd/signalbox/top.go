package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/top"
	"github.com/spf13/cobra"
)

const (
	minTopInterval = 500 * time.Millisecond
	defaultTopRows = 20
	topTimeout     = 5 * time.Second // of one refresh
)

func topCmd(a *app) *cobra.Command {
	c := command("top [PATH]", "Show what the cluster is busiest with, on a full screen",
		`Show instances with their rates and latencies, the semaphores with the longest queues, the oldest
waits and the most grants, and the sessions that hold or wait for the most semaphores. It covers
all coordination nodes that you may read, or those at PATH and below it. --node is not used.

On a terminal it fills the screen until q; press ? for the keys. Enter explains the chosen row: who
holds a semaphore, who waits, and since when. In a pipe, and with --once, it prints the lists once.
On a terminal that cannot move its cursor it prints them again and again. -o json prints one
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
	rows := c.Flags().Int("rows", defaultTopRows, "Printed rows of each list, 1 to 100. A full screen shows what fits.")
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		t := &topRun{inv: inv, path: strings.Join(args, ""), interval: interval, rows: *rows, order: *order}
		switch {
		case !slices.Contains(top.Orders(), *order):
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
			return t.repeat()
		}
		return t.full(out)
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
}

// print prints the lists once.
func (t *topRun) print(ctx context.Context) error {
	lists, err := t.admin.Top(ctx, t.path, t.rows)
	if err != nil {
		return err
	}
	deadlocks := t.deadlocks(ctx, suspects(lists))
	top.SortSemaphores(lists.Semaphores, t.order)
	lists.Semaphores = lists.Semaphores[:min(t.rows, len(lists.Semaphores))]
	r := row{
		{"instances", "instances", rowsOf(lists.Instances, topInstanceRow)},
		{"semaphores", "semaphores", rowsOf(lists.Semaphores, topSemaphoreRow)},
		{"sessions", "sessions", rowsOf(lists.Sessions, topSessionRow)},
	}
	out := t.inv.printer()
	if out.format != "table" {
		return out.item(append(r, field{"deadlocks", "", rowsOf(deadlocks, topDeadlockRow)}))
	}
	for _, d := range deadlocks {
		if _, err := fmt.Fprintf(out.w, "%s; `signalbox sem why` says who\n", &d); err != nil {
			return err
		}
	}
	return out.item(r)
}

// repeat prints the lists at each interval, until a signal.
func (t *topRun) repeat() error {
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(t.inv.longCtx, 2*topTimeout) // the lists, and then deadlocks
		err := t.print(ctx)
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
	shown("requests_per_second", "requests/s", a.RequestsPerSecond, top.ShortRate(a.RequestsPerSecond))
	shown("rejected_per_second", "rejected/s", a.RejectedPerSecond, top.ShortRate(a.RejectedPerSecond))
	shown("change_p50_us", "p50", a.ChangeP50.Microseconds(), top.ShortTime(a.ChangeP50))
	shown("change_p99_us", "p99", a.ChangeP99.Microseconds(), top.ShortTime(a.ChangeP99))
	shown("log_write_p50_us", "", a.LogWriteP50.Microseconds(), "")
	shown("log_write_p99_us", "fsync p99", a.LogWriteP99.Microseconds(), top.ShortTime(a.LogWriteP99))
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
		used += " (" + top.ShortWait(s.Left) + " left)"
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
		{"", "grants/s", top.ShortRate(s.GrantsPerSecond)},
		{"waiters", "waiters", s.Waiters}, {"oldest_wait_ms", "", s.OldestWait.Milliseconds()},
		{"", "oldest", top.OldestWait(s)}, {"owners", "", s.Owners}, {"", "owners", owners},
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

// full fills the screen until q or a signal.
func (t *topRun) full(out *os.File) error {
	s, err := terminal.NewScreen(out, t.inv.stdin)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.inv.longCtx)
	defer cancel()

	source := t.inv.values["endpoints"]
	if t.path != "" {
		source += "  " + t.path
	}
	v := &top.View{Color: t.inv.color(out), Source: source, Interval: t.interval}
	v.SortBy(t.order)

	answers := make(chan top.Answer, 4)
	asking := map[top.ID]bool{} // requests under way; the lists are the empty id
	ask := func(id top.ID) {
		if asking[id] {
			return
		}
		asking[id] = true
		go func() {
			ctx, cancel := context.WithTimeoutCause(ctx, topTimeout, errors.New("no answer within "+topTimeout.String()))
			defer cancel()
			answer := top.Answer{ID: id}
			if id == (top.ID{}) {
				answer.Top, answer.Err = t.admin.Top(ctx, t.path, admin.MaxTopRows)
			} else {
				answer.Lines, answer.Err = t.explain(ctx, id)
			}
			answer.At = time.Now()
			select {
			case answers <- answer:
			case <-t.inv.longCtx.Done():
			}
		}()
	}
	refresh := func() {
		ask(top.ID{})
		if row, ok := v.Detail(); ok {
			ask(row)
		}
	}
	looks := make(chan []string, 1)
	var looked time.Time // the last look for deadlocks began; while it goes on, looking
	looking := false
	look := func(lists *admin.Top) {
		if of := suspects(lists); len(of) == 0 {
			v.Deadlocks = nil
		} else if !looking && time.Since(looked) >= topLookEvery {
			looking, looked = true, time.Now()
			go func() {
				var found []string
				for _, d := range t.deadlocks(ctx, of) {
					found = append(found, d.String())
				}
				looks <- found
			}()
		}
	}
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	refresh()
	keys := s.Keys
	for {
		v.Width, v.Height = s.Size()
		v.Now = time.Now()
		if err := s.Show(v.Render()); err != nil {
			return err
		}
		select {
		case <-t.inv.longCtx.Done():
			return nil
		case <-s.Resized:
			s.Repaint()
		case <-tick.C:
			if !v.Paused() {
				refresh()
			}
		case answer := <-answers:
			delete(asking, answer.ID)
			v.Answered(answer)
			if answer.Top != nil {
				look(answer.Top)
			}
		case v.Deadlocks = <-looks:
			looking = false
		case k, ok := <-keys:
			if !ok { // the terminal is gone
				keys = nil
				continue
			}
			switch v.Press(k) {
			case top.Quit:
				return nil
			case top.Suspend:
				if err := s.Suspend(); err != nil {
					return err
				}
			case top.Repaint:
				s.Repaint()
			case top.Refresh:
				refresh()
			case top.Open:
				if row, ok := v.Detail(); ok {
					ask(row)
				}
			}
		}
	}
}

// explain returns the output of the verbs sem why or session describe for a row.
func (t *topRun) explain(ctx context.Context, id top.ID) ([]string, error) {
	c, err := t.inv.client()
	if err != nil {
		return nil, err
	}
	n, err := c.Node(ctx, id.Path)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	out := &printer{w: &text, format: "table"}
	if id.Session != 0 {
		err = describeSession(ctx, n, id.Session, out)
	} else {
		err = explainWait(ctx, n, id.Name, 0, out)
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"), nil
}
