package gateway

import (
	"context"
	"net/netip"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Discovery"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// discovery is YDB's discovery service.
type discovery struct {
	Ydb_Discovery_V1.UnimplementedDiscoveryServiceServer
	g *Gateway
}

// ListEndpoints names all gateways. Clients dial what it says. It does not ask the cluster, so that
// clients connect while the cluster cannot answer, and checks no token: every call does.
func (d *discovery) ListEndpoints(
	ctx context.Context, req *Ydb_Discovery.ListEndpointsRequest,
) (*Ydb_Discovery.ListEndpointsResponse, error) {
	g := d.g
	err := g.checkDatabase(ctx)
	if name := req.GetDatabase(); err == nil && name != "" && normalize(name) != g.prefix {
		err = protocol.Errorf(protocol.StatusNotFound,
			"this gateway serves the database %s, not %q; name that when you connect", g.database(), name)
	}
	result := &Ydb_Discovery.ListEndpointsResult{}
	for i, a := range g.cfg.Advertise {
		e, bad := endpointOf(a)
		if bad != nil {
			continue // New has checked it
		}
		info := &Ydb_Discovery.EndpointInfo{Address: e.host, Port: e.port, Ssl: g.cfg.TLS != nil, NodeId: uint32(i) + 1}
		// SDKs join the address and the port as they are, which breaks an IPv6 address.
		if ip, err := netip.ParseAddr(e.host); err == nil && ip.Is4() {
			info.IpV4 = []string{e.host}
		} else if err == nil {
			info.IpV6 = []string{e.host}
		}
		result.Endpoints = append(result.Endpoints, info)
	}
	op, failed := operation(result, err)
	return &Ydb_Discovery.ListEndpointsResponse{Operation: op}, failed
}

// WhoAmI says whose token the call shows.
func (d *discovery) WhoAmI(ctx context.Context, _ *Ydb_Discovery.WhoAmIRequest) (*Ydb_Discovery.WhoAmIResponse, error) {
	op, err := d.g.call(ctx, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		info, err := c.ServerInfo(ctx)
		return &Ydb_Discovery.WhoAmIResult{User: info.Identity}, err
	})
	return &Ydb_Discovery.WhoAmIResponse{Operation: op}, err
}
