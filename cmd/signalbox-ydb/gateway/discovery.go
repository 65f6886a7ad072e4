package gateway

import (
	"context"
	"net/netip"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Discovery"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

// discovery is YDB's discovery service.
type discovery struct {
	Ydb_Discovery_V1.UnimplementedDiscoveryServiceServer
	g *Gateway
}

// tokenPatience is how long ListEndpoints waits for the cluster to check a token. The cluster answers
// wrong ones up to 2 s late.
const tokenPatience = 3 * time.Second

// ListEndpoints names all gateways. Clients dial the result. A token that the cluster refuses is
// refused here too, so that a client learns of it when it connects. If the cluster does not answer
// in time, the gateways are named: clients connect while it cannot.
func (d *discovery) ListEndpoints(
	ctx context.Context, req *Ydb_Discovery.ListEndpointsRequest,
) (*Ydb_Discovery.ListEndpointsResponse, error) {
	g := d.g
	if err := d.checkToken(ctx); err != nil {
		return nil, err
	}
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

// checkToken refuses a token that is shown and that the cluster is known not to take.
func (d *discovery) checkToken(ctx context.Context) error {
	g := d.g
	token := tokenOf(ctx)
	if token == "" {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	_, release, err := g.clusters.Use(waiting, token, hostOf(ctx))
	if err == nil {
		release()
	}
	if !gateway.IsUnauthenticated(err) {
		return nil
	}
	return g.unauthenticated(ctx, err)
}

// WhoAmI says whose token the call shows.
func (d *discovery) WhoAmI(
	ctx context.Context, _ *Ydb_Discovery.WhoAmIRequest,
) (*Ydb_Discovery.WhoAmIResponse, error) {
	op, err := d.g.call(ctx, func(ctx context.Context, c *cluster) (proto.Message, error) {
		info, err := c.Client.ServerInfo(ctx)
		return &Ydb_Discovery.WhoAmIResult{User: info.Identity}, err
	})
	return &Ydb_Discovery.WhoAmIResponse{Operation: op}, err
}
