package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestPriorityElection: the preferred candidate leads as soon as the leader has yielded, which leads
// again after it, and transfers to one that nobody prefers.
func TestPriorityElection(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	far, near := session(t, c), session(t, c)
	n, err := c.Node(ctx, node.Path())
	must(t, err)
	leads := func(term client.Term) {
		t.Helper()
		if l, err := n.Election("boss").Leader(ctx); err != nil || l.Token != term.Token || l.Session != term.Lease.Session().ID() {
			t.Errorf("the leader: %+v, %v; want that with token %d", l, err, term.Token)
		}
	}

	terms, enough := make(chan client.Term, 1), make(chan error)
	running := async(func() (struct{}, error) {
		return struct{}{}, far.Election("boss", client.ElectByPriority()).Run(ctx, func(ctx context.Context, term client.Term) error {
			terms <- term
			select {
			case <-term.Lease.Preempted():
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case err := <-enough:
				return err
			}
		}, client.Priority(2))
	})
	first := <-terms
	leads(first)
	sem, err := n.Describe(ctx, "boss")
	must(t, err)
	if o := sem.Config; sem.Limit != 1 || sem.Ephemeral || o.Policy != client.PolicyPriority || o.Aging != 0 ||
		o.Preempt != client.PreemptLower || o.Grace != 10*time.Second || o.MinHold != 30*time.Second {
		t.Errorf("it has the limit %d and the options %+v", sem.Limit, sem.Config)
	}

	// The leader yields, for it returns when it is preempted, and campaigns again.
	second, err := near.Election("boss", client.ElectByPriority()).Campaign(ctx, client.Priority(8), client.Data("near"))
	must(t, err)
	leads(second)
	release(t, second.Lease)
	third := <-terms
	leads(third)
	if first.Token >= second.Token || second.Token >= third.Token {
		t.Errorf("tokens %d, %d, %d do not rise", first.Token, second.Token, third.Token)
	}

	// It transfers to a candidate of the lowest priority, past another one.
	lowest, middle := session(t, c), session(t, c)
	queued := make(chan bool, 1)
	campaign := func(s *client.Session, priority int) outcome[client.Term] {
		o := async(func() (client.Term, error) {
			return s.Election("boss", client.ElectByPriority()).Campaign(ctx, client.Priority(priority),
				client.OnQueued(func(uint64) { queued <- true }))
		})
		<-queued
		return o
	}
	next := campaign(middle, 1)
	heir := campaign(lowest, 0)
	must(t, third.Lease.TransferTo(ctx, lowest.ID()))
	fourth := heir.must(t)
	leads(fourth)
	if _, err := running.get(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run of a leader that transferred ends with %v", err)
	}
	release(t, fourth.Lease)
	release(t, next.must(t).Lease)

	// The error of lead ends Run.
	failed := errors.New("enough")
	again := async(func() (struct{}, error) {
		return struct{}{}, far.Election("boss", client.ElectByPriority()).Run(ctx, func(context.Context, client.Term) error { return failed })
	})
	if _, err := again.get(); !errors.Is(err, failed) {
		t.Errorf("Run ends with %v", err)
	}
}

