package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestLossesOfAServer: a program finds the Loss of a lease in its error, in its context, and in that
// of its session if this ended, with the cause that was planted.
func TestLossesOfAServer(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		cause, words string
		fault        func(t *testing.T, srv *servertest.Server, holder, other *client.Session)
	}{
		{"session_ended_by_operator", "host is broken", func(t *testing.T, _ *servertest.Server, holder, other *client.Session) {
			must(t, admin.OfNode(other.Node()).KillSession(t.Context(), holder.ID(), "host is broken"))
		}},
		{"preempted", "a waiter preempted it", func(t *testing.T, _ *servertest.Server, _, other *client.Session) {
			release(t, acquire(t, other, "crane", client.Priority(7)))
		}},
		{"deleted", "deleted by force", func(t *testing.T, _ *servertest.Server, _, other *client.Session) {
			must(t, other.Delete(t.Context(), "crane", true))
		}},
		{"unreachable", "answer", func(_ *testing.T, srv *servertest.Server, _, _ *client.Session) { srv.Unreachable() }},
		{"unreachable", "did not answer for ", func(_ *testing.T, srv *servertest.Server, _, _ *client.Session) { srv.Pause() }},
	} {
		t.Run(x.cause, func(t *testing.T) {
			t.Parallel()
			srv := servertest.Start(t, servertest.RealTime())
			c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}})
			must(t, err)
			t.Cleanup(c.CloseWithoutRelease)
			holder, other := session(t, c, client.Timeout(8*time.Second)), session(t, c)
			must(t, other.Create(t.Context(), "crane", 1, nil, client.SemaphoreConfig{Policy: client.PolicyPriority,
				Preempt: client.PreemptLower, Grace: time.Second}))
			lease := acquire(t, holder, "crane", client.Priority(2))
			x.fault(t, srv, holder, other)
			<-lease.Context().Done()
			ends := []error{lease.Lost(), context.Cause(lease.Context())}
			if err := holder.Err(); err != nil {
				ends = append(ends, err)
			}
			for _, err := range ends {
				loss, ok := errors.AsType[*client.Loss](err)
				if !ok || loss.Cause != x.cause || !strings.Contains(err.Error(), x.words) || loss.Advice == "" ||
					loss.Since <= 0 || len(loss.Steps) == 0 {
					t.Errorf("%v: %+v", err, loss)
				}
			}
		})
	}
}
