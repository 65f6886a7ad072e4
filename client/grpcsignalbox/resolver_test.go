package grpcsignalbox

import (
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// stateConn is gRPC's side of a resolver.
type stateConn struct {
	resolver.ClientConn
	states chan resolver.State
}

func (c *stateConn) UpdateState(s resolver.State) error {
	c.states <- s
	return nil
}

func (c *stateConn) ReportError(error) {}

// TestMemberChangesInPlace: gRPC is told of another weight and of another zone of a member whose
// address stays.
func TestMemberChangesInPlace(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	s, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	e := discovery.Endpoint{Addr: "10.0.0.1:80", Weight: 1, Zone: "zone-a"}
	r, err := discovery.Register(t.Context(), s, "api", e)
	if err != nil {
		t.Fatal(err)
	}
	cc := &stateConn{states: make(chan resolver.State, 100)}
	target := resolver.Target{URL: url.URL{Scheme: "signalbox", Path: "/default/api"}}
	res, err := (&builder{c: c}).Build(target, cc, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(res.Close)
	for _, change := range []func(){
		func() {},
		func() { e.Weight = 7 },
		func() { e.Zone = "zone-b" },
		func() { e.Weight, e.Zone = 3, "" },
	} {
		if change(); e.Weight != 1 {
			if err := r.Update(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for is := false; !is; {
			select {
			case state := <-cc.states:
				is = len(state.Endpoints) == 1 && Weight(state.Endpoints[0]) == e.Weight && Zone(state.Endpoints[0]) == e.Zone
			case <-time.After(await.Limit):
				t.Fatalf("gRPC was not told of weight %d and zone %q", e.Weight, e.Zone)
			}
		}
	}
}
