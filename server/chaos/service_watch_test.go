package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestThousandMembersRestart: a stream over a service of 1,000 members that all restart once tells
// each of them going and coming, and ends with the exact list.
func TestThousandMembersRestart(t *testing.T) {
	form.SkipUntil(t, form.Full, "a thousand members")
	t.Parallel()
	const members, clients = 1000, 10
	srv := servertest.Start(t, servertest.RealTime())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	dial := func() *client.Client {
		c, err := client.Dial(ctx, srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	register := func(c *client.Client, name string) *client.Session {
		s, err := c.Session(ctx, "/default", client.Description(name))
		if err != nil {
			t.Error(err)
			return nil
		}
		if _, err := s.Service("api").Register(ctx, []byte(name)); err != nil {
			t.Error(err)
		}
		return s
	}
	conns := make([]*client.Client, clients)
	for i := range conns {
		conns[i] = dial()
	}
	sessions := make([]*client.Session, members)
	all := func(do func(i int)) {
		var wg sync.WaitGroup
		for k := range clients {
			wg.Go(func() {
				for i := k; i < members; i += clients {
					do(i)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	all(func(i int) { sessions[i] = register(conns[i%clients], fmt.Sprintf("m%d/1", i)) })

	n, err := dial().Node(ctx, "/default")
	if err != nil {
		t.Fatal(err)
	}
	snapshot := make(chan struct{})
	complete := make(chan error, 1)
	go func() { complete <- followAll(ctx, n, members, snapshot) }()
	<-snapshot
	all(func(i int) {
		if err := sessions[i].Close(ctx); err != nil {
			t.Error(err)
		}
		register(conns[i%clients], fmt.Sprintf("m%d/2", i))
	})
	if err := <-complete; err != nil {
		t.Fatal(err)
	}

	list, err := n.Service("api").List(ctx, client.ReadConsistency(client.Strict))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != members {
		t.Errorf("%d members are listed, %d are there", len(list), members)
	}
}

// followAll watches until every member of the first generation was seen to go, every one of the
// second to come, and the list is exactly the second generation.
func followAll(ctx context.Context, n *client.Node, members int, snapshot chan<- struct{}) error {
	var want []string
	for i := range members {
		want = append(want, fmt.Sprintf("m%d/2", i))
	}
	slices.Sort(want)
	list := map[uint64]string{}
	gone, came := map[string]bool{}, map[string]bool{}
	for ev, err := range n.Service("api").Watch(ctx) {
		if err != nil {
			return err
		}
		m := ev.Member
		switch ev.Kind {
		case client.MemberSnapshot:
			for _, m := range ev.Members {
				list[m.Token] = string(m.Data)
			}
			if len(list) != members {
				return fmt.Errorf("the snapshot has %d members, %d had registered", len(list), members)
			}
			close(snapshot)
		case client.MemberRemoved:
			if list[m.Token] != string(m.Data) {
				return fmt.Errorf("%q (order id %d) went without having come", m.Data, m.Token)
			}
			delete(list, m.Token)
			gone[string(m.Data)] = true
		case client.MemberAdded:
			if _, twice := list[m.Token]; twice {
				return fmt.Errorf("%q (order id %d) came twice", m.Data, m.Token)
			}
			list[m.Token] = string(m.Data)
			came[string(m.Data)] = true
		default:
			return fmt.Errorf("unexpected event %d about %q", ev.Kind, m.Data)
		}
		if len(gone) == members && len(came) == members && slices.Equal(slices.Sorted(maps.Values(list)), want) {
			return nil
		}
	}
	return ctx.Err()
}
