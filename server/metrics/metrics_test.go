package metrics

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

var update = flag.Bool("update", false, "rewrite REFERENCE.md")

// TestReference: the page of metrics is what the table says.
func TestReference(t *testing.T) {
	const page = "REFERENCE.md"
	if *update {
		if err := os.WriteFile(page, []byte(reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != reference() {
		t.Errorf("%s is not what the table says; run make golden", page)
	}
}

// TestTable: names, units, types and caps follow Prometheus' conventions.
func TestTable(t *testing.T) {
	name, label := regexp.MustCompile(`^(signalbox|process|go)(_[a-z0-9]+)+$`), regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[string]bool{}
	for i, m := range Table() {
		total := strings.HasSuffix(m.Name, "_total")
		switch {
		case m.index != i:
			t.Errorf("%s is row %d, and says %d", m.Name, i, m.index)
		case !name.MatchString(m.Name):
			t.Errorf("%s is not a name of parts in lower case behind a prefix", m.Name)
		case seen[m.Name]:
			t.Errorf("%s comes twice", m.Name)
		case total != (m.Type == TypeCounter):
			t.Errorf("%s is a %s: counters, and nothing else, end with _total", m.Name, m.Type)
		case regexp.MustCompile(`_(ms|millis|milliseconds|ns|kb|mb|mib|percent|minutes|hours|count|sum|bucket)(_|$)`).MatchString(m.Name):
			t.Errorf("%s is not in a base unit, or ends like a part of a histogram", m.Name)
		case m.Help == "" || !strings.HasSuffix(m.Help, ".") || strings.ContainsAny(m.Help, "\\\n|"):
			t.Errorf("%s has the help %q; write sentences on one line", m.Name, m.Help)
		case len(m.Labels) == 0 && m.Cap != 1 || len(m.Labels) > 0 && m.Cap != ByNames && m.Cap < 1:
			t.Errorf("%s has %d labels and a cap of %d series", m.Name, len(m.Labels), m.Cap)
		case (m.Type == TypeHistogram) != (len(m.Bounds) > 0) || !slices.IsSorted(m.Bounds):
			t.Errorf("%s is a %s with the bounds %v", m.Name, m.Type, m.Bounds)
		}
		for _, l := range m.Labels {
			if !label.MatchString(l) || l == "le" || l == "instance" || l == "job" {
				t.Errorf("%s has the label %q", m.Name, l)
			}
		}
		seen[m.Name] = true
	}
}

// TestEveryKindIsCounted: replies to each request are counted under its own name.
func TestEveryKindIsCounted(t *testing.T) {
	n := New().NewReplies()
	for kind := range protocol.KindReply {
		if !kind.IsRequest() {
			continue
		}
		n.Count(kind, protocol.StatusOK)
		n.Took(kind, time.Second)
		if n.Of(kind, protocol.StatusOK) != 1 || n.took[kind].snapshot().count != 1 {
			t.Errorf("%v is counted as something else", kind)
		}
	}
	if n.Of(0, protocol.StatusOK) != 0 || n.took[0].snapshot().count != 0 {
		t.Error("something was counted as nothing that is known")
	}
}

// TestClosedReplies: what a closed counter has counted stays in the sum, and nothing of it is kept
// beside.
func TestClosedReplies(t *testing.T) {
	m := New()
	kept := m.NewReplies()
	kept.Count(protocol.KindAcquire, protocol.StatusOK)
	for range 3 {
		r := m.NewReplies()
		r.Count(protocol.KindAcquire, protocol.StatusOK)
		r.Took(protocol.KindAcquire, time.Second)
		m.CloseReplies(r)
		m.CloseReplies(r)
	}
	if len(m.replies) != 1 || m.replies[0] != kept {
		t.Errorf("%d counters are kept, want the open one", len(m.replies))
	}
	text := page(1, m.writeReplies)
	for _, want := range []string{`signalbox_requests_total{kind="acquire",status="OK"} 4`,
		`signalbox_request_seconds_sum{kind="acquire"} 3`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// page is what some writes make.
func page(most int, write func(p *Page)) string {
	var out bytes.Buffer
	p := newPage(most)
	write(p)
	p.writeTo(&out)
	return out.String()
}

// TestText: how series are written. Those of one metric come together.
func TestText(t *testing.T) {
	h := newDistribution(BatchCommands)
	for _, v := range []uint64{1, 2, 3, 5000} {
		h.observe(v)
	}
	got := page(2, func(p *Page) {
		p.Write(NodeOldestWait, 0.5, "/a")
		p.Write(ShardLeading, true, "2")
		p.Write(NodeOldestWait, 1e9, "x\"y\n")
		p.Write(ShardLeading, false, "3")
		p.Write(NodeOldestWait, 1, "/over/the/cap")
		p.Write(SemaphoreAcquires, uint64(7), "/a", "lock", "")
		p.writeDistribution(BatchCommands, h.snapshot())
	})
	want := `# HELP signalbox_batch_commands Commands that shared an entry of the log.
# TYPE signalbox_batch_commands histogram
signalbox_batch_commands_bucket{le="1"} 1
signalbox_batch_commands_bucket{le="2"} 2
signalbox_batch_commands_bucket{le="4"} 3
signalbox_batch_commands_bucket{le="8"} 3
signalbox_batch_commands_bucket{le="16"} 3
signalbox_batch_commands_bucket{le="32"} 3
signalbox_batch_commands_bucket{le="64"} 3
signalbox_batch_commands_bucket{le="128"} 3
signalbox_batch_commands_bucket{le="256"} 3
signalbox_batch_commands_bucket{le="512"} 3
signalbox_batch_commands_bucket{le="1024"} 3
signalbox_batch_commands_bucket{le="2048"} 3
signalbox_batch_commands_bucket{le="+Inf"} 4
signalbox_batch_commands_sum 5006
signalbox_batch_commands_count 4
# HELP signalbox_shard_leading ` + ShardLeading.Help + `
# TYPE signalbox_shard_leading gauge
signalbox_shard_leading{shard="2"} 1
signalbox_shard_leading{shard="3"} 0
# HELP signalbox_node_oldest_wait_seconds ` + NodeOldestWait.Help + `
# TYPE signalbox_node_oldest_wait_seconds gauge
signalbox_node_oldest_wait_seconds{node="/a"} 0.5
signalbox_node_oldest_wait_seconds{node="x\\\"y\\n"} 1e+09
# HELP signalbox_semaphore_acquires_total ` + SemaphoreAcquires.Help + `
# TYPE signalbox_semaphore_acquires_total counter
signalbox_semaphore_acquires_total{node="/a",semaphore="lock"} 7
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestHistogramOfSeconds: durations are counted in their bucket and written in seconds.
func TestHistogramOfSeconds(t *testing.T) {
	h := newDistribution(WaitSeconds)
	h.observeDuration(-time.Second) // a clock went back: nothing was waited for
	h.observeDuration(1500 * time.Millisecond)
	h.add([]uint64{2}, 0)
	text := page(1, func(p *Page) { p.writeDistribution(WaitSeconds, h.snapshot(), "/a") })
	for _, want := range []string{`{node="/a",le="0"} 3`, `{node="/a",le="1"} 3`, `{node="/a",le="5"} 4`,
		`_sum{node="/a"} 1.5`, `_count{node="/a"} 4`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// TestNodesBeyondTheCap: nodes that come late share a series, and no series goes back.
func TestNodesBeyondTheCap(t *testing.T) {
	var n NodeTimes
	lagging := false // the map does not have node 1 yet
	write := func() string {
		return page(10, func(p *Page) {
			n.Write(p, func(id uint64) (string, bool) {
				if id == 9 || id == 1 && lagging {
					return "", id == 9
				}
				return "/" + ID(id), false
			})
		})
	}
	for _, id := range []uint64{9, 1, 2, 3, 1} {
		n.Add(id, &NodeCounts{Waits: []uint64{1}, Ended: [3]uint64{1}}, 2)
	}
	text := write()
	for _, want := range []string{
		`signalbox_wait_seconds_count{node="/1"} 2`, `signalbox_wait_seconds_count{node="other"} 2`,
		`signalbox_waits_ended_total{node="/1",outcome="granted"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `"/9"`) {
		t.Error("a node that was dropped has series still")
	}
	n.Add(4, &NodeCounts{Waits: []uint64{1}}, 2)
	if text := write(); !strings.Contains(text, `signalbox_wait_seconds_count{node="/4"} 1`) {
		t.Errorf("the place of a dropped node is not given to another:\n%s", text)
	}
	for range 2 {
		n.Add(2, &NodeCounts{Levels: []LevelCounts{{Level: 9, Waits: []uint64{1}}, {Level: 0, Waits: []uint64{0, 2}, Sum: 2}}}, 2)
	}
	text = write()
	for _, want := range []string{
		`signalbox_priority_wait_seconds_count{node="other",level="9"} 2`, `signalbox_priority_wait_seconds_count{node="other",level="0"} 4`,
		`signalbox_priority_wait_seconds_sum{node="other",level="0"} 0.004`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	lagging = true
	if strings.Contains(write(), `node="/1"`) {
		t.Error("a node has series under a name that is not known")
	}
	lagging = false
	if text := write(); !strings.Contains(text, `signalbox_wait_seconds_count{node="/1"} 2`) {
		t.Errorf("counts are forgotten while the map does not have their node:\n%s", text)
	}
}

// TestObserveAllocatesNothing: what happens for each request costs no allocation.
func TestObserveAllocatesNothing(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	m := New()
	r := m.NewReplies()
	if n := testing.AllocsPerRun(100, func() {
		m.Panics.Inc()
		m.LogWrite.Update(0.001)
		r.Count(protocol.KindAcquire, protocol.StatusOK)
		r.Took(protocol.KindAcquire, time.Millisecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRequest is what one request costs in metrics: its reply is counted and measured.
func BenchmarkRequest(b *testing.B) {
	r := New().NewReplies()
	b.ReportAllocs()
	for b.Loop() {
		r.Count(protocol.KindAcquire, protocol.StatusOK)
		r.Took(protocol.KindAcquire, 2*time.Millisecond)
	}
}

// TestBudget: what is left out is remembered, and less may still fit.
func TestBudget(t *testing.T) {
	b := Budget{Left: 3}
	if !b.Take(2) || b.Take(2) || !b.Cut || !b.Take(1) || b.Left != 0 {
		t.Errorf("%+v", b)
	}
}

// TestProcess: the process's own metrics are there.
func TestProcess(t *testing.T) {
	text := page(1, writeProcess)
	for _, m := range []*Metric{ProcessCPU, ProcessStart, ProcessMaxFiles, GoGoroutines, GoMemory} {
		if !strings.Contains(text, "\n"+m.Name+" ") {
			t.Errorf("no %s in\n%s", m.Name, text)
		}
	}
}

func checkLabel(t *testing.T, s string) {
	l := Label(s)
	if !utf8.ValidString(l) || len(l) > MaxLabel+len("...#0123456789abcdef") || strings.ContainsAny(l, "\n\r\x00") {
		t.Errorf("the label of %q is %q", s, l)
	}
	line := page(1, func(p *Page) { p.Write(NodeOldestWait, 1, s) })
	if strings.Count(line, "\n") != 3 && s != "" {
		t.Errorf("a label of %q makes\n%s", s, line)
	}
}

// FuzzLabel: any name makes a label that is UTF-8, bounded, and on one line.
func FuzzLabel(f *testing.F) {
	for _, s := range []string{"", "lock", "x\"y\n\\", "\xff\xfe", strings.Repeat("x", 200),
		strings.Repeat("\u0437\u0430\u043c\u043e\u043a", 100), strings.Repeat("a", 127) + "\u0437", "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(checkLabel)
}

// TestLabel: names that begin alike differ, and readable ones stay readable.
func TestLabel(t *testing.T) {
	if a, b := Label(strings.Repeat("x", 200)), Label(strings.Repeat("x", 201)); a == b {
		t.Errorf("two names have the label %q", a)
	}
	for s, want := range map[string]string{"lock-1": "lock-1",
		"\u0437\u0430\u043c\u043e\u043a": "\u0437\u0430\u043c\u043e\u043a", "a\xffb": `a\xffb`, "a\tb": `a\tb`} {
		if got := Label(s); got != want {
			t.Errorf("the label of %q is %q, want %q", s, got, want)
		}
	}
}