// TestPriorityElectionIsAKind: a name is an election of one kind, and no service.
func TestPriorityElectionIsAKind(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	s, other := session(t, c), session(t, c)
	refused := func(err error, want string) {
		t.Helper()
		if !errors.Is(err, client.ErrPreconditionFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one with %q", err, want)
		}
	}
	term, err := s.Election("plain").Campaign(ctx)
	must(t, err)
	_, err = other.Election("plain", client.ElectByPriority()).Campaign(ctx)
	refused(err, "another use")
	release(t, term.Lease)
	must(t, s.Create(ctx, "lock", 1, nil))
	_, err = other.Election("lock", client.ElectByPriority()).Campaign(ctx)
	refused(err, "another use")

	led, err := s.Election("zones", client.ElectByPriority()).Campaign(ctx)
	must(t, err)
	for _, what := range []string{"led", "free"} {
		_, err = other.Election("zones").Campaign(ctx)
		refused(err, "campaign \"zones\": precondition failed: the name is an election by priority")
		_, err = other.Service("zones").Register(ctx, nil)
		refused(err, "register \"zones\": precondition failed: the name is an election by priority")
		if list, err := s.Node().Service("zones").List(ctx); err != nil || len(list) != 0 {
			t.Errorf("members of an election that is %s: %+v, %v", what, list, err)
		}
		must(t, led.Lease.Release(ctx))
	}

	// Any number of candidates may find that there is none yet.
	candidates := make([]outcome[struct{}], 3)
	for i := range candidates {
		e := session(t, c).Election("boss", client.ElectByPriority())
		candidates[i] = async(func() (struct{}, error) {
			term, err := e.Campaign(ctx)
			if err == nil {
				err = term.Lease.Release(ctx)
			}
			return struct{}{}, err
		})
	}
	for _, o := range candidates {
		o.must(t)
	}
	_, err = s.Election("boss").Campaign(ctx)
	refused(err, "by priority")
}

// TestPriorityElectionModel compares with a list: candidates come, resign, and die while they lead and
// while they wait. The next leader is the one of the highest priority, and of those the first. A leader
// is preempted once somebody of a higher priority waits.
func TestPriorityElectionModel(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.Shards(1)) // the end of a session is seen at once
	ctx := testContext(t)
	c := dial(t, srv)
	n, err := c.Node(ctx, "/default")
	must(t, err)
	type candidate struct {
		s         *client.Session
		priority  int
		campaign  outcome[client.Term]
		term      client.Term
		preempted bool
	}
	r := rand.New(rand.NewPCG(1, 2))
	var leader *candidate
	var waiting []*candidate
	last := uint64(0)
	leads := func(x *candidate) {
		t.Helper()
		leader, x.term = x, x.campaign.must(t)
		if x.term.Token <= last {
			t.Fatalf("token %d after %d", x.term.Token, last)
		}
		last = x.term.Token
	}
	leave := func(i int) (x *candidate) {
		x = waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		return x
	}
	die := func(x *candidate) { must(t, admin.OfNode(n).KillSession(ctx, x.s.ID(), "test")) }
	for range 80 {
		switch k := r.IntN(10); {
		case leader == nil, k < 5 && len(waiting) < 6:
			x := &candidate{s: session(t, c), priority: r.IntN(10)}
			accepted := make(chan struct{})
			x.campaign = async(func() (client.Term, error) {
				return x.s.Election("boss", client.ElectByPriority()).Campaign(ctx, client.Priority(x.priority),
					client.OnQueued(func(uint64) { close(accepted) }))
			})
			if leader == nil {
				leads(x)
				break
			}
			<-accepted
			waiting = append(waiting, x)
		case k < 7 && len(waiting) > 0:
			x := leave(r.IntN(len(waiting)))
			die(x)
			if _, err := x.campaign.get(); !errors.Is(err, client.ErrSessionExpired) {
				t.Fatal(err)
			}
		default:
			if was := leader; k == 9 {
				die(was)
			} else {
				must(t, was.term.Lease.Release(ctx))
			}
			leader = nil
			best := -1
			for i, x := range waiting {
				if best < 0 || x.priority > waiting[best].priority {
					best = i
				}
			}
			if best >= 0 {
				leads(leave(best))
			}
		}
		if leader == nil {
			continue
		}
		for _, x := range waiting {
			leader.preempted = leader.preempted || x.priority > leader.priority
		}
		if leader.preempted {
			<-leader.term.Lease.Preempted()
		}
		select {
		case <-leader.term.Lease.Preempted():
			if !leader.preempted {
				t.Fatal("a leader is preempted by nobody")
			}
		default:
		}
	}
}
