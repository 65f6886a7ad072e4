package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
)

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"": `""`, "a b": `"a b"`, "a\"b\\": `"a\"b\\"`, "a\nb\t\x1b": `"a\nb\t\x1b"`, "\xff": `"\xff"`, "é\u202e\u200b": `"é\u202e\u200b"`,
		strings.Repeat("x", 201): `"` + strings.Repeat("x", 200) + `…"`,
	} {
		if got := quote(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestCompose(t *testing.T) {
	details := strings.Split(strings.Repeat("a line of some length,", 200), ",")
	text := compose([]string{"first"}, details, "do this")
	if n := utf8.RuneCountInString(text); n > maxText || n < maxText-100 || !strings.HasPrefix(text, "first\na line") ||
		!strings.HasSuffix(text, "\n(cut)\ndo this") {
		t.Error(n, text)
	}
	if text := compose([]string{strings.Repeat("é", 2000)}, nil, ""); utf8.RuneCountInString(text) != maxText {
		t.Error(text)
	}
}

func TestNotices(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 3, 0, 0, time.UTC)
	var list []notice
	for i, n := range []notice{
		{at, []string{"a"}, "gone", true}, {at.Add(time.Second), []string{"b"}, "gone", true}, {at.Add(time.Minute), []string{"c"}, "gone", true},
		{at, []string{"d"}, "release it.", false},
	} {
		if list = addNotice(list, n); len(list) != []int{1, 1, 2, 3}[i] {
			t.Fatal(list)
		}
	}
	lines, rest := takeNotices(list)
	if len(rest) != 0 || lines[0] != `You lost "a", "b" at 2026-01-02T12:03:00Z: gone. Stop using it.` || lines[2] != `"d": release it.` {
		t.Error(lines, rest)
	}
	list = nil
	for i := range 40 {
		list = addNotice(list, notice{at.Add(time.Duration(i) * time.Hour), []string{fmt.Sprint(i)}, "gone", true})
	}
	shown := 0
	for len(list) > 0 {
		if lines, list = takeNotices(list); len(lines) == 0 || len(strings.Join(lines, "\n")) > noticesText+20 {
			t.Fatal(lines)
		}
		shown += len(lines)
	}
	if shown != 40 {
		t.Error(shown)
	}
}

func TestLossReason(t *testing.T) {
	for _, x := range []struct {
		err  error
		want string
	}{
		{client.ErrMaxHold, "as long as it may be"}, {client.ErrPreempted, "a waiter preempted it"},
		{client.ErrLeaseLost, "lost"}, {errors.New("other\n"), `other\n`},
		{&client.Loss{Cause: "max_hold", Advice: "give it CPU"}, "(give it CPU)"},
	} {
		if got := lossReason(x.err); !strings.Contains(got, x.want) {
			t.Errorf("%v: %s", x.err, got)
		}
	}
}

// TestSentences: others' texts are quoted, names outside the prefix are not shown, and a deadlock
// is named first.
func TestSentences(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 3, 0, 0, time.UTC)
	steps := []client.WaitStep{
		{Session: 1, Description: "me", Name: "team/a", By: 2, ByDescription: "b\nc", Holds: true, BySince: at},
		{Session: 2, Description: "b\nc", Name: "secret", By: 1, ByDescription: "me"},
	}
	q := &client.QueueStatus{Limit: client.Max, Holders: []client.Owner{{Session: 2, Description: "b\nc", Since: at, Data: []byte("n\n")}},
		Deadlock: &client.Deadlock{Sessions: []uint64{1, 2}, Steps: steps, Confirmed: true}}
	text := strings.Join(words("team/", 1).Explain("team/a", 1, q), "\n")
	want := `Deadlock, and the session that asks is in it: release what you hold, then lock all names in one call.
This agent waits for "a", which "b\nc" holds since 2026-01-02T12:03:00Z.
"b\nc" waits for a name that is not shown here, where This agent is ahead.
"b\nc" holds "a" since 2026-01-02T12:03:00Z, with the note "n\n".`
	if text != want {
		t.Error(text)
	}
}

func TestExplain(t *testing.T) {
	for _, x := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("acquire %q: %w", "team/db", client.ErrForbidden),
			`acquire "db"`}, {client.ErrUnauthenticated, "SIGNALBOX_TOKEN_FILE"},
		{client.ErrUnreachable, "signalbox dev"}, {client.ErrHandshake, "SIGNALBOX_ variables"}, {client.ErrSessionExpired, "Call again"},
		{refuse("no %d", 1), "no 1"}, {errors.New("odd"), "ask the user. (odd)"},
	} {
		if got := explain(x.err, "team/"); !strings.Contains(got, x.want) || strings.Contains(got, "team/") {
			t.Errorf("%v: %s", x.err, got)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, x := range []struct{ args, want string }{
		{"--nothing", "--nothing"}, {"serve", "takes flags only"}, {"--max-hold 0", "1s to 720h"}, {"--max-hold 721h", "1s to 720h"},
		{"--max-hold 999ms", "1s to 720h"}, {"--max-hold long", "--max-hold"}, {"--prefix " + strings.Repeat("x", 201), "at most 200"},
		{"--prefix a\u202e", "cannot be shown"}, {"--agent " + strings.Repeat("x", 65), "at most 64"}, {"--read-only=maybe", "--read-only"},
		{"--help", "help"},
	} {
		if _, err := readSettings(strings.Fields(x.args), ""); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.args, err)
		}
	}
	s, err := readSettings([]string{"--prefix", "p/", "--read-only"}, "env")
	if err != nil || s != (settings{true, false, "p/", "env", 4 * time.Hour}) {
		t.Error(s, err)
	}
}
