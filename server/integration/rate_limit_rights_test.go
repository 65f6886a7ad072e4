package integration

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/auth"
)

// TestLimitRights: operators of rate limits need admin, participants use, readers read. A session
// whose right was lowered gets no lease any more, and may leave.
func TestLimitRights(t *testing.T) {
	t.Parallel()
	var may atomic.Uint32
	var advance func(time.Duration)
	s := start(t, func(c *server.Config) {
		advance = manual(c).Advance
		c.Authorizer = authorizer(func(right auth.Right) bool { return uint32(right) <= may.Load() })
	})
	with := func(right auth.Right) { may.Store(uint32(right)) }
	with(auth.RightAdmin)
	r := connect(t, s)
	c := newLimitClient(r, r.node(), 1)
	c.mustCreate("api", protocol.LimitConfig{Rate: 1_000_000})
	path := []byte("api")
	call := func(kind protocol.Kind, m protocol.Message) func() error {
		return func() error { return c.call(kind, c.tree("api"), m, nil) }
	}
	create := func() error { return c.create("api/a", protocol.LimitConfig{Unlimited: true}) }
	alter := func() error { return c.alter("api", 0, protocol.LimitConfig{Rate: 2_000_000}) }
	remove := func() error { return c.remove("api/a") }
	join := func() error {
		return call(protocol.KindLimitJoin, &protocol.LimitJoin{Head: c.head(c.id), Path: path})()
	}
	leave := func() error {
		return call(protocol.KindLimitLeave, &protocol.LimitLeave{Head: c.head(c.id), Path: path})()
	}
	refresh := func() error {
		advance(60 * time.Millisecond)
		_, err := c.refresh(protocol.LimitLeaf{Path: path})
		return err
	}
	acquire := func() error { _, err := c.acquire("api", 1000); return err }
	describe := call(protocol.KindLimitDescribe, &protocol.LimitDescribe{Node: c.node, Path: path})
	list := call(protocol.KindLimitList, &protocol.LimitList{Shard: s.shardAt(0, c.tree("api")).ID(), Node: c.node})
	watch := call(protocol.KindLimitWatch, &protocol.LimitWatch{Node: c.node, Path: path, Session: c.id})
	const forbidden, ok = protocol.StatusForbidden, protocol.StatusOK
	for _, x := range []struct {
		right auth.Right
		what  string
		f     func() error
		want  protocol.Status
	}{
		{0, "describe", describe, forbidden}, {0, "list", list, forbidden}, {0, "watch", watch, forbidden}, {0, "join", join, forbidden},
		{0, "refresh", refresh, forbidden}, {0, "acquire", acquire, forbidden}, {0, "create", create, forbidden},
		{auth.RightRead, "describe", describe, ok}, {auth.RightRead, "list", list, ok}, {auth.RightRead, "watch", watch, ok},
		{auth.RightRead, "join", join, forbidden}, {auth.RightRead, "refresh", refresh, forbidden}, {auth.RightRead, "acquire", acquire, forbidden},
		{auth.RightUse, "join", join, ok}, {auth.RightUse, "refresh", refresh, ok}, {auth.RightUse, "refresh again", refresh, ok},
		{auth.RightUse, "acquire", acquire, ok}, {auth.RightUse, "create", create, forbidden},
		{auth.RightUse, "alter", alter, forbidden}, {auth.RightUse, "delete", remove, forbidden},
		{auth.RightRead, "refresh after it was lowered", refresh, forbidden}, {auth.RightRead, "leave", leave, ok},
		{auth.RightAdmin, "create", create, ok}, {auth.RightAdmin, "alter", alter, ok}, {auth.RightAdmin, "delete", remove, ok},
	} {
		with(x.right)
		if err := x.f(); protocol.StatusOf(err) != x.want {
			t.Errorf("%s with the right %v: %v, want %v", x.what, x.right, err, x.want)
		}
	}
}
