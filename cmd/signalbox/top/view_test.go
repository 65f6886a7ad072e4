package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"pgregory.net/rapid"
)

// busyTop is a cluster with something in every column.
func busyTop() *admin.Top {
	top := &admin.Top{
		Instances: []admin.TopInstance{
			{ID: 1, Name: "eu-1", Address: "10.1.0.1:7070", Activity: &admin.TopActivity{
				Uptime: 50 * time.Hour, Leads: []uint64{1, 4}, Connections: 812, Sessions: 20_412,
				Semaphores: 1_204_112, RequestsPerSecond: 48_120, RejectedPerSecond: 0.4,
				ChangeP50: 820 * time.Microsecond, ChangeP99: 4200 * time.Microsecond,
				LogWriteP50: 310 * time.Microsecond, LogWriteP99: 1900 * time.Microsecond,
			}},
			{ID: 2, Name: "eu-2", Address: "10.1.0.2:7070", Activity: &admin.TopActivity{
				Uptime: 95 * time.Second, Leads: []uint64{2}, Connections: 3, Sessions: 12, Semaphores: 40,
				RequestsPerSecond: 3.2, ChangeP50: 2 * time.Millisecond, ChangeP99: 120 * time.Millisecond,
				LogWriteP50: time.Millisecond, LogWriteP99: 88 * time.Millisecond,
			}},
			{ID: 3, Name: "eu-3", Address: "10.1.0.3:7070", Err: errors.New("no instance answered: connection refused")},
		},
		Semaphores: []admin.TopSemaphore{
			{Path: "/billing", Name: "invoices/2026-11", GrantsPerSecond: 12.4, Limit: 1, Used: 1, Owners: 1, Waiters: 214, OldestWait: 192 * time.Second},
			{Path: "/billing", Name: "slots", GrantsPerSecond: 840, Limit: 64, Used: 64, Owners: 32, Waiters: 12, OldestWait: 4200 * time.Millisecond},
			{Path: "/services/very/long/path/of/a/node", Name: "migrations", Limit: 2, Used: 0, Waiters: 3, OldestWait: 26 * time.Hour, Stuck: true},
			{Path: "/default", Name: "leader", Limit: client.Max, Used: client.Max, Owners: 1, Ephemeral: true, GrantsPerSecond: 0.1},
			{Path: "/default", Name: "hot/" + strings.Repeat("x", 80), GrantsPerSecond: 21_900},
			{Path: "/default", Name: "red\x1b[31m\xff", GrantsPerSecond: 1, Limit: 1, Used: 1, Owners: 1},
		},
		Sessions: []admin.TopSession{
			{Path: "/billing", ID: 35184372088833, Held: 4012, Waiting: 1, Description: "importer@host1", Client: "10.2.0.7:51812"},
			{Path: "/billing", ID: 35184372088834, Held: 1, Waiting: 0, Description: "invoices@host2", Client: "10.2.0.8:40022", Detached: true},
			{Path: "/default", ID: 281474976710657, Waiting: 1, Description: "a \x1b[2Jdescription"},
		},
	}
	for i := range 40 {
		top.Semaphores = append(top.Semaphores, admin.TopSemaphore{Path: "/default",
			Name: fmt.Sprintf("jobs/%03d", i), GrantsPerSecond: float64(40-i) / 10, Limit: 1})
	}
	for i := range 20 {
		top.Sessions = append(top.Sessions, admin.TopSession{Path: "/default", ID: 281474976710700 + uint64(i),
			Held: 1, Description: fmt.Sprintf("worker@host%d", i), Client: "10.2.1.9:50000"})
	}
	return top
}

var update = flag.Bool("update", false, "rewrite the screens")

func newTestView(width, height int) *View {
	at := time.Date(2026, 11, 22, 12, 30, 0, 0, time.UTC)
	return &View{Width: width, Height: height, Source: "10.1.0.1:7070", Interval: 2 * time.Second,
		Now: at.Add(time.Second),
		top: busyTop(), at: at}
}

// TestScreens: whole screens of three sizes. Rewrite them with -update, and look at them.
func TestScreens(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		keys          []terminal.Key
		change        func(*View)
	}{
		{name: "80x24", width: 80, height: 24},
		{name: "200x60", width: 200, height: 60},
		{name: "small", width: 40, height: 10},
		{name: "grants", width: 80, height: 24, keys: []terminal.Key{'s', 's', terminal.KeyPageDown, terminal.KeyTab, terminal.KeyDown}},
		{name: "filter", width: 80, height: 24, keys: []terminal.Key{'/', 'b', 'i', 'l', 'l'}},
		{name: "help", width: 80, height: 24, keys: []terminal.Key{'?'}},
		{name: "old", width: 80, height: 24, change: func(v *View) { v.err = errors.New("no answer within 5s"); v.Now = v.at.Add(42 * time.Second) }},
		{name: "deadlock", width: 80, height: 24, change: func(v *View) {
			v.Deadlocks = []string{"deadlock in /billing: invoices/2026-11 and slots: 2 sessions wait for each other, and none of them can go on"}
		}},
		{name: "first", width: 80, height: 24, change: func(v *View) { v.top = nil }},
		{name: "idle", width: 80, height: 24, change: func(v *View) {
			v.top.Semaphores, v.top.Sessions = nil, nil
			for i := range v.top.Instances {
				v.top.Instances[i].Activity = nil
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newTestView(c.width, c.height)
			if c.change != nil {
				c.change(v)
			}
			v.Render()
			for _, k := range c.keys {
				v.Press(k)
			}
			var b strings.Builder
			for _, line := range v.Render() {
				b.WriteString(strings.TrimRight(line, " ") + "\n")
			}
			path := filepath.Join("testdata", "screens", c.name+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("the screen is\n%s\nwant\n%s", b.String(), want)
			}
		})
	}
}

