package process

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// counter is a server with one answer after the other.
type counter struct {
	asked   []protocol.Message
	answers []any // *protocol.ProcessStatus, or error
	again   bool  // earlier sendings may have had their effect
	events  []watchStep
}

func (c *counter) Name() string   { return "queue" }
func (c *counter) NodeID() uint64 { return 5 }

func (c *counter) Request(_ context.Context, _ protocol.Kind, m, reply protocol.Message) (bool, error) {
	if d, ok := m.(*protocol.ProcessDescribe); ok {
		page := *d
		m = &page
	}
	c.asked = append(c.asked, m)
	if len(c.answers) == 0 {
		return c.again, nil
	}
	a := c.answers[0]
	c.answers = c.answers[1:]
	if err, ok := a.(error); ok {
		return c.again, err
	}
	*reply.(*protocol.ProcessStatus) = *a.(*protocol.ProcessStatus)
	return c.again, nil
}

func (c *counter) Watch(context.Context) iter.Seq2[watchStep, error] {
	return func(yield func(watchStep, error) bool) {
		for _, n := range c.events {
			if !yield(n, nil) {
				return
			}
		}
		yield(watchStep{}, client.ErrForbidden)
	}
}

func statusPage(revision, session uint64, cursor string) *protocol.ProcessStatus {
	return &protocol.ProcessStatus{
		Revision: revision, Name: []byte("queue"), Clock: 1000, Phase: protocol.PhaseWaiting, Epoch: 7,
		Coordinator: 1, Start: 1250, Started: 1_700_000_000_000, NumMembers: 2,
		Options: protocol.ProcessOptions{Election: protocol.ElectPreferred, Debounce: 100, Return: 30_000},
		Members: []protocol.ProcessMemberInfo{{Member: protocol.ProcessMember{Session: session, Order: session},
			Status: protocol.MemberAbsent, Until: 1000 + 500*session}},
		History: []protocol.ProcessHistoryRound{{Epoch: 6, Size: 2, Duration: 40, Outcome: protocol.RoundFailed, Text: "no disk"}},
		Cursor:  []byte(cursor),
	}
}

// TestDescribe: pages that fit are put together; after a change between them it begins again, and
// in the end takes what there is.
func TestDescribe(t *testing.T) {
	c := &counter{answers: []any{statusPage(1, 1, "x"), statusPage(2, 2, ""), statusPage(2, 1, "x"), statusPage(2, 2, "")}}
	s, err := (&Operator{c}).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.asked) != 4 || string(c.asked[3].(*protocol.ProcessDescribe).Cursor) != "x" ||
		len(c.asked[2].(*protocol.ProcessDescribe).Cursor) != 0 {
		t.Errorf("asked %d times", len(c.asked))
	}
	if s.Name != "queue" || s.Phase != Waiting || s.StartsIn != 250*time.Millisecond ||
		!s.Started.Equal(time.UnixMilli(1_700_000_000_000)) || len(s.Members) != 2 ||
		s.Members[1].Session != 2 || s.Members[1].LeavesIn != time.Second || len(s.History) != 1 ||
		s.History[0].Lasted != 40*time.Millisecond {
		t.Errorf("%+v", s)
	}
	if o := s.Options; o.Election != Preferred || o.Debounce != 100*time.Millisecond || o.Return != 30*time.Second {
		t.Errorf("%+v", o)
	}
	if len(s.Lagging()) != 0 {
		t.Errorf("behind are %+v", s.Lagging())
	}
	s.Members[0].State = MemberPreparing
	if b := s.Lagging(); len(b) != 1 || b[0].Session != 1 {
		t.Errorf("behind are %+v", b)
	}
	c = new(counter)
	for i := range uint64(12) {
		c.answers = append(c.answers, statusPage(i, 1, "x"), statusPage(i+1, 2, ""))
	}
	if s, err := (&Operator{c}).Describe(t.Context()); err != nil || len(s.Members) != 2 || len(c.asked) != 2*(maxRereads+1) {
		t.Errorf("%+v, %v after %d questions", s, err, len(c.asked))
	}
	c = &counter{answers: []any{error(client.ErrNotFound)}}
	if _, err := (&Operator{c}).Describe(t.Context()); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

// TestOperate: what operators ask carries what they said; an outcome that nobody knows is told as
// such.
func TestOperate(t *testing.T) {
	c := new(counter)
	o := &Operator{c}
	ctx := t.Context()
	if err := errors.Join(o.Force(ctx, "new hosts"), o.Evict(ctx, 9, "sick"),
		o.Alter(ctx, Options{RoundTimeout: 1500 * time.Microsecond})); err != nil {
		t.Fatal(err)
	}
	force, evict, alter := c.asked[0].(*protocol.ProcessForceRound), c.asked[1].(*protocol.ProcessEvict),
		c.asked[2].(*protocol.ProcessAlter)
	if force.Node != 5 || string(force.Name) != "queue" || force.Text != "new hosts" || evict.Session != 9 ||
		evict.Text != "sick" || string(evict.Name) != "queue" ||
		alter.Options != (protocol.ProcessOptions{RoundTimeout: 2}) || alter.Node != 5 {
		t.Errorf("%+v, %+v, %+v", force, evict, alter)
	}
	if err := o.Alter(ctx, Options{Return: -1}); err == nil || !strings.Contains(err.Error(), "negative") || len(c.asked) != 3 {
		t.Errorf("a negative time: %v", err)
	}
	if err := o.Alter(ctx, Options{Key: "a"}); !errors.Is(err, client.ErrBadRequest) || len(c.asked) != 3 {
		t.Errorf("an option of one member: %v", err)
	}
	notFound := protocol.Errorf(protocol.StatusNotFound, "session is no member")
	lost := errors.New("gave up")
	for _, x := range []struct {
		again  bool
		answer error
		want   error
	}{
		{false, notFound, client.ErrNotFound}, {true, notFound, nil}, {false, lost, lost},
		{true, lost, client.ErrOutcomeUnknown},
	} {
		c := &counter{again: x.again, answers: []any{x.answer}}
		if err := (&Operator{c}).Evict(ctx, 9, ""); !errors.Is(err, x.want) || x.want == nil && err != nil {
			t.Errorf("sent before %v, %v: %v, want %v", x.again, x.answer, err, x.want)
		}
	}
}

// TestOperatorWatch: states and changes come one at a time, an error last.
func TestOperatorWatch(t *testing.T) {
	c := &counter{events: []watchStep{
		{State: &protocol.ProcessState{}},
		{Changes: &protocol.ProcessChanges{Changes: []protocol.ProcessChange{{Kind: ChangeJoined, Session: 1}, {Kind: ChangeStarted, Epoch: 2}}}},
		{State: &protocol.ProcessState{Exists: true, Status: *statusPage(1, 1, "")}},
	}}
	var got []string
	for n, err := range (&Operator{c}).Watch(t.Context()) {
		switch {
		case errors.Is(err, client.ErrForbidden):
			got = append(got, "forbidden")
		case err != nil:
			t.Fatal(err)
		case n.Absent:
			got = append(got, "absent")
		case n.Status != nil:
			got = append(got, n.Status.Name)
		case n.Change.Kind == ChangeJoined:
			got = append(got, "joined")
		default:
			got = append(got, "started")
		}
	}
	if s := strings.Join(got, " "); s != "absent joined started queue forbidden" {
		t.Error(s)
	}
}
