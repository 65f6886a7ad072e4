package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestElection(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	n, err := c.Node(ctx, "/default")
	must(t, err)
	if l, err := n.Election("boss").Leader(ctx); err != nil || l.Exists {
		t.Fatal(l, err)
	}
	next, stop := iter.Pull2(n.Election("boss").Observe(ctx))
	defer stop()
	observe := func() client.Leader {
		t.Helper()
		l, err, _ := next()
		must(t, err)
		return l
	}
	if observe().Exists {
		t.Fatal("somebody leads already")
	}

	var leading atomic.Int64
	var tokens []uint64
	ended := make(chan error, 3)
	turn := make(chan error)
	for i := range 3 {
		e := session(t, c).Election("boss")
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, term client.Term) error {
				if leading.Add(1) != 1 {
					t.Error("two leaders")
				}
				defer leading.Add(-1)
				tokens = append(tokens, term.Token)
				return <-turn
			}, client.Data(fmt.Sprint("candidate", i)))
		}()
	}
	failed := errors.New("enough")
	last := client.Leader{}
	for i, result := range []error{nil, failed, nil} {
		for l := observe(); ; l = observe() {
			if l.Exists && l.Token != last.Token {
				last = l
				break
			}
		}
		if len(last.Data) == 0 {
			t.Fatal("leader without data")
		}
		turn <- result
		if err := <-ended; !errors.Is(err, result) || (result == nil) != (err == nil) {
			t.Fatalf("run %d: %v, want %v", i, err, result)
		}
	}
	if !slices.IsSorted(tokens) || len(tokens) != 3 {
		t.Fatal(tokens)
	}

	// Losing the leadership ends the term's context; Run goes on with the next term, or ends with
	// the session.
	s := session(t, c)
	begun := make(chan client.Term, 1)
	run := async(func() (int, error) {
		return 0, s.Election("boss").Run(ctx, func(ctx context.Context, term client.Term) error {
			begun <- term
			<-ctx.Done()
			return ctx.Err()
		})
	})
	<-begun
	must(t, admin.OfNode(n).KillSession(ctx, s.ID(), "test"))
	if _, err := run.get(); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}

	s = session(t, c)
	e := s.Election("boss")
	async(func() (client.Term, error) { return e.Campaign(ctx) }).while(t, watchChanges(srv))
	must(t, e.Resign(ctx))
	must(t, e.Resign(ctx))
}

// TestLeaderIsDescribed: who leads is to be found, however its session was started: the description
// names the program, the host and the process, unless the program says something else.
func TestLeaderIsDescribed(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	n, err := c.Node(ctx, node.Path())
	must(t, err)
	host, err := os.Hostname()
	must(t, err)
	own := fmt.Sprintf("%s@%s pid %d", filepath.Base(os.Args[0]), host, os.Getpid())
	leads := func(name, want string, s *client.Session) {
		t.Helper()
		_, err := s.Election(name).Campaign(ctx)
		must(t, err)
		if l, err := n.Election(name).Leader(ctx); err != nil || l.Description != want {
			t.Errorf("%s is led by %q, want %q: %v", name, l.Description, want, err)
		}
	}
	start := func(opts ...client.SessionOption) *client.Session {
		t.Helper()
		s, err := c.Session(ctx, node.Path(), opts...)
		must(t, err)
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		return s
	}
	leads("a session", own, start())
	leads("another text", "billing", start(client.Description("billing")))
	leads("no text", "", start(client.Description("")))
	opened, err := client.OpenSession(ctx, client.Config{Endpoints: []string{node.Addr()}}, node.Path())
	must(t, err)
	defer opened.Client().Close()
	leads("an opened session", own, opened)
	must(t, c.Supervise(ctx, node.Path(), func(_ context.Context, s *client.Session) error {
		leads("a supervised session", own, s)
		return nil
	}))
}
