package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestPriorityElectionOverInstances: three candidates, each at an instance of its own. The preferred
// one has the leader yield, and transfers the lead to the one that nobody prefers, past the other.
// Then the instance that leads most is killed, and the leader leads on.
func TestPriorityElectionOverInstances(t *testing.T) {
	form.SkipUntil(t, form.Full, "client has the elections")
	t.Parallel()
	c := newCluster(t)
	c.startThree()
	c.makeNode()
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	var sessions []*client.Session
	for _, name := range c.names() {
		x, err := client.Dial(ctx, c.instances[name].listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close() })
		s, err := x.Session(ctx, nodePath, client.Timeout(time.Minute), client.Description("at "+name))
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	type result struct {
		term client.Term
		err  error
	}
	campaign := func(s *client.Session, priority int) <-chan result {
		done := make(chan result, 1)
		go func() {
			term, err := s.Election("boss", client.ElectByPriority()).Campaign(ctx, client.Priority(priority))
			done <- result{term, err}
		}()
		return done
	}
	last := uint64(0)
	leads := func(done <-chan result) *client.Lease {
		t.Helper()
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		if l, err := sessions[0].Node().Election("boss").Leader(ctx); err != nil || l.Session != r.term.Lease.Session().ID() || r.term.Token <= last {
			t.Fatalf("token %d after %d; the leader is %+v, %v", r.term.Token, last, l, err)
		}
		last = r.term.Token
		return r.term.Lease
	}
	waits := func(s *client.Session) {
		t.Helper()
		await.True(t, "a candidate to wait", func() bool {
			w, err := s.Node().ExplainWait(ctx, "boss", s.ID())
			return err == nil && w.Waiting
		})
	}
	release := func(l *client.Lease) {
		t.Helper()
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	low, high, none := sessions[0], sessions[1], sessions[2]
	lease := leads(campaign(low, 2))
	preferred := campaign(high, 8)
	select {
	case <-lease.Preempted():
	case <-ctx.Done():
		t.Fatal("the leader does not learn that a preferred candidate has come")
	}
	release(lease)
	lease = leads(preferred)

	again, heir := campaign(low, 2), campaign(none, 0)
	waits(low)
	waits(none)
	if err := lease.TransferTo(ctx, none.ID()); err != nil {
		t.Fatal(err)
	}
	lease = leads(heir)
	s := c.awaitReady("before a leader is killed", c.names()...)
	c.instances[busiest(&s)].kill()
	if l, err := low.Node().Election("boss").Leader(ctx); err != nil || l.Token != lease.Token() || !lease.Held() {
		t.Errorf("after a kill the leader is %+v, %v; want token %d, held: %v", l, err, lease.Token(), lease.Held())
	}
	release(lease)
	release(leads(again))
}
