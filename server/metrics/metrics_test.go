package metrics

import (
	"bytes"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestEveryKindIsCounted: replies to each request are counted under its own name.
func TestEveryKindIsCounted(t *testing.T) {
	n := New().NewReplies()
	for kind := range protocol.KindReply {
		if !kind.IsRequest() {
			continue
		}
		n.Count(kind, protocol.StatusOK)
		if n.Of(kind, protocol.StatusOK) != 1 {
			t.Errorf("%v is counted as something else", kind)
		}
	}
	if n.Of(0, protocol.StatusOK) != 0 {
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
		m.CloseReplies(r)
		m.CloseReplies(r)
	}
	if len(m.replies) != 1 || m.replies[0] != kept {
		t.Errorf("%d counters are kept, want the open one", len(m.replies))
	}
	var out bytes.Buffer
	m.writeReplies(&out)
	if want := `signalbox_requests_total{kind="acquire",status="OK"} 4` + "\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestText: how series are written.
func TestText(t *testing.T) {
	var out bytes.Buffer
	WriteAll(&out, "a_", Labels("shard", 2, "name", Label("x\"y\n")), "yes", true, "no", false, "half", 0.5)
	Write(&out, "b", "", uint64(7))
	const labels = `{shard="2",name="x\\\"y\\n"}`
	want := "a_yes" + labels + " 1\na_no" + labels + " 0\na_half" + labels + " 0.5\nb 7\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	long := Label(strings.Repeat("x", 200))
	if len(long) > 150 || long == Label(strings.Repeat("x", 201)) {
		t.Errorf("a long name is %q, and so is a longer one", long)
	}
}

// TestBudget: what is left out is remembered, and less may still fit.
func TestBudget(t *testing.T) {
	b := Budget{Left: 3}
	if !b.Take(2) || b.Take(2) || !b.Cut || !b.Take(1) || b.Left != 0 {
		t.Errorf("%+v", b)
	}
}
