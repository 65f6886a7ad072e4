package grpcsignalbox

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// PolicyName is the name of the load balancing policy, for a service config of your own:
//
//	{"loadBalancingConfig": [{"signalbox_weighted": {}}]}
//
// It is registered when the package is initialized: gRPC knows policies by global names alone.
const PolicyName = "signalbox_weighted"

// Options are what a gRPC client needs for targets with the scheme signalbox: a resolver that
// watches with c, and the policy PolicyName. watch are options such as discovery.InZone. The client
// must outlive the gRPC connection.
func Options(c *client.Client, watch ...discovery.WatchOption) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithResolvers(&builder{c, watch}),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + PolicyName + `": {}}]}`),
	}
}

type key int

const (
	weightKey key = iota
	zoneKey
	tokenKey
	serviceKey // of a state
)

// Weight is the weight of an endpoint that the resolver gave, for a policy of your own; else 0.
func Weight(e resolver.Endpoint) int { w, _ := e.Attributes.Value(weightKey).(int); return w }

// Zone is the zone of an endpoint that the resolver gave.
func Zone(e resolver.Endpoint) string { z, _ := e.Attributes.Value(zoneKey).(string); return z }

// Token is the token of the member behind an endpoint that the resolver gave.
func Token(e resolver.Endpoint) uint64 { t, _ := e.Attributes.Value(tokenKey).(uint64); return t }
