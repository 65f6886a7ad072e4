package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	at    = time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.FixedZone("", 3600))
	quiet = slog.New(slog.DiscardHandler)
)

func clock() time.Time { return at }

func open(t *testing.T, c Config) *Log {
	t.Helper()
	c.Instance, c.Generation, c.Now = 3, 2, clock
	if c.Logger == nil {
		c.Logger = quiet
	}
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Config{Destination: path})
	l.Write(Event{Title: "local_startup", Message: "instance is starting"})
	l.Write(Event{Title: "join_instance", Severity: Medium, Message: "a new instance `x` joined the cluster",
		Initiator: "admin", Time: at.Add(time.Second),
		Fields: []Field{{"instance_name", "x\n\x1b[31m\u061c\u202e\"\\"}, {"raw", "\xff\xfe"}, {"instance", uint64(1<<64 - 1)},
			{"id", "mine"}, {"names", []string{"a", "\u202eb"}}, {"none", []string{}}, {"forced", true}}})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want := `{"title":"local_startup","message":"instance is starting","severity":"low","initiator":"cluster","time":"2026-01-02T02:04:05.006Z","id":"3.2.1"}
{"title":"join_instance","message":"a new instance ` + "`x`" + ` joined the cluster","severity":"medium","initiator":"admin","time":"2026-01-02T02:04:06.006Z",` +
		`"id":"3.2.2","instance_name":"x\n\u001b[31m\u061c\u202e\"\\","raw_base64":"//4=","instance":18446744073709551615,` +
		`"id_":"mine","names":["a","\u202eb"],"none":[],"forced":true}
`
	if got := contents(t, path); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v, want 0600", info.Mode(), err)
	}
	// Another start appends.
	l = open(t, Config{Destination: path})
	l.Write(Event{Title: "local_startup", Severity: High})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, path); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 3 {
		t.Errorf("after another start: %s", got)
	}
}

// TestName: in another log a name is what it is in an audit log.
func TestName(t *testing.T) {
	for _, name := range []string{"lock", "", "\xff\xfe", "a\xff", "✋"} {
		var other bytes.Buffer
		slog.New(slog.NewJSONHandler(&other, nil)).Info("x", Name("semaphore", []byte(name)))
		line := appendLine(nil, &Event{Fields: []Field{{"semaphore", name}}}, id{})
		want := line[bytes.Index(line, []byte(`"semaphore`)):]
		if !bytes.HasSuffix(other.Bytes(), want) {
			t.Errorf("%q is %s, want the end %s", name, other.Bytes(), want)
		}
	}
}

// FuzzText: whatever the text, the line is JSON that reads back to it, and has no control
// characters.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00\x1f\x7f\u0085\u2028\u202e", "\xff\xfe", `"\`, "✋"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := appendLine(nil, &Event{Title: s, Message: s, Initiator: s, Time: at, Fields: []Field{{s, s}}}, id{1, 2, 3})
		var back map[string]any
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); len(want) > 0 && back["message"] != strings.ToValidUTF8(string([]rune(s)), "\ufffd") {
			t.Errorf("%q reads back as %q", s, back["message"])
		}
		if bytes.ContainsFunc(line[:len(line)-1], func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q has control characters", line)
		}
	})
}

// blockingWriter is a destination that takes lines only when told to.
type blockingWriter struct {
	mu    sync.Mutex
	open  chan struct{} // nil is open
	enter chan struct{} // somebody stands before the closed gate
	out   bytes.Buffer
	err   error
	part  int // how many bytes an error lets through
	tries int
	tried chan struct{}
}

func (g *blockingWriter) Write(b []byte) (int, error) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		g.enter <- struct{}{}
		<-open
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tries++
	if g.tried != nil {
		defer func() { g.tried <- struct{}{} }()
	}
	if g.err != nil {
		n := min(g.part, len(b))
		g.out.Write(b[:n])
		return n, g.err
	}
	return g.out.Write(b)
}

// TestNeverBlocks: a destination that takes nothing holds nobody up; what found no room is said as
// soon as there is some, and is missing in the counts.
func TestNeverBlocks(t *testing.T) {
	g := &blockingWriter{open: make(chan struct{}), enter: make(chan struct{}, 10)}
	l := open(t, Config{Destination: Stderr, Queue: 3, stderr: g})
	l.Write(Event{Title: "x"})
	<-g.enter // the writer has taken one
	for range 99 {
		l.Write(Event{Title: "x"})
	}
	if lost := l.Lost(); lost != 96 {
		t.Errorf("lost %d of 100, 3 have room and one is being written", lost)
	}
	close(g.open)
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "96") {
		t.Errorf("close says %v", err)
	}
	lines := strings.Split(strings.TrimSpace(g.out.String()), "\n")
	if last := lines[len(lines)-1]; len(lines) != 5 || !strings.Contains(last, `"id":"3.2.101"`) ||
		!strings.HasSuffix(last, `"count":96}`) {
		t.Errorf("%d lines, the last: %s", len(lines), last)
	}
	l.Write(Event{Title: "late"}) // closed: lost, no panic
}

