package admin

import "context"

// Interceptor stands between a Client and its cluster.
type Interceptor struct {
	Call   func(ctx context.Context, send func(out any) error, in, out any) error                  // of Cluster; nil: it is sent
	CallAt func(ctx context.Context, send func(out any) error, instance uint64, in, out any) error // of ClusterAt
	cluster
}

// Cluster implements cluster.
func (i Interceptor) Cluster(ctx context.Context, method string, in, out any) error {
	send := func(out any) error { return i.cluster.Cluster(ctx, method, in, out) }
	if i.Call == nil {
		return send(out)
	}
	return i.Call(ctx, send, in, out)
}

// ClusterAt implements cluster.
func (i Interceptor) ClusterAt(ctx context.Context, instance uint64, method string, in, out any) error {
	send := func(out any) error { return i.cluster.ClusterAt(ctx, instance, method, in, out) }
	if i.CallAt == nil {
		return send(out)
	}
	return i.CallAt(ctx, send, instance, in, out)
}

// Intercepted is the Client with an Interceptor in its way. a may be nil if nothing is sent.
func Intercepted(a *Client, i Interceptor) *Client {
	if a == nil {
		a = &Client{}
	}
	i.cluster = a.c
	return &Client{c: i, reason: a.reason}
}
