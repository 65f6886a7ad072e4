package main

import (
	"context"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/signalbox-dev/signalbox/client"
	coord "github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

type membersKey struct{}

// scriptMembers is the members of processes that a script has brought, by their data.
type scriptMembers struct {
	c       *client.Client
	members map[string]*coord.Membership
}

func (c *scriptMembers) close() {
	if c.c != nil {
		_ = c.c.Close() // its sessions end, and the memberships with them
	}
	for _, p := range c.members {
		<-p.Done()
	}
}

// agreeing completes its rounds at once; one that is stuck does not prepare while a round lasts.
type agreeing struct {
	coord.BaseHandler
	stuck bool
}

func (h agreeing) Prepare(r *coord.Round) error {
	if h.stuck {
		<-r.Context().Done()
	}
	return nil
}

func (agreeing) Coordinate(r *coord.Round) error { return r.Complete(nil) }

// cmdMember: member join|stuck NAME DATA [KEY] brings a member of a process, which has gone through
// a round unless it is stuck; member leave DATA takes it away.
func cmdMember(ts *testscript.TestScript, neg bool, args []string) {
	srv, c := ts.Value(serverKey{}).(*servertest.Server), ts.Value(membersKey{}).(*scriptMembers)
	if neg || len(args) < 2 {
		ts.Fatalf("usage: member join|stuck NAME DATA [KEY], or member leave DATA")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if args[0] == "leave" {
		p := c.members[args[1]]
		ts.Check(p.Leave(ctx))
		return
	}
	var err error
	if c.c == nil {
		c.c, err = client.Dial(ctx, srv.Addr())
		ts.Check(err)
	}
	s, err := c.c.Session(ctx, "/default", client.Timeout(time.Minute))
	ts.Check(err)
	o := coord.Options{Data: []byte(args[2]), Synchronous: args[0] == "join"}
	if len(args) > 3 {
		o.Key, o.Return = args[3], time.Hour
	}
	c.members[args[2]], err = coord.Join(ctx, s, args[1], agreeing{stuck: args[0] == "stuck"}, o)
	ts.Check(err)
}