// TestLostEventsKeepTheirPlace: however often the line about lost events is tried, it takes one
// count: a count that is missing is a lost event.
func TestLostEventsKeepTheirPlace(t *testing.T) {
	synctest.Test(t, lostEventsKeepTheirPlace) // nothing is tried again before all are written
}

func lostEventsKeepTheirPlace(t *testing.T) {
	g := &blockingWriter{err: errors.New("no space left"), tried: make(chan struct{}, 1)}
	l := open(t, Config{Destination: Stderr, Queue: 1, stderr: g, retry: time.Millisecond})
	for range 3 {
		l.Write(Event{Title: "x"})
	}
	for range 4 {
		<-g.tried
	}
	g.mu.Lock()
	g.err, g.tried = nil, nil
	g.mu.Unlock()
	if err := l.Close(); err == nil {
		t.Error("no event is lost")
	}
	if out := g.out.String(); !strings.Contains(out, `"id":"3.2.1"`) || !strings.HasSuffix(out, `"id":"3.2.4","count":2}`+"\n") {
		t.Errorf("one event has room, and the line about two is the fourth: %s", out)
	}
}

// TestTornLine: what was written in part is not written twice, and the line that was cut stays
// apart from the next.
func TestTornLine(t *testing.T) {
	g := &blockingWriter{err: errors.New("no space left"), tried: make(chan struct{}, 10), open: make(chan struct{}),
		enter: make(chan struct{}, 10)}
	l := open(t, Config{Destination: Stderr, stderr: g, retry: time.Millisecond})
	l.Write(Event{Title: "first"})
	<-g.enter // the writer has it; the others go together
	for i := range 3 {
		l.Write(Event{Title: fmt.Sprint("t", i)})
	}
	line := len(appendLine(nil, &Event{Title: "t0", Time: at}, id{3, 2, 1}))
	g.part = line + 10
	close(g.open)
	<-g.tried // "first" was written whole, with an error; the others follow when it is tried again
	<-g.enter
	<-g.tried
	g.mu.Lock()
	g.err, g.open = nil, nil
	g.mu.Unlock()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text := g.out.String()
	whole := 0
	for s := range strings.Lines(text) {
		if json.Valid([]byte(s)) {
			whole++
		}
	}
	if whole != 4 || strings.Count(text, `"title":"t0"`) != 1 || strings.Count(text, `"title":"t2"`) != 1 {
		t.Errorf("%d whole lines of 4:\n%s", whole, text)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	path, old := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.log.1")
	l := open(t, Config{Destination: path})
	l.Write(Event{Title: "before"})
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Write(Event{Title: "after"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if a, b := contents(t, old), contents(t, path); !strings.Contains(a, "before") || strings.Contains(a, "after") ||
		!strings.Contains(b, "after") || strings.Contains(b, "before") {
		t.Errorf("old file:\n%snew file:\n%s", a, b)
	}
	if err := l.Reopen(); err == nil {
		t.Error("a closed log is opened again")
	}
}

// TestFileGone: a folder that cannot be written is tried again, and its events are not lost while
// there is room.
func TestFileGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.log")
	l := open(t, Config{Destination: path})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil {
		t.Error("reopened in a folder that is gone")
	}
	l.Write(Event{Title: "kept"})
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got := contents(t, path); !strings.Contains(got, "kept") {
		t.Errorf("file has %q", got)
	}
}

// TestPositionOfTheUnwritten: what waits, what the writer has taken, and what it failed to write
// before the end are not written.
func TestPositionOfTheUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &blockingWriter{err: errors.New("no space left"), open: make(chan struct{}), enter: make(chan struct{}, 10)}
		l := open(t, Config{Destination: Stderr, stderr: g})
		at := func(when string, events, written uint64) {
			t.Helper()
			if e, w := l.Position(); e != events || w != written {
				t.Errorf("%s: %d events, %d written, want %d and %d", when, e, w, events, written)
			}
		}
		at("at the start", 0, 0)
		l.Write(Event{Title: "x"})
		<-g.enter
		at("while the writer has one", 1, 0)
		l.Write(Event{Title: "y"})
		at("while one more waits", 2, 0)
		close(g.open)
		synctest.Wait()
		at("after a failure", 2, 0)
		if err := l.Close(); err == nil {
			t.Error("no event is lost")
		}
		at("at the end", 2, 0)
	})
}

