package replica

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestMemberMessagesAreBounded: what waits for a shard's goroutine is bounded in number and bytes,
// and is refused when it has ended.
func TestMemberMessagesAreBounded(t *testing.T) {
	var q memberQueue
	q.init()
	fill := func(m MemberMessage, most int) {
		t.Helper()
		n := 0
		for q.add(m) == protocol.StatusOK {
			n++
		}
		if st := q.add(m); n != most || st != protocol.StatusOverloaded {
			t.Fatalf("%d messages were taken, want %d; one more is %v", n, most, st)
		}
		if got := len(q.take(nil)); got != most {
			t.Fatalf("%d messages were there", got)
		}
	}
	fill(MemberMessage{}, MaxMemberMessages)
	fill(MemberMessage{Body: make([]byte, 1<<20)}, MaxMemberBytes>>20)
	q.closed = true
	if st := q.add(MemberMessage{}); st != protocol.StatusUnavailable {
		t.Fatalf("after the end it is %v", st)
	}
}
