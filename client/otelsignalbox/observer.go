// Package otelsignalbox reports what a signalbox client acquires and holds to OpenTelemetry, as
// traces and metrics, and its connections, sessions and retries as metrics.
//
//	observer, err := otelsignalbox.New()
//	c, err := client.Open(ctx, client.Config{Endpoints: endpoints, Observer: observer})
//
// Each acquire is a span signalbox.acquire below the span of its context, from the call to its
// return. Each hold is a span signalbox.hold beside it, with a link to the acquire, until the lease
// ends. A lost lease is an error of its span, with why it was lost as signalbox.loss.cause and others;
// a wait that ended without the units is not.
//
// Metrics have the attributes signalbox.node and signalbox.outcome. Outcomes of an acquire are
// acquired, not_acquired, cancelled and error; of a hold released, closed and lost; of a connection
// connected and error; and of a session attached, detached, closed and lost. Names of semaphores are on
// spans alone, because metrics would have a series for each. A name that is not UTF-8 is base64
// under signalbox.semaphore_base64.
//
// A hold goes on when its acquire has ended, and often when the request has, so its span is not
// below them.
package otelsignalbox

import (
	"context"
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-dev/signalbox/client"
)

// scope is the instrumentation scope of the spans and metrics.
const scope = "github.com/signalbox-dev/signalbox/client/otelsignalbox"

// Names of spans.
const (
	spanAcquire = "signalbox.acquire"
	spanHold    = "signalbox.hold"
)

// Names of metrics. Durations are histograms in seconds.
const (
	MetricAcquires        = "signalbox.client.acquires"         // acquires under way
	MetricAcquireDuration = "signalbox.client.acquire.duration" // from the call to its return
	MetricRetries         = "signalbox.client.acquire.retries"  // requests that were sent again
	MetricHolds           = "signalbox.client.holds"            // leases held
	MetricHoldDuration    = "signalbox.client.hold.duration"    // from the acquire to the lease's end
	MetricConnections     = "signalbox.client.connections"      // connections to instances
	MetricConnects        = "signalbox.client.connects"         // attempts to make one, by outcome
	MetricSessionChanges  = "signalbox.client.session.changes"  // sessions attached, detached and ended, by outcome
	MetricRequestRetries  = "signalbox.client.request.retries"  // requests of all kinds that were sent again
)

// Values of the attribute signalbox.outcome.
const (
	outcomeAcquired    = "acquired"
	outcomeNotAcquired = "not_acquired" // the wait ended, or the semaphore was not free
	outcomeCancelled   = "cancelled"    // the context of the call ended
	outcomeError       = "error"
	outcomeReleased    = "released"
	outcomeClosed      = "closed" // the session was closed
	outcomeLost        = "lost"
	outcomeConnected   = "connected"
	outcomeAttached    = "attached"
	outcomeDetached    = "detached"
)

// Option is an option of New.
type Option func(*options)

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
}

// WithTracerProvider has spans made by another provider than the global one.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider has metrics made by another provider than the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// New returns an Observer for client.Config. An error is the meter provider's.
func New(opts ...Option) (client.Observer, error) {
	o := options{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, f := range opts {
		f(&o)
	}
	x := &observer{tracer: o.tracers.Tracer(scope)}
	meter := o.meters.Meter(scope)
	seconds := metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5,
		5, 10, 30, 60, 300, 1800)
	var errs [9]error
	x.acquires, errs[0] = meter.Int64UpDownCounter(MetricAcquires,
		metric.WithUnit("{acquire}"), metric.WithDescription("Acquires under way."))
	x.acquireDuration, errs[1] = meter.Float64Histogram(MetricAcquireDuration,
		metric.WithUnit("s"), seconds, metric.WithDescription("Time from the call of an acquire to its return."))
	x.retries, errs[2] = meter.Int64Counter(MetricRetries,
		metric.WithUnit("{request}"),
		metric.WithDescription("Requests of acquires that were sent again, after lost connections and moves."))
	x.holds, errs[3] = meter.Int64UpDownCounter(MetricHolds,
		metric.WithUnit("{lease}"), metric.WithDescription("Leases held."))
	x.holdDuration, errs[4] = meter.Float64Histogram(MetricHoldDuration,
		metric.WithUnit("s"), seconds, metric.WithDescription("Time from an acquire to the end of its lease."))
	x.connections, errs[5] = meter.Int64UpDownCounter(MetricConnections,
		metric.WithUnit("{connection}"), metric.WithDescription("Connections to instances."))
	x.connects, errs[6] = meter.Int64Counter(MetricConnects,
		metric.WithUnit("{attempt}"), metric.WithDescription("Attempts to connect to an instance that ended."))
	x.sessionChanges, errs[7] = meter.Int64Counter(MetricSessionChanges,
		metric.WithUnit("{change}"), metric.WithDescription("Sessions that were attached, were detached, or ended."))
	x.requestRetries, errs[8] = meter.Int64Counter(MetricRequestRetries,
		metric.WithUnit("{request}"), metric.WithDescription("Requests that were sent again, of all kinds."))
	return x, errors.Join(errs[:]...)
}

