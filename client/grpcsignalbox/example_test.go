package grpcsignalbox_test

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/grpcsignalbox"
)

// serveUntil is what the README shows of a member, word for word.
func serveUntil(ctx context.Context, c *client.Client, addr string) error {
	return discovery.Serve(ctx, c, "/default", "api", discovery.Endpoint{Addr: addr, Zone: "zone-a"},
		discovery.ReadyCheck(discovery.CheckTCP(addr))) // drains when ctx ends, as at SIGTERM
}

// callers is the example of callers in the SDK's README, word for word.
func callers(c *client.Client, opts ...grpc.DialOption) (*grpc.ClientConn, *http.Client, error) {
	web := &http.Client{Transport: &discovery.Transport{Client: c, Node: "/default"}} // http://api.signalbox/v1
	conn, err := grpc.NewClient("signalbox:///default/api", append(grpcsignalbox.Options(c), opts...)...)
	return conn, web, err
}
