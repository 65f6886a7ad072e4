package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

func session(t *testing.T, c *client.Client, path string, opts ...client.SessionOption) *client.Session {
	t.Helper()
	s, err := c.Session(t.Context(), path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lock(t *testing.T, s *client.Session, name string) *client.Lease {
	t.Helper()
	l, err := s.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wait has a session wait for a lock, until the context ends.
func wait(t *testing.T, ctx context.Context, s *client.Session, name string) {
	t.Helper()
	queued, gone := make(chan uint64, 1), make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.Mutex(name).Lock(ctx, client.OnQueued(func(token uint64) { queued <- token }))
	}()
	t.Cleanup(func() { <-gone })
	<-queued
}

func find(top *admin.Top, name string) *admin.TopSemaphore {
	for i := range top.Semaphores {
		if top.Semaphores[i].Name == name {
			return &top.Semaphores[i]
		}
	}
	return nil
}

// TestTopOfACluster: what is spread over three instances comes together, whichever is asked, and
// an instance that does not answer is named.
func TestTopOfACluster(t *testing.T) {
	t.Parallel()
	form.SkipUntil(t, form.Full, "it starts a cluster")
	cluster := servertest.StartCluster(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := client.Dial(ctx, cluster.Instance(0).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	await.True(t, "leaders that stay where they are", func() bool {
		plan, err := admin.New(c).Plan(ctx)
		return err == nil && len(plan.Steps) == 0 && len(plan.Waits) == 0
	})
	holder := session(t, c, "/default", client.Description("holder"))
	const held = 60 // in all shards
	for i := range held {
		lock(t, holder, fmt.Sprintf("held/%02d", i))
	}
	var waiters []*client.Session
	for i := range 5 {
		waiters = append(waiters, session(t, c, "/default", client.Description(fmt.Sprint("waiter ", i))))
	}
	for i, s := range waiters {
		wait(t, ctx, s, "held/00")
		if i < 2 {
			wait(t, ctx, s, "held/01")
		}
	}
	t.Cleanup(cancel) // before those that wait are waited for
	busy := session(t, c, "/default", client.Description("busy"))
	for range 50 {
		if err := lock(t, busy, "busy").Release(ctx); err != nil {
			t.Fatal(err)
		}
	}

	// An instance has a second to answer, and leaders change on a busy machine: then once more.
	var top *admin.Top
	await.True(t, "three instances that answer, and lead each shard once", func() bool {
		if top, err = admin.New(c).Top(ctx, "", 0); err != nil {
			return false
		}
		var leads []uint64
		for _, i := range top.Instances {
			if i.Err != nil || i.Activity == nil {
				return false
			}
			leads = append(leads, i.Activity.Leads...)
		}
		slices.Sort(leads)
		return len(top.Instances) == 3 && len(leads) > 0 && len(leads) == len(slices.Compact(slices.Clone(leads))) &&
			len(top.Sessions) > 1 && top.Sessions[0].Held == held
	})
	for name, n := range map[string]int{"held/00": 5, "held/01": 2} {
		if s := find(top, name); s == nil || s.Waiters != n || s.Owners != 1 || s.OldestWait <= 0 ||
			s.OldestWait > time.Hour || s.Limit != client.Max || s.Path != "/default" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := find(top, "busy"); s == nil || s.GrantsPerSecond < 1 || s.Limit != 0 {
		t.Errorf("busy: %+v", s)
	}
	first := top.Sessions[0]
	if first.ID != holder.ID() || first.Held != held || first.Waiting != 0 || first.Description != "holder" ||
		first.Client == "" || first.Detached {
		t.Errorf("first session: %+v", first)
	}
	if second := top.Sessions[1]; second.Held != 0 || second.Waiting != 2 {
		t.Errorf("second session: %+v", second)
	}

	// An instance that does not answer the second question is named, and what it said first counts.
	silent := admin.Intercepted(admin.New(c), admin.Interceptor{
		CallAt: func(_ context.Context, send func(any) error, _ uint64, in, out any) error {
			if req, ok := in.(protocol.TopRequest); ok && len(req.Sessions) > 0 {
				return client.ErrUnreachable
			}
			return send(out)
		},
	})
	await.True(t, "the sessions of the first answers", func() bool {
		top, err = silent.Top(ctx, "", 0)
		return err == nil && len(top.Sessions) > 1 && top.Sessions[0].ID == holder.ID() && top.Sessions[0].Held == held
	})
	for _, i := range top.Instances {
		if !errors.Is(i.Err, client.ErrUnreachable) {
			t.Errorf("instance %d did not answer in full, and has the error %v", i.ID, i.Err)
		}
	}

	// Few rows, and a path.
	await.True(t, "one row", func() bool {
		top, err = admin.New(c).Top(ctx, "/default", 1)
		return err == nil && len(top.Sessions) == 1 && top.Sessions[0].Held == held && find(top, "held/00") != nil
	})
	if _, err := admin.New(c).Top(ctx, "/default", admin.MaxTopRows+1); !errors.Is(err, client.ErrBadRequest) {
		t.Error(err)
	}
	if _, err := admin.New(c).Top(ctx, "/missing", 0); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}

	cluster.Instance(2).Kill()
	await.True(t, "i2 alone not to answer", func() bool {
		top, err = admin.New(c).Top(ctx, "", 0)
		return err == nil && !slices.ContainsFunc(top.Instances, func(i admin.TopInstance) bool {
			return (i.Name == "i2") != (i.Err != nil)
		})
	})
}

// rights lets everybody do everything while it is nil, and then read a path and what is below it.
type rights struct{ below atomic.Pointer[string] }

func (r *rights) Allowed(_ string, right auth.Right, path string) bool {
	below := r.below.Load()
	if below == nil {
		return true
	}
	return right == auth.RightRead && *below != "" &&
		(path == "" || path == *below || strings.HasPrefix(path, strings.TrimSuffix(*below, "/")+"/"))
}

// TestTopNeedsTheRightRead: of each node, and on / for what instances do.
func TestTopNeedsTheRightRead(t *testing.T) {
	t.Parallel()
	var may rights
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) { c.Authorizer = &may }))
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	if _, err := admin.Nodes(c).Create(t.Context(), "/default/a", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Nodes(c).Create(t.Context(), "/other", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/default", "/default/a", "/other"} {
		lock(t, session(t, c, path), path)
	}
	for _, x := range []struct {
		below, path string
		want        []string // nodes
		activity    bool
		err         error
	}{
		{"/", "", []string{"/default", "/default/a", "/other"}, true, nil},
		{"/", "/default", []string{"/default", "/default/a"}, true, nil},
		{"/", "/default/a", []string{"/default/a"}, true, nil},
		{"/default", "", []string{"/default", "/default/a"}, false, nil},
		{"/other", "", []string{"/other"}, false, nil},
		{"/other", "/default", nil, false, nil},
		{"/missing", "", nil, false, nil},
		{"", "", nil, false, client.ErrForbidden},
	} {
		may.below.Store(&x.below)
		var top *admin.Top
		await.True(t, "an answer within a second", func() bool {
			top, err = admin.New(c).Top(t.Context(), x.path, 0)
			return !errors.Is(err, client.ErrUnreachable)
		})
		if !errors.Is(err, x.err) {
			t.Errorf("%+v: %v", x, err)
		}
		if err != nil || x.err != nil {
			continue
		}
		var semaphores, sessions []string
		for _, s := range top.Semaphores {
			semaphores = append(semaphores, s.Name)
		}
		for _, s := range top.Sessions {
			sessions = append(sessions, s.Path)
		}
		slices.Sort(semaphores)
		slices.Sort(sessions)
		if !slices.Equal(semaphores, x.want) || !slices.Equal(sessions, x.want) || (top.Instances[0].Activity != nil) != x.activity {
			t.Errorf("%+v: semaphores %q, sessions of %q, instances %+v", x, semaphores, sessions, top.Instances)
		}
	}
	may.below.Store(nil)
}
