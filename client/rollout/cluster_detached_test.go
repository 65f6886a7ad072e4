package rollout_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestClusterDetachedGivesUpItsID: an instance whose session is detached gives up its id, and one
// whose session is attached, or attached again, keeps it, wherever the session is at home: at the
// track's instance, or at another one that leads other shards.
func TestClusterDetachedGivesUpItsID(t *testing.T) {
	t.Parallel()
	k := servertest.StartCluster(t, 2, servertest.Shards(1), servertest.Config(func(c *server.Config) {
		c.ReplicationFactor, c.Buckets = 1, 16
	}))
	x := &site{t: t, ctx: t.Context(), addrs: k.Addrs()}
	var node meta.Node
	var at [16]int // the instance that serves a bucket
	k.Await("buckets at both instances", func(s *meta.State) bool {
		var there bool
		if node, there = s.NodeAt("/default"); !there || len(s.Moves()) > 0 {
			return false
		}
		seen := map[int]bool{}
		for b := range at {
			shard, _ := s.Route(node.Tier, uint32(b))
			at[b] = k.Leader(shard)
			seen[at[b]] = true
		}
		return seen[0] && seen[1]
	})
	// session is one at home at an instance, with a client of its own.
	session := func(home int) (*client.Client, *client.Session) {
		for {
			s := x.session()
			if at[protocol.SessionBucket(s.ID())] == home {
				return x.clients[len(x.clients)-1], s
			}
		}
	}
	trackAt := func(instance int) string {
		for i := 0; ; i++ {
			if name := fmt.Sprintf("geo/%d", i); at[protocol.Bucket(node.ID, []byte(name), 16)] == instance {
				return name
			}
		}
	}
	register := func(s *client.Session, track, id string) error {
		_, err := sdk.NewTrack(s, track).Register(x.ctx, sdk.Registration{ID: id, Location: "SAS"})
		return err
	}
	for of := range 2 {
		name := trackAt(of)
		_, other := session(of)
		x.track = sdk.NewTrack(other, name)
		if _, err := x.track.Create(x.ctx, sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}}}); err != nil {
			t.Fatal(err)
		}
		for home := range 2 {
			what := fmt.Sprintf("track at instance %d, session at home at %d", of, home)
			c, s := session(home)
			gives, keeps := fmt.Sprintf("gives-%d", home), fmt.Sprintf("keeps-%d", home)
			for _, id := range []string{gives, keeps} {
				if err := register(s, name, id); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if err := register(other, name, id); !errors.Is(err, sdk.ErrAlreadyRegistered) {
					t.Fatalf("%s: its session is attached, and its id is given away: %v", what, err)
				}
			}
			saved := s.Save()
			c.CloseWithoutRelease()
			x.until("the id of a detached session, "+what, func() bool {
				err := register(other, name, gives)
				if err != nil && !errors.Is(err, sdk.ErrAlreadyRegistered) {
					t.Fatal(err)
				}
				return err == nil
			})
			next, err := client.Open(x.ctx, x.config())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = next.Close() })
			heir, err := next.Restore(x.ctx, saved)
			if err != nil {
				t.Fatal(err)
			}
			if err := register(heir, name, gives); !errors.Is(err, sdk.ErrAlreadyRegistered) {
				t.Errorf("%s: the id that another session has now is given back: %v", what, err)
			}
			// The track's shard knows with this request that the session is attached again.
			if err := register(heir, name, keeps); err != nil {
				t.Fatalf("%s: attached again: %v", what, err)
			}
			if err := register(other, name, keeps); !errors.Is(err, sdk.ErrAlreadyRegistered) {
				t.Errorf("%s: its session is attached again, and its id is given away: %v", what, err)
			}
		}
	}
}