// TestOfQueues: the level of the oldest wait stands behind it, and drained slots have a column
// where there are any.
func TestOfQueues(t *testing.T) {
	v := newTestView(120, 24)
	if text := strings.Join(v.Render(), "\n"); strings.Contains(text, "DRAINED") {
		t.Errorf("no slot is drained:\n%s", text)
	}
	v.top.Semaphores[1].Priority, v.top.Semaphores[1].DrainedSlots, v.top.Semaphores[1].Left = new(9), 2, 90*time.Second
	v.top.Semaphores[1].PreemptedOwners = 3
	text := strings.Join(v.Render(), "\n")
	if !strings.Contains(text, "DRAINED") || !regexp.MustCompile(`slots .* 4\.2s p9 .* 64/64 +2 +3 +1m30s *\n`).MatchString(text) {
		t.Errorf("the screen is\n%s", text)
	}
}

// TestHelpIsWhole: on 80 columns no line of the help, and no key, is cut.
func TestHelpIsWhole(t *testing.T) {
	v := newTestView(80, 24)
	v.Source = strings.Repeat("host.example:7070,", 9) // this may be cut, and the figures before it may not
	v.Press('?')
	for i, line := range v.Render() {
		if i > 0 && strings.Contains(line, "…") {
			t.Errorf("cut: %q", line)
		}
	}
	v.Press('q')
	for width := 40; width < 100; width++ {
		v.Width = width
		lines := v.Render()
		if !strings.Contains(lines[len(lines)-1], "? help  q quit") || width >= 60 && !strings.Contains(lines[0], "2/3 instances") ||
			!strings.HasSuffix(lines[0], " 12:30:01") {
			t.Errorf("%d columns:\n%s\n%s", width, lines[0], lines[len(lines)-1])
		}
	}
}

// TestOrderByHolds: the order has what sessions hold alone, whatever they wait for.
func TestOrderByHolds(t *testing.T) {
	list := []admin.TopSession{{ID: 1, Held: 2, Waiting: 90}, {ID: 2, Held: 5}, {ID: 3, Held: 2}}
	sortSessions(list, "holds")
	if list[0].ID != 2 || list[1].ID != 1 || list[2].ID != 3 {
		t.Errorf("the order is %+v", list)
	}
}

// TestAnyKeys: whatever is pressed, at whatever size, the screen has its rows, none of them is
// too wide, nothing of a name or description reaches the terminal as it is, and the selection is a
// row that is there.
func TestAnyKeys(t *testing.T) {
	keys := []terminal.Key{'s', '/', 'a', 'x', '?', ' ', 'p', terminal.KeyTab, terminal.KeyUp, terminal.KeyDown, terminal.KeyPageUp, terminal.KeyPageDown, terminal.KeyHome, terminal.KeyEnd,
		terminal.KeyEnter, terminal.KeyEscape, terminal.KeyBackspace, terminal.KeyClear, terminal.KeyUnknown}
	rapid.Check(t, func(t *rapid.T) {
		v := newTestView(80, 24)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				v.Width, v.Height = rapid.IntRange(1, 250).Draw(t, "width"), rapid.IntRange(1, 80).Draw(t, "height")
			case 1:
				v.top = busyTop()
				v.top.Semaphores = v.top.Semaphores[rapid.IntRange(0, len(v.top.Semaphores)).Draw(t, "gone"):]
				v.top.Sessions = v.top.Sessions[rapid.IntRange(0, len(v.top.Sessions)).Draw(t, "gone"):]
			default:
				if v.Press(rapid.SampledFrom(keys).Draw(t, "key")) == Open {
					v.Answered(Answer{ID: v.detail.id,
						Lines: strings.Split(strings.Repeat("line\n", rapid.IntRange(0, 50).Draw(t, "lines")), "\n")})
				}
			}
			lines := v.Render()
			if len(lines) != v.Height {
				t.Fatalf("%d lines on %d rows", len(lines), v.Height)
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > v.Width {
					t.Fatalf("%q has %d columns of %d", line, n, v.Width)
				}
				if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == utf8.RuneError }) {
					t.Fatalf("%q is not fit for a terminal", line)
				}
			}
			for list := range lists {
				if ids := v.find(list); len(ids) > 0 && !slices.Contains(ids, v.selected[list]) {
					t.Fatalf("the selection %v is no row", v.selected[list])
				}
			}
		}
	})
}
