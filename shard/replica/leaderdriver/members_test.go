package leaderdriver

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// TestMemberMessagesAreBounded: what waits for a shard's goroutine is bounded in number and bytes,
// and is refused when it has ended.
func TestMemberMessagesAreBounded(t *testing.T) {
	q := NewMembers(nil)
	fill := func(m MemberMessage, most int) {
		t.Helper()
		n := 0
		for q.Submit(m) == protocol.StatusOK {
			n++
		}
		if st := q.Submit(m); n != most || st != protocol.StatusOverloaded {
			t.Fatalf("%d messages were taken, want %d; one more is %v", n, most, st)
		}
		if got := len(q.take(nil)); got != most {
			t.Fatalf("%d messages were there", got)
		}
	}
	fill(MemberMessage{}, MaxMemberMessages)
	fill(MemberMessage{Body: make([]byte, 1<<20)}, MaxMemberBytes>>20)
	q.closed = true
	if st := q.Submit(MemberMessage{}); st != protocol.StatusUnavailable {
		t.Fatalf("after the end it is %v", st)
	}
}

// memberReplica is a replica that notes what the members' part has it do.
type memberReplica struct {
	machine  *shard.Machine
	barriers []func(ok bool)
	done     []string
}

func (r *memberReplica) note(format string, args ...any) {
	r.done = append(r.done, fmt.Sprintf(format, args...))
}
func (r *memberReplica) View(fn func(*shard.Machine)) { fn(r.machine) }
func (r *memberReplica) Barrier(fn func(ok bool))     { r.barriers = append(r.barriers, fn) }
func (r *memberReplica) Now() uint64                  { return 1 }
func (r *memberReplica) MemberReply(o proposal.Origin, err error) {
	r.note("%d: %v", o.Request, protocol.StatusOf(err))
}
func (r *memberReplica) MembersFailed(origins []proposal.Origin, st protocol.Status) {
	for _, o := range origins {
		r.note("%d failed: %v", o.Request, st)
	}
}
func (r *memberReplica) DeliverToMembers(*leader.ProcessOut) { r.note("delivered") }
func (r *memberReplica) MembersTicked()                      { r.note("ticked") }
func (r *memberReplica) FlushMembers()                       { r.note("flushed") }
func (r *memberReplica) Contain(uint64)                      {}

// TestMemberMessages: a replica answers members while it leads. That a process is unknown is
// answered behind a barrier alone.
func TestMemberMessages(t *testing.T) {
	node := newLimitReplica(t)
	r := &memberReplica{machine: node.machine}
	p := NewMembers(r)
	submit := func(requests ...uint64) {
		t.Helper()
		for _, id := range requests {
			sync := protocol.ProcessSync{Session: node.session, Name: []byte("p")}
			m := MemberMessage{Origin: proposal.Origin{Request: id, Kind: protocol.KindProcessSync}, Node: 1, Epoch: node.epoch, Body: protocol.AppendBody(nil, &sync)}
			if st := p.Submit(m); st != protocol.StatusOK {
				t.Fatal(st)
			}
		}
	}
	want := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(r.done, want) {
			t.Errorf("%s: %q, want %q", when, r.done, want)
		}
		r.done = nil
	}
	submit(1, 2)
	p.Tick(false)
	want("while it does not lead", "1 failed: unavailable", "2 failed: unavailable", "flushed")
	p.Tick(true)
	want("a tick before it leads", "flushed")
	if _, has := p.Next(); has {
		t.Error("a replica that does not lead has a tick due")
	}

	p.Start(Term{Epoch: 5 << 16, Now: 1})
	if in, has := p.Next(); !has || in > memberTick {
		t.Errorf("the first tick of a leader is due in %v, %v", in, has)
	}
	submit(3, 4)
	p.Tick(false)
	want("before the barrier", "flushed")
	if len(r.barriers) != 2 {
		t.Fatalf("%d messages wait for a barrier", len(r.barriers))
	}
	r.barriers[0](true)
	r.barriers[1](false)
	p.Tick(true)
	want("behind it", "4 failed: unavailable", "3: not found", "ticked", "flushed")
	if in, has := p.Next(); !has || in > idleMemberTick {
		t.Errorf("the next tick of an idle leader is due in %v, %v", in, has)
	}

	submit(5)
	p.Stop()
	p.Tick(false)
	want("after its end", "5 failed: unavailable", "flushed")
	p.Start(Term{Epoch: 7 << 16, Now: 2})
	submit(6)
	p.Close()
	want("when the shard stops here", "6: unavailable", "flushed")
	p.Tick(true)
	if want("later", "flushed"); p.Submit(MemberMessage{}) != protocol.StatusUnavailable {
		t.Error("a message is taken after the end")
	}
}
