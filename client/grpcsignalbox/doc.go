// Package grpcsignalbox connects gRPC to services of signalbox: it resolves a service to its
// members, and spreads calls over them by weight.
//
//	conn, err := grpc.NewClient("signalbox:///billing/api", append(grpcsignalbox.Options(c), credentials)...)
//
// c is a client of client.New, so that the program starts while the cluster is away: calls wait
// then, as gRPC does for a name that is not resolved yet. The target names the node /billing and
// the service api, each with percent-encoding. While the cluster is away, the last known members
// stay in use. A service without members, or a node that does not exist, ends calls at once with
// Unavailable.
//
// gRPC's interfaces for this are experimental, so the module pins gRPC's minor version.
package grpcsignalbox
