package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestCauseOfAnotherSession: the end of another session, which the context of a call carries as its
// cause, is the error of the call, and ends nothing of this session.
func TestCauseOfAnotherSession(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	c := dial(t, node)
	a, b := session(t, c), session(t, c)
	held := acquire(t, a, "jobs", client.CreateLimit(1))
	other := acquire(t, b, "other", client.CreateLimit(1))
	for _, is := range []error{client.ErrSessionExpired, client.ErrTakenOver} {
		cause := fmt.Errorf("another session: %w (%w)", is, client.ErrBadSession)
		ctx, cancel := context.WithCancelCause(testContext(t))
		_, err := b.Acquire(ctx, "jobs", client.OnQueued(func(uint64) { cancel(cause) }))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Error(err)
		}
		if b.State() != client.Attached || b.Err() != nil || !other.Held() {
			t.Errorf("the session is %v, by %v", b.State(), b.Err())
		}
	}
	release(t, held)
	acquire(t, b, "jobs") // what was given up is not waited for any more
}

// TestReleaseBesideClose: a release that is not answered when its session is closed says that the
// units are free, once the server has heard of the close; not if nobody has heard of it.
func TestReleaseBesideClose(t *testing.T) {
	t.Parallel()
	for _, hears := range []bool{true, false} {
		t.Run(fmt.Sprint("the server hears: ", hears), func(t *testing.T) {
			t.Parallel()
			srv := servertest.Start(t, servertest.RealTime())
			timeout := 2 * time.Second // the calls end with the session
			if hears {
				timeout = time.Minute
			}
			s := session(t, dial(t, srv), client.Timeout(timeout))
			l := acquire(t, s, "jobs", client.CreateLimit(1))
			lost := l.Context()
			srv.Pause()
			released := async(func() (struct{}, error) { return struct{}{}, l.Release(testContext(t)) })
			<-lost.Done() // it was sent in the same step
			closed := async(func() (struct{}, error) { return struct{}{}, s.Close(testContext(t)) })
			<-s.Context().Done()
			if hears {
				srv.Resume()
			}
			_, err := released.get()
			if _, other := closed.get(); (other == nil) != hears {
				t.Errorf("closed: %v", other)
			}
			if hears && err != nil || !hears && !errors.Is(err, client.ErrOutcomeUnknown) {
				t.Errorf("released: %v", err)
			}
			srv.Resume()
		})
	}
}

// TestDataIsCopied: what the caller does with its data later is not sent, also when the request is
// sent again in the background.
func TestDataIsCopied(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	ctx := testContext(t)
	s := session(t, dial(t, srv))
	l := acquire(t, s, "jobs", client.CreateLimit(1), client.Data("first"))
	srv.Pause()
	over, cancel := context.WithCancel(ctx)
	cancel()
	data := []byte("second")
	if err := l.UpdateData(over, data); !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	copy(data, "xxxxxx")
	srv.DropConnections()
	srv.Resume()
	for ev, err := range s.Node().Watch(ctx, "jobs") {
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range append(ev.Added, ev.Updated...) {
			switch got := string(o.Data); got {
			case "first":
			case "second":
				return
			default:
				t.Fatalf("the data is %q", got)
			}
		}
	}
}
