package main

import (
	"errors"
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

func newTestView(width, height int) *topView {
	at := time.Date(2026, 11, 22, 12, 30, 0, 0, time.UTC)
	return &topView{width: width, height: height, source: "10.1.0.1:7070", interval: 2 * time.Second, top: busyTop(),
		at: at, now: at.Add(time.Second)}
}

// TestTopScreens: whole screens of three sizes. Rewrite them with -update, and look at them.
func TestTopScreens(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		keys          []key
		change        func(*topView)
	}{
		{name: "80x24", width: 80, height: 24},
		{name: "200x60", width: 200, height: 60},
		{name: "small", width: 40, height: 10},
		{name: "grants", width: 80, height: 24, keys: []key{'s', 's', keyPageDown, keyTab, keyDown}},
		{name: "filter", width: 80, height: 24, keys: []key{'/', 'b', 'i', 'l', 'l'}},
		{name: "help", width: 80, height: 24, keys: []key{'?'}},
		{name: "old", width: 80, height: 24, change: func(v *topView) { v.err = errors.New("no answer within 5s"); v.now = v.at.Add(42 * time.Second) }},
		{name: "deadlock", width: 80, height: 24, change: func(v *topView) {
			v.deadlocks = []topDeadlock{{path: "/billing", names: []string{"invoices/2026-11", "slots"},
				sessions: []uint64{7, 9}}}
		}},
		{name: "first", width: 80, height: 24, change: func(v *topView) { v.top = nil }},
		{name: "idle", width: 80, height: 24, change: func(v *topView) {
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
			v.render()
			for _, k := range c.keys {
				v.press(k)
			}
			var b strings.Builder
			for _, line := range v.render() {
				b.WriteString(strings.TrimRight(line, " ") + "\n")
			}
			path := filepath.Join("testdata", "top", c.name+".txt")
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

// TestTopOfQueues: the level of the oldest wait stands behind it, and drained slots have a column where
// there are any.
func TestTopOfQueues(t *testing.T) {
	v := newTestView(120, 24)
	if text := strings.Join(v.render(), "\n"); strings.Contains(text, "DRAINED") {
		t.Errorf("no slot is drained:\n%s", text)
	}
	v.top.Semaphores[1].Priority, v.top.Semaphores[1].DrainedSlots, v.top.Semaphores[1].Left = new(9), 2, 90*time.Second
	v.top.Semaphores[1].PreemptedOwners = 3
	text := strings.Join(v.render(), "\n")
	if !strings.Contains(text, "DRAINED") || !regexp.MustCompile(`slots .* 4\.2s p9 .* 64/64 +2 +3 +1m30s *\n`).MatchString(text) {
		t.Errorf("the screen is\n%s", text)
	}
}

// TestTopSuspects: deadlocks are looked for at the oldest waits, and not at young ones.
func TestTopSuspects(t *testing.T) {
	top := &admin.Top{}
	for i, wait := range []time.Duration{3, 9, 0, 1, 5, 7, 8} {
		top.Semaphores = append(top.Semaphores, admin.TopSemaphore{Name: fmt.Sprint(i), Waiters: min(1, int(wait)), OldestWait: wait * time.Second})
	}
	names := ""
	for _, s := range suspects(top) {
		names += s.Name
	}
	if names != "1654" {
		t.Errorf("asked are %s", names)
	}
}

// TestTopHelpIsWhole: on 80 columns no line of the help, and no key, is cut.
func TestTopHelpIsWhole(t *testing.T) {
	v := newTestView(80, 24)
	v.source = strings.Repeat("host.example:7070,", 9) // this may be cut, and the figures before it may not
	v.press('?')
	for i, line := range v.render() {
		if i > 0 && strings.Contains(line, "…") {
			t.Errorf("cut: %q", line)
		}
	}
	v.press('q')
	for width := 40; width < 100; width++ {
		v.width = width
		lines := v.render()
		if !strings.Contains(lines[len(lines)-1], "? help  q quit") || width >= 60 && !strings.Contains(lines[0], "2/3 instances") ||
			!strings.HasSuffix(lines[0], " 12:30:01") {
			t.Errorf("%d columns:\n%s\n%s", width, lines[0], lines[len(lines)-1])
		}
	}
}

// TestTopOrderByHolds: the order has what sessions hold alone, whatever they wait for.
func TestTopOrderByHolds(t *testing.T) {
	list := []admin.TopSession{{ID: 1, Held: 2, Waiting: 90}, {ID: 2, Held: 5}, {ID: 3, Held: 2}}
	sortSessions(list, "holds")
	if list[0].ID != 2 || list[1].ID != 1 || list[2].ID != 3 {
		t.Errorf("the order is %+v", list)
	}
}

// TestTopAnyKeys: whatever is pressed, at whatever size, the screen has its rows, none of them is
// too wide, nothing of a name or description reaches the terminal as it is, and the selection is a
// row that is there.
func TestTopAnyKeys(t *testing.T) {
	keys := []key{'s', '/', 'a', 'x', '?', ' ', 'p', keyTab, keyUp, keyDown, keyPageUp, keyPageDown, keyHome, keyEnd,
		keyEnter, keyEscape, keyBackspace, keyClear, keyUnknown}
	rapid.Check(t, func(t *rapid.T) {
		v := newTestView(80, 24)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				v.width, v.height = rapid.IntRange(1, 250).Draw(t, "width"), rapid.IntRange(1, 80).Draw(t, "height")
			case 1:
				v.top = busyTop()
				v.top.Semaphores = v.top.Semaphores[rapid.IntRange(0, len(v.top.Semaphores)).Draw(t, "gone"):]
				v.top.Sessions = v.top.Sessions[rapid.IntRange(0, len(v.top.Sessions)).Draw(t, "gone"):]
			default:
				if v.press(rapid.SampledFrom(keys).Draw(t, "key")) == topOpen {
					v.answered(topAnswer{id: v.detail.id,
						lines: strings.Split(strings.Repeat("line\n", rapid.IntRange(0, 50).Draw(t, "lines")), "\n")})
				}
			}
			lines := v.render()
			if len(lines) != v.height {
				t.Fatalf("%d lines on %d rows", len(lines), v.height)
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > v.width {
					t.Fatalf("%q has %d columns of %d", line, n, v.width)
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

// TestKeys: what terminals send for keys.
func TestKeys(t *testing.T) {
	for text, want := range map[string][]key{
		"q":              {'q'},
		"\x1b":           {keyEscape},
		"\x1b[A\x1bOB":   {keyUp, keyDown},
		"\x1b[5~\x1b[6~": {keyPageUp, keyPageDown},
		"\x1b[1~\x1b[F":  {keyHome, keyEnd},
		"\x1b[1;5A":      {keyUp},
		"\x1b[200~x":     {keyUnknown, 'x'},
		"é\r\n\b\t":      {'é', keyEnter, keyEnter, keyBackspace, keyTab},
		"\xff":           {keyUnknown},
		"\x1b[":          {keyEscape, '['},
		"\x1b[1;":        {keyUnknown},
	} {
		if got := parseKeys([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