func TestOpenErrors(t *testing.T) {
	for name, destination := range map[string]string{"none": "", "a folder": t.TempDir(),
		"no folder": filepath.Join(t.TempDir(), "a", "b")} {
		if l, err := Open(Config{Destination: destination}); err == nil {
			t.Errorf("%s is taken", name)
			_ = l.Close()
		}
	}
}

func TestNilLog(t *testing.T) {
	var l *Log
	l.Write(Event{Title: "x"})
	if err := errors.Join(l.Reopen(), l.Close()); err != nil || l.Lost() != 0 {
		t.Errorf("auditing that is off: %v", err)
	}
}

// TestManyWriters: lines of many goroutines are whole, and their counts are in order.
func TestManyWriters(t *testing.T) {
	g := &blockingWriter{}
	l := open(t, Config{Destination: Stderr, Queue: 1000, stderr: g})
	var writing sync.WaitGroup
	for range 10 {
		writing.Go(func() {
			for range 100 {
				l.Write(Event{Title: "x", Fields: []Field{{"f", strings.Repeat("y", 50)}}})
			}
		})
	}
	writing.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&g.out)
	for i := 1; ; i++ {
		var e struct{ ID string }
		if err := d.Decode(&e); err == io.EOF && i == 1001 {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("3.2.%d", i); e.ID != want {
			t.Fatalf("id %s, want %s", e.ID, want)
		}
	}
}

func TestTopology(t *testing.T) {
	got := ""
	for i, e := range Topology([]meta.AuditEvent{
		{Title: "join_instance", Severity: meta.SeverityLow, Message: "a new instance `b` joined the cluster", Instance: 2, Name: "b", Index: 70, Count: 1},
		{Title: "change_current_state", Severity: meta.SeverityMedium, Message: "m", Instance: 2, Name: "b", State: "Online(1)", Index: 71, Count: 1},
		{Title: "restore_tier", Severity: meta.SeverityHigh, Message: "m", Tier: "cold", Backup: 0xbac, Index: 72, Count: 1},
	}) {
		e.Time = at
		got += string(appendLine(nil, &e, id{1, 1, uint64(i + 1)}))
	}
	want := `{"title":"join_instance","message":"a new instance ` + "`b`" + ` joined the cluster","severity":"low",` +
		`"initiator":"cluster","time":"2026-01-02T02:04:05.006Z",` +
		`"id":"1.1.1","instance_name":"b","instance_id":2,"index":70}
{"title":"change_current_state","message":"m","severity":"medium","initiator":"cluster","time":"2026-01-02T02:04:05.006Z","id":"1.1.2","instance_name":"b","instance_id":2,` +
		`"new_state":"Online(1)","index":71}
{"title":"restore_tier","message":"m","severity":"high","initiator":"cluster","time":"2026-01-02T02:04:05.006Z","id":"1.1.3",` +
		`"tier":"cold","backup":"0000000000000bac","index":72}
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestGeneration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "starts")
	for want := uint64(1); want < 4; want++ {
		if n, err := Generation(path); n != want || err != nil {
			t.Errorf("start %d counts as %d, %v", want, n, err)
		}
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Generation(path); err == nil {
		t.Error("nonsense is a number")
	}
	if _, err := Generation(filepath.Join(t.TempDir(), "gone", "starts")); err == nil {
		t.Error("counted in a folder that is not there")
	}
}

// TestPosition: the place is kept over restarts, and a file that is none is told.
func TestPosition(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position")
	p, err := OpenPosition(path)
	if err != nil || p.Index() != 0 {
		t.Fatalf("a new one: %v, %v", p, err)
	}
	for _, index := range []uint64{7, 7, 1 << 40} {
		if err := p.Set(index); err != nil {
			t.Fatal(err)
		}
	}
	if p, err = OpenPosition(path); err != nil || p.Index() != 1<<40 {
		t.Fatalf("after a restart: %v, %v", p, err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, lost := range []string{"", "\x00\x00\x00\n"} {
		write(lost)
		if p, err = OpenPosition(path); err != nil || p.Index() != 0 {
			t.Errorf("after a power failure that left %q: %v, %v", lost, p, err)
		}
	}
	write("x")
	if _, err := OpenPosition(path); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a file that has no number: %v", err)
	}
}
