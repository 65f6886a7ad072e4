package otelsignalbox

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-dev/signalbox/client"
)

// What a client does to reach the cluster is counted: there is no request of a program that a span
// could be below.

// ConnectionChanged implements client.Observer.
func (o *observer) ConnectionChanged(c client.ConnectionChange) {
	ctx := context.Background()
	switch c.State {
	case client.ConnectionMade:
		o.connections.Add(ctx, 1)
		o.connects.Add(ctx, 1, metric.WithAttributes(attribute.String("signalbox.outcome", outcomeConnected)))
	case client.ConnectionFailed:
		o.connects.Add(ctx, 1, metric.WithAttributes(attribute.String("signalbox.outcome", outcomeError)))
	case client.ConnectionLost:
		o.connections.Add(ctx, -1)
	}
}

// SessionChanged implements client.Observer.
func (o *observer) SessionChanged(s client.SessionChange) {
	outcome := outcomeLost
	switch {
	case s.State == client.Attached:
		outcome = outcomeAttached
	case s.State == client.Detached:
		outcome = outcomeDetached
	case errors.Is(s.Err, client.ErrSessionClosed), errors.Is(s.Err, client.ErrClientClosed):
		outcome = outcomeClosed
	}
	o.sessionChanges.Add(context.Background(), 1, metric.WithAttributes(
		attribute.String("signalbox.node", s.Node), attribute.String("signalbox.outcome", outcome)))
}

// RequestRetried implements client.Observer.
func (o *observer) RequestRetried(r client.RequestRetry) {
	o.requestRetries.Add(context.Background(), 1, metric.WithAttributes(attribute.String("signalbox.request",
		r.Request)))
}