type observer struct {
	tracer          trace.Tracer
	acquires        metric.Int64UpDownCounter
	acquireDuration metric.Float64Histogram
	retries         metric.Int64Counter
	holds           metric.Int64UpDownCounter
	holdDuration    metric.Float64Histogram

	connections    metric.Int64UpDownCounter
	connects       metric.Int64Counter
	sessionChanges metric.Int64Counter
	requestRetries metric.Int64Counter
}

// acquire is one acquire and its hold. Its calls come one after the other.
type acquire struct {
	*observer
	parent     context.Context // of the call, without its end
	span       trace.Span      // of the acquire
	hold       trace.Span
	node       attribute.KeyValue
	attributes []attribute.KeyValue // of both spans
}

// AcquireStarted implements client.Observer.
func (o *observer) AcquireStarted(ctx context.Context, s client.AcquireStart) client.AcquireObserver {
	a := &acquire{observer: o, parent: context.WithoutCancel(ctx), node: attribute.String("signalbox.node", s.Node)}
	a.attributes = []attribute.KeyValue{
		a.node,
		nameOf(s.Name),
		attribute.String("signalbox.session", strconv.FormatUint(s.Session, 10)),
		attribute.Int64("signalbox.count", number(s.Count)),
	}
	_, a.span = o.tracer.Start(ctx, spanAcquire, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(a.attributes...),
		trace.WithAttributes(attribute.Bool("signalbox.try", s.Try)))
	o.acquires.Add(ctx, 1, metric.WithAttributes(a.node))
	return a
}

// AcquireEnded implements client.AcquireObserver.
func (a *acquire) AcquireEnded(e client.AcquireEnd) {
	outcome := acquireOutcome(e.Err)
	a.span.SetAttributes(
		attribute.String("signalbox.outcome", outcome), attribute.Bool("signalbox.queued", e.Queued),
		attribute.Int("signalbox.attempts", e.Attempts),
		attribute.Int64("signalbox.shard", number(e.Shard)),
	)
	if e.Token != 0 {
		a.span.SetAttributes(attribute.Int64("signalbox.token", number(e.Token)))
	}
	if outcome == outcomeError {
		a.span.RecordError(e.Err)
		a.span.SetStatus(codes.Error, e.Err.Error())
	}
	a.span.End()
	with := metric.WithAttributes(a.node, attribute.String("signalbox.outcome", outcome))
	a.acquires.Add(a.parent, -1, metric.WithAttributes(a.node))
	a.acquireDuration.Record(a.parent, e.Wait.Seconds(), with)
	a.retries.Add(a.parent, int64(max(0, e.Attempts-1)), metric.WithAttributes(a.node))
	if e.Err != nil {
		return
	}
	a.holds.Add(a.parent, 1, metric.WithAttributes(a.node))
	_, a.hold = a.tracer.Start(a.parent, spanHold, trace.WithLinks(trace.Link{SpanContext: a.span.SpanContext()}),
		trace.WithAttributes(a.attributes...),
		trace.WithAttributes(attribute.Int64("signalbox.token", number(e.Token))))
}

// HoldEnded implements client.AcquireObserver.
func (a *acquire) HoldEnded(e client.HoldEnd) {
	outcome := outcomeReleased
	switch {
	case errors.Is(e.Cause, client.ErrSessionClosed):
		outcome = outcomeClosed
	case e.Cause != nil:
		outcome = outcomeLost
		a.hold.RecordError(e.Cause)
		a.hold.SetStatus(codes.Error, e.Cause.Error())
		if loss, ok := errors.AsType[*client.Loss](e.Cause); ok {
			a.hold.SetAttributes(attribute.String("signalbox.loss.cause", loss.Cause),
				attribute.Int64("signalbox.loss.since_ms", loss.Since.Milliseconds()),
				attribute.Int64("signalbox.loss.stood_ms", loss.Stood.Milliseconds()),
				attribute.StringSlice("signalbox.loss.steps", loss.Steps),
				attribute.String("signalbox.loss.advice", loss.Advice))
		}
	}
	a.hold.SetAttributes(attribute.String("signalbox.outcome", outcome))
	a.hold.End()
	a.holds.Add(a.parent, -1, metric.WithAttributes(a.node))
	a.holdDuration.Record(a.parent, e.Held.Seconds(),
		metric.WithAttributes(a.node, attribute.String("signalbox.outcome", outcome)))
}

func acquireOutcome(err error) string {
	switch {
	case err == nil:
		return outcomeAcquired
	case errors.Is(err, client.ErrNotAcquired):
		return outcomeNotAcquired
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return outcomeCancelled
	}
	return outcomeError
}

// nameOf is a semaphore's name as an attribute. OTLP has no strings that are not UTF-8, and an
// exporter drops all spans that it would send with one.
func nameOf(name string) attribute.KeyValue {
	const key = "signalbox.semaphore"
	if utf8.ValidString(name) {
		return attribute.String(key, name)
	}
	return attribute.String(key+"_base64", base64.StdEncoding.EncodeToString([]byte(name)))
}

// number is a number as attributes have it.
func number(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
